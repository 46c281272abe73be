"""PyTorch's FSDP2 (`fully_shard`), with and without CPU offload, as its source does it.

What is true of the version named here was read from `torch/distributed/fsdp/_fully_shard` and
met by running it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ziplan.runtimes.fsdp.config import emit
from ziplan.runtimes.fsdp.memory import ledger
from ziplan.runtimes.fsdp.notes import notes
from ziplan.runtimes.fsdp.space import axes, homes, refusals, settle
from ziplan.runtimes.fsdp.traffic import program

if TYPE_CHECKING:
    from ziplan.hardware.cluster import Cluster
    from ziplan.plan import Plan
    from ziplan.runtimes.schedule import Schedule
    from ziplan.workload.training import Workload

NAME = "fsdp"
VERSION = "2.13"

ONE_HOME = True
"""`CPUOffloadPolicy` takes parameters, gradients and optimizer state of a model together."""

SWAP_LIMIT: float | None = None
SWAP_LIMIT_SOURCE = "FSDP2 has no NVMe offload"


def step_schedule(cluster: Cluster, workload: Workload, plan: Plan, **options: Any) -> Schedule:
    """The step group by group (`schedule.schedule`), imported when a step is played."""
    from ziplan.runtimes.fsdp.schedule import schedule

    return schedule(cluster, workload, plan, **options)


__all__ = [
    "NAME",
    "ONE_HOME",
    "SWAP_LIMIT",
    "SWAP_LIMIT_SOURCE",
    "VERSION",
    "axes",
    "emit",
    "homes",
    "ledger",
    "notes",
    "program",
    "refusals",
    "settle",
    "step_schedule",
]
