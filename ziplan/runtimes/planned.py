"""A runtime whose plans and files are another's, and whose memory and step differ."""

from __future__ import annotations

from collections.abc import Sequence

from ziplan.hardware.cluster import Cluster
from ziplan.plan import Plan
from ziplan.runtimes.refusal import Refusal
from ziplan.runtimes.runtime import Axis, Runtime
from ziplan.workload.training import Workload


class PlannedAs:
    """What does not depend on a release or a config; what derives from it has its own ledger and step."""

    def __init__(self, planned: Runtime) -> None:
        self._planned = planned
        self.NAME, self.VERSION = planned.NAME, planned.VERSION
        self.SWAP_LIMIT, self.SWAP_LIMIT_SOURCE = planned.SWAP_LIMIT, planned.SWAP_LIMIT_SOURCE

    def refusals(self, cluster: Cluster, workload: Workload, plan: Plan) -> list[Refusal]:
        """Why the runtime cannot express this plan."""
        return self._planned.refusals(cluster, workload, plan)

    def homes(self, cluster: Cluster, plan: Plan) -> Sequence[str]:
        """Tiers that can hold states."""
        return self._planned.homes(cluster, plan)

    def axes(self, cluster: Cluster, workload: Workload, code_changes: bool = False) -> Sequence[Axis]:
        """The search space of plans."""
        return self._planned.axes(cluster, workload, code_changes)

    def settle(self, cluster: Cluster, workload: Workload, plan: Plan) -> Plan:
        """The plan with the fields that follow from the others."""
        return self._planned.settle(cluster, workload, plan)

    def emit(
        self, cluster: Cluster, workload: Workload, plan: Plan, nvme_path: str = "", trainer: str = "none"
    ) -> dict[str, str]:
        """The files that ziplan writes for the plan."""
        path = {"nvme_path": nvme_path} if nvme_path else {}
        return self._planned.emit(cluster, workload, plan, trainer=trainer, **path)
