"""FSDP before `fully_shard`: other passes through the GPU's memory and no padding of rows, else as FSDP2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ziplan.errors import BadInput
from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes import fsdp
from ziplan.runtimes.planned import PlannedAs
from ziplan.runtimes.runtime import Ledger, Runtime, Segment
from ziplan.runtimes.schedule import Schedule
from ziplan.workload.training import Workload

FSDP1 = "FSDP1"
"""PyTorch's `FullyShardedDataParallel`, and FairScale's before it: one flat tensor a group."""


class Released(PlannedAs):
    """A runtime as `Runtime` asks for it (ValueError where the version is not `FSDP1`)."""

    def __init__(self, version: str) -> None:
        super().__init__(cast(Runtime, fsdp))
        if version != FSDP1:
            raise ValueError(f"{version!r} is no other FSDP than the one that is planned: {FSDP1} is")
        self.VERSION = version

    def ledger(self, derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan) -> Ledger:
        """Bytes by tier and phase, as FSDP2 holds them, of shards that are not padded row by row."""
        return fsdp.ledger(derivation, cluster, workload, plan, flat=True)

    def program(
        self, derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan
    ) -> Sequence[Segment]:
        """The step, with the passes of one flat tensor a group."""
        return fsdp.program(derivation, cluster, workload, plan, flat=True)

    def step_schedule(self, cluster: Cluster, workload: Workload, plan: Plan, **options: Any) -> Schedule:
        """FSDP2 alone is played."""
        raise BadInput.of(f"only FSDP2 is played, not {self.VERSION}")
