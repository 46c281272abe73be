"""DeepSpeed as an earlier release runs a plan: what is held and what waits differ, the plan does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ziplan.errors import BadInput
from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes import deepspeed
from ziplan.runtimes.deepspeed.releases import PYTORCH
from ziplan.runtimes.deepspeed.traits import traits_of
from ziplan.runtimes.planned import PlannedAs
from ziplan.runtimes.refusal import Refusal, misplaced
from ziplan.runtimes.runtime import Ledger, Runtime, Segment
from ziplan.runtimes.schedule import Schedule
from ziplan.workload.training import Workload


class Released(PlannedAs):
    """A runtime as `Runtime` asks for it, with the traits of one release (ValueError where none is named).

    `overlap_comm` is what the run's config said; None: on, as in the configs that are emitted. `zero` are
    other keys of its `zero_optimization` (`knobs.KEYS`); what is not in it follows from the plan.
    """

    def __init__(
        self, version: str, overlap_comm: bool | None = None, zero: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(cast(Runtime, deepspeed))
        self.VERSION, self.traits, self.overlap_comm = version, traits_of(version), overlap_comm
        self.zero = zero

    @property
    def _of_the_run(self) -> dict[str, Any]:
        """What ledger and step take of the release and of the run's config."""
        return {"traits": self.traits, "overlap_comm": self.overlap_comm, "zero": self.zero}

    def refusals(self, cluster: Cluster, workload: Workload, plan: Plan) -> list[Refusal]:
        """Why DeepSpeed cannot run the plan, or this release of it."""
        return super().refusals(cluster, workload, plan) + self.lacking(cluster, plan)

    def lacking(self, cluster: Cluster, plan: Plan) -> list[Refusal]:
        """What the plan asks for and this release has not: of PyTorch alone all that is ZeRO's."""
        if self.VERSION != PYTORCH:
            return []
        reasons, gpu = [], cluster.node.gpu_tier
        if plan.zero_stage == 3 or (plan.zero_stage > 0 and plan.dp_degree > 1):
            said = "PyTorch alone divides no states: zero_stage 0 only (1 or 2 on one GPU divide nothing)"
            remedy = "zero_stage: 0, or as version the release of DeepSpeed that ran"
            reasons.append(Refusal(said, "zero_stage", help=remedy))
        off_gpu = [
            state
            for state in ("params", "optimizer")
            if any(share for tier, share in getattr(plan.placement, state).items() if tier != gpu)
        ]
        return reasons + [misplaced("PyTorch alone offloads no states", state, gpu) for state in off_gpu]

    def ledger(self, derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan) -> Ledger:
        """Bytes by tier and phase as the release holds them."""
        return deepspeed.ledger(derivation, cluster, workload, plan, **self._of_the_run)

    def program(
        self, derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan
    ) -> Sequence[Segment]:
        """The step as the release runs it."""
        return deepspeed.program(derivation, cluster, workload, plan, **self._of_the_run)

    def step_schedule(self, cluster: Cluster, workload: Workload, plan: Plan, **options: Any) -> Schedule:
        """No earlier release is played."""
        raise BadInput.of(f"only DeepSpeed {deepspeed.VERSION} is played, not {self.VERSION}")
