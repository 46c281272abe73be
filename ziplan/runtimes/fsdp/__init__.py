"""PyTorch's FSDP2 (`fully_shard`), with and without CPU offload, as its source does it.

What is true of the version named here was read from `torch/distributed/fsdp/_fully_shard` and
met by running it.
"""

from __future__ import annotations

from ziplan.runtimes.fsdp.config import emit
from ziplan.runtimes.fsdp.memory import ledger
from ziplan.runtimes.fsdp.notes import notes
from ziplan.runtimes.fsdp.space import axes, homes, refusals, settle
from ziplan.runtimes.fsdp.traffic import program
from ziplan.runtimes.played import played_by

NAME = "fsdp"
VERSION = "2.13"

ONE_HOME = True
"""`CPUOffloadPolicy` takes parameters, gradients and optimizer state of a model together."""

SWAP_LIMIT: float | None = None
SWAP_LIMIT_SOURCE = "FSDP2 has no NVMe offload"


step_schedule = played_by(__name__, "FSDP2 gathers as it does")

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
