"""Megatron's tensor parallelism over DeepSpeed's stages 2 and 3 as an earlier DeepSpeed runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ziplan.errors import BadInput
from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes import megatron
from ziplan.runtimes.deepspeed.released import Released as DeepSpeed
from ziplan.runtimes.megatron import traffic, zero
from ziplan.runtimes.planned import PlannedAs
from ziplan.runtimes.refusal import Refusal
from ziplan.runtimes.runtime import Ledger, Runtime, Segment
from ziplan.runtimes.schedule import Schedule
from ziplan.workload.training import Workload


class Released(PlannedAs):
    """A runtime as `Runtime` asks for it, over one release of DeepSpeed (ValueError where none is named).

    Below stage 2 its pipeline runs Megatron's model, and all releases add gradients alike.
    """

    def __init__(
        self, version: str, overlap_comm: bool | None = None, zero: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(cast(Runtime, megatron))
        self.inner = DeepSpeed(version, overlap_comm, zero)

    def refusals(self, cluster: Cluster, workload: Workload, plan: Plan) -> list[Refusal]:
        """Why Megatron cannot run the plan, or the release of DeepSpeed below it."""
        lacking = self.inner.lacking(cluster, plan) if zero.used(plan) else []
        return super().refusals(cluster, workload, plan) + lacking

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
