"""The article's runtime: 16 bytes per parameter, two climbs of the parameters, perfect overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ziplan.runtimes.ideal.model import axes, emit, homes, ledger, program, refusals, settle

if TYPE_CHECKING:
    from ziplan.hardware.cluster import Cluster
    from ziplan.plan import Plan
    from ziplan.runtimes.schedule import Schedule
    from ziplan.workload.training import Workload

NAME = "ideal"
VERSION = "article"
SWAP_LIMIT = None
SWAP_LIMIT_SOURCE = ""


def step_schedule(cluster: Cluster, workload: Workload, plan: Plan, **options: Any) -> Schedule:
    """The step layer by layer (`schedule.schedule`), imported when a step is played."""
    from ziplan.runtimes.ideal.schedule import schedule

    return schedule(cluster, workload, plan, **options)


__all__ = [
    "NAME",
    "SWAP_LIMIT",
    "SWAP_LIMIT_SOURCE",
    "VERSION",
    "axes",
    "emit",
    "homes",
    "ledger",
    "program",
    "refusals",
    "step_schedule",
    "settle",
]
