"""Megatron-LM with tensor and pipeline parallelism, alone or with DeepSpeed's ZeRO beside it.

Its degrees are inputs of a plan, not searched: `fit` plans degree 1, any other comes from a plan file
or a record. What is true of the version named here was read from its documentation and source; how
bytes and time follow from the degrees is that of arXiv:2104.04473 and arXiv:2205.05198. Recomputing
attention alone goes with sequence parallelism, as in the latter; the other modes go without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ziplan.runtimes import deepspeed
from ziplan.runtimes.megatron import memory, traffic, zero
from ziplan.runtimes.megatron.config import emit
from ziplan.runtimes.megatron.space import axes, homes, refusals, settle
from ziplan.runtimes.played import played_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ziplan.hardware.cluster import Cluster
    from ziplan.laws.law import Derivation
    from ziplan.plan import Plan
    from ziplan.runtimes.runtime import Ledger, Segment
    from ziplan.workload.training import Workload

NAME = "megatron"
VERSION = "core 0.20"

SWAP_LIMIT: float | None = deepspeed.SWAP_LIMIT
SWAP_LIMIT_SOURCE = deepspeed.SWAP_LIMIT_SOURCE


def ledger(derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan) -> Ledger:
    """Bytes by tier and phase: Megatron's own, or with stages 2 and 3 DeepSpeed's of a slice."""
    own = zero.ledger if zero.used(plan) else memory.ledger
    return own(derivation, cluster, workload, plan)


def program(derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan) -> Sequence[Segment]:
    """The step as segments of resource demands, by the same distinction."""
    own = zero.program if zero.used(plan) else traffic.program
    return own(derivation, cluster, workload, plan)


step_schedule = played_by(__name__, "Megatron-LM gathers no parameters")

__all__ = [
    "NAME",
    "SWAP_LIMIT",
    "SWAP_LIMIT_SOURCE",
    "VERSION",
    "axes",
    "emit",
    "homes",
    "ledger",
    "program",
    "refusals",
    "settle",
    "step_schedule",
]
