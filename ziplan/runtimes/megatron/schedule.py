"""Megatron's step as one GPU of an average stage plays it: one piece of work after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes.megatron import traffic, zero
from ziplan.runtimes.runtime import Segment
from ziplan.runtimes.schedule import Schedule, Stage, Work, Works
from ziplan.workload.training import Workload

CONVENTIONS = (
    "layers are divided evenly over stages, and nothing of an exchange hides behind compute",
    "the bubble and the stage with the head are played as time of other stages that is waited for",
)


def schedule(cluster: Cluster, workload: Workload, plan: Plan) -> Schedule:
    """The step of one GPU; there is no parameter to gather."""
    program = zero.program if zero.used(plan) else traffic.program
    stages = [
        Stage(segment.name, int(segment.repeats), _written(segment))
        for segment in program(Derivation(record=False), cluster, workload, plan)
        if segment.repeats >= 1 and _works(segment)
    ]
    return Schedule(tuple(stages), (), CONVENTIONS)


def _works(segment: Segment) -> bool:
    """Whether there is anything to do: a single replica exchanges no gradients."""
    return any(demand.amount > 0 for chain in segment.chains for demand in chain)


def _written(segment: Segment) -> Callable[[int], Sequence[Work]]:
    """The demands of each chain one after the other, what stands in several once; repetitions are alike."""

    def works(count: int) -> Sequence[Work]:
        found, places = Works(), dict[int, int]()
        for chain in segment.chains:
            last = -1
            for demand in chain:
                if demand.amount <= 0:
                    continue
                if id(demand) not in places:
                    places[id(demand)] = found.add(segment.name, *demand, (last,))
                last = places[id(demand)]
        return found.all

    return works
