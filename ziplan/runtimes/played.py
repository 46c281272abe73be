"""How a runtime's step comes to be played: its schedule, imported when that is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from ziplan.errors import BadInput

if TYPE_CHECKING:
    from ziplan.hardware.cluster import Cluster
    from ziplan.plan import Plan
    from ziplan.runtimes.schedule import Schedule
    from ziplan.workload.training import Workload


class Played(Protocol):
    """A runtime's `step_schedule`."""

    def __call__(self, cluster: Cluster, workload: Workload, plan: Plan, **options: Any) -> Schedule:
        """The step piece by piece."""


def played_by(runtime: str, no_choice: str = "") -> Played:
    """The schedule of the package `runtime`, from its module of that name.

    `no_choice` is why a runtime leaves nothing of how parameters are fetched to be chosen; empty where it
    does.
    """

    def step_schedule(cluster: Cluster, workload: Workload, plan: Plan, **options: Any) -> Schedule:
        if no_choice and (options.pop("owner_broadcast", False) or not options.pop("over_the_turn", True)):
            raise BadInput.of(
                f"{no_choice}, there is nothing to choose",
                help="owner-broadcast and a prefetch that stops at the turn are played with `ideal`",
            )
        module = import_module(f"{runtime}.schedule")
        return cast("Schedule", module.schedule(cluster, workload, plan, **options))

    return step_schedule
