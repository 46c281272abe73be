"""DeepSpeed under a config that exists: what it states wins over what follows from a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes import deepspeed
from ziplan.runtimes.deepspeed.reading.settings import Settings
from ziplan.runtimes.planned import PlannedAs
from ziplan.runtimes.runtime import Ledger, Runtime, Segment
from ziplan.runtimes.schedule import Schedule
from ziplan.workload.training import Workload


class Configured(PlannedAs):
    """A runtime as `Runtime` asks for it, with the settings of one config.

    A plan that is made anew (`settle`, `axes`) or written out (`emit`) has none of them.
    """

    def __init__(self, stated: Settings) -> None:
        super().__init__(cast(Runtime, deepspeed))
        self.stated = stated

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

    def _stated_for(self, workload: Workload) -> Settings | None:
        """The config is the trained model's; one that only infers has another."""
        return self.stated if workload.trainable_params else None
