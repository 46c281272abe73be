"""DeepSpeed as an earlier release runs a plan: what is held and what waits differ, the plan does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ziplan.errors import BadInput
from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes import deepspeed
from ziplan.runtimes.deepspeed.traits import traits_of
from ziplan.runtimes.runtime import Axis, Ledger, Segment
from ziplan.runtimes.schedule import Schedule
from ziplan.workload.training import Workload


class Released:
    """A runtime as `Runtime` asks for it, with the traits of one release (ValueError where none is named).

    `overlap_comm` is what the run's config said; None: on, as in the configs that are emitted. `zero` are
    other keys of its `zero_optimization` (`knobs.KEYS`); what is not in it follows from the plan.
    """

    NAME = deepspeed.NAME
    SWAP_LIMIT: float | None = deepspeed.SWAP_LIMIT
    SWAP_LIMIT_SOURCE = deepspeed.SWAP_LIMIT_SOURCE

    def __init__(
        self, version: str, overlap_comm: bool | None = None, zero: Mapping[str, float] | None = None
    ) -> None:
        self.VERSION, self.traits, self.overlap_comm = version, traits_of(version), overlap_comm
        self.zero = zero

    @property
    def _of_the_run(self) -> dict[str, Any]:
        """What ledger and step take of the release and of the run's config."""
        return {"traits": self.traits, "overlap_comm": self.overlap_comm, "zero": self.zero}

    def refusals(self, cluster: Cluster, workload: Workload, plan: Plan) -> list[str]:
        """Why DeepSpeed cannot express this plan."""
        return deepspeed.refusals(cluster, workload, plan)

    def homes(self, cluster: Cluster, plan: Plan) -> Sequence[str]:
        """Tiers that can hold states."""
        return deepspeed.homes(cluster, plan)

    def axes(self, cluster: Cluster, workload: Workload, code_changes: bool = False) -> Sequence[Axis]:
        """The search space of plans."""
        return deepspeed.axes(cluster, workload, code_changes)

    def settle(self, cluster: Cluster, workload: Workload, plan: Plan) -> Plan:
        """The plan with the fields that follow from the others."""
        return deepspeed.settle(cluster, workload, plan)

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

    def emit(
        self, cluster: Cluster, workload: Workload, plan: Plan, nvme_path: str = "", trainer: str = "none"
    ) -> dict[str, str]:
        """Files are those of the newest release."""
        path = {"nvme_path": nvme_path} if nvme_path else {}
        return deepspeed.emit(cluster, workload, plan, trainer=trainer, **path)
