"""FSDP before `fully_shard`: other passes through the GPU's memory and no padding of rows, else as FSDP2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ziplan.errors import BadInput
from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes import fsdp
from ziplan.runtimes.runtime import Axis, Ledger, Segment
from ziplan.runtimes.schedule import Schedule
from ziplan.workload.training import Workload

FSDP1 = "FSDP1"
"""PyTorch's `FullyShardedDataParallel`, and FairScale's before it: one flat tensor a group."""


class Released:
    """A runtime as `Runtime` asks for it (ValueError where the version is not `FSDP1`)."""

    NAME = fsdp.NAME
    SWAP_LIMIT: float | None = fsdp.SWAP_LIMIT
    SWAP_LIMIT_SOURCE = fsdp.SWAP_LIMIT_SOURCE

    def __init__(self, version: str) -> None:
        if version != FSDP1:
            raise ValueError(f"{version!r} is no other FSDP than the one that is planned: {FSDP1} is")
        self.VERSION = version

    def refusals(self, cluster: Cluster, workload: Workload, plan: Plan) -> list[str]:
        """Why FSDP cannot express this plan."""
        return fsdp.refusals(cluster, workload, plan)

    def homes(self, cluster: Cluster, plan: Plan) -> Sequence[str]:
        """Tiers that can hold states."""
        return fsdp.homes(cluster, plan)

    def axes(self, cluster: Cluster, workload: Workload, code_changes: bool = False) -> Sequence[Axis]:
        """The search space of plans."""
        return fsdp.axes(cluster, workload, code_changes)

    def settle(self, cluster: Cluster, workload: Workload, plan: Plan) -> Plan:
        """The plan with the fields that follow from the others."""
        return fsdp.settle(cluster, workload, plan)

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

    def emit(
        self, cluster: Cluster, workload: Workload, plan: Plan, nvme_path: str = "", trainer: str = "none"
    ) -> dict[str, str]:
        """Files are FSDP2's."""
        return fsdp.emit(cluster, workload, plan, trainer=trainer)
