"""Megatron-LM with tensor and pipeline parallelism: a baseline that keeps everything on the GPUs.

Its degrees are inputs of a plan, not searched: `fit` plans degree 1, any other comes from a plan file
or a record. What is true of the version named here was read from its documentation and source; how
bytes and time follow from the degrees is that of arXiv:2104.04473 and arXiv:2205.05198. Recomputing
attention alone goes with sequence parallelism, as in the latter; the other modes go without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ziplan.runtimes.megatron.config import emit
from ziplan.runtimes.megatron.memory import ledger
from ziplan.runtimes.megatron.space import axes, refusals, settle
from ziplan.runtimes.megatron.traffic import program

if TYPE_CHECKING:
    from ziplan.hardware.cluster import Cluster
    from ziplan.plan import Plan
    from ziplan.runtimes.schedule import Schedule
    from ziplan.workload.training import Workload

NAME = "megatron"
VERSION = "core 0.20"

ONE_HOME = True
"""Nothing leaves the GPU."""

SWAP_LIMIT: float | None = None
SWAP_LIMIT_SOURCE = "Megatron-LM swaps nothing to NVMe"


def step_schedule(cluster: Cluster, workload: Workload, plan: Plan, **options: Any) -> Schedule:
    """The step piece by piece (`schedule.schedule`), imported when a step is played."""
    from ziplan.runtimes.megatron.schedule import schedule

    return schedule(cluster, workload, plan, **options)


__all__ = [
    "NAME",
    "ONE_HOME",
    "SWAP_LIMIT",
    "SWAP_LIMIT_SOURCE",
    "VERSION",
    "axes",
    "emit",
    "ledger",
    "program",
    "refusals",
    "settle",
    "step_schedule",
]
