"""DeepSpeed under a config that exists: what it states wins over what follows from a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes import deepspeed
from ziplan.runtimes.deepspeed.reading.settings import Settings
from ziplan.runtimes.runtime import Axis, Ledger, Segment
from ziplan.runtimes.schedule import Schedule
from ziplan.workload.training import Workload


class Configured:
    """A runtime as `Runtime` asks for it, with the settings of one config.

    A plan that is made anew (`settle`, `axes`) or written out (`emit`) has none of them.
    """

    NAME = deepspeed.NAME
    VERSION = deepspeed.VERSION
    SWAP_LIMIT: float | None = deepspeed.SWAP_LIMIT
    SWAP_LIMIT_SOURCE = deepspeed.SWAP_LIMIT_SOURCE

    def __init__(self, stated: Settings) -> None:
        self.stated = stated

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
        """Bytes by tier and phase under the config's settings."""
        return deepspeed.ledger(derivation, cluster, workload, plan, self._stated_for(workload))

    def program(
        self, derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan
    ) -> Sequence[Segment]:
        """The step under the config's settings."""
        return deepspeed.program(derivation, cluster, workload, plan, self._stated_for(workload))

    def step_schedule(self, cluster: Cluster, workload: Workload, plan: Plan, **options: Any) -> Schedule:
        """The step piece by piece under the config's settings."""
        return deepspeed.step_schedule(cluster, workload, plan, stated=self.stated, **options)

    def emit(
        self, cluster: Cluster, workload: Workload, plan: Plan, nvme_path: str = "", trainer: str = "none"
    ) -> dict[str, str]:
        """The files that ziplan writes for the plan, not the config that it came from."""
        path = {"nvme_path": nvme_path} if nvme_path else {}
        return deepspeed.emit(cluster, workload, plan, trainer=trainer, **path)

    def _stated_for(self, workload: Workload) -> Settings | None:
        """The config is the trained model's; one that only infers has another."""
        return self.stated if workload.trainable_params else None
