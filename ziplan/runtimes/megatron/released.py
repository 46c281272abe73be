"""Megatron's tensor parallelism over DeepSpeed's stages 2 and 3 as an earlier DeepSpeed runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ziplan.errors import BadInput
from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes import megatron
from ziplan.runtimes.deepspeed.released import Released as DeepSpeed
from ziplan.runtimes.megatron import traffic, zero
from ziplan.runtimes.runtime import Axis, Ledger, Segment
from ziplan.runtimes.schedule import Schedule
from ziplan.workload.training import Workload


class Released:
    """A runtime as `Runtime` asks for it, over one release of DeepSpeed (ValueError where none is named).

    Below stage 2 its pipeline runs Megatron's model, and all releases add gradients alike.
    """

    NAME, VERSION = megatron.NAME, megatron.VERSION
    SWAP_LIMIT: float | None = megatron.SWAP_LIMIT
    SWAP_LIMIT_SOURCE = megatron.SWAP_LIMIT_SOURCE

    def __init__(
        self, version: str, overlap_comm: bool | None = None, zero: Mapping[str, float] | None = None
    ) -> None:
        self.inner = DeepSpeed(version, overlap_comm, zero)

    def refusals(self, cluster: Cluster, workload: Workload, plan: Plan) -> list[str]:
        """Why Megatron cannot express this plan."""
        return megatron.refusals(cluster, workload, plan)

    def homes(self, cluster: Cluster, plan: Plan) -> Sequence[str]:
        """Tiers that can hold states."""
        return megatron.homes(cluster, plan)

    def axes(self, cluster: Cluster, workload: Workload, code_changes: bool = False) -> Sequence[Axis]:
        """The search space of plans."""
        return megatron.axes(cluster, workload, code_changes)

    def settle(self, cluster: Cluster, workload: Workload, plan: Plan) -> Plan:
        """The plan with the fields that follow from the others."""
        return megatron.settle(cluster, workload, plan)

    def ledger(self, derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan) -> Ledger:
        """Bytes by tier and phase, DeepSpeed's as the release holds them."""
        if zero.used(plan):
            return zero.ledger(derivation, cluster, workload, plan, self.inner)
        return megatron.ledger(derivation, cluster, workload, plan)

    def program(
        self, derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan
    ) -> Sequence[Segment]:
        """The step, DeepSpeed's as the release runs it."""
        if zero.used(plan):
            return zero.program(derivation, cluster, workload, plan, self.inner)
        return traffic.program(derivation, cluster, workload, plan, autograd_adds=1.0)

    def step_schedule(self, cluster: Cluster, workload: Workload, plan: Plan, **options: Any) -> Schedule:
        """No earlier release is played."""
        raise BadInput.of(f"only the newest DeepSpeed is played, not {self.inner.VERSION}")

    def emit(
        self, cluster: Cluster, workload: Workload, plan: Plan, nvme_path: str = "", trainer: str = "none"
    ) -> dict[str, str]:
        """Files are those of the newest release."""
        return megatron.emit(cluster, workload, plan, nvme_path, trainer)
