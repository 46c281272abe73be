"""Megatron's step as one GPU of an average stage plays it: one piece of work after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import takewhile

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes.megatron import traffic, zero
from ziplan.runtimes.runtime import Demand, Segment
from ziplan.runtimes.schedule import Schedule, Stage, Work, Works
from ziplan.workload.training import Workload

CONVENTIONS = (
    "layers are divided evenly over stages",
    "what is exchanged hides behind compute in DeepSpeed's stages 2 and 3 alone, at no set moment",
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
    """The demands of each chain one after the other; repetitions are alike.

    What stands in several chains is played once, before what those do not share, so that this can run side
    by side; where a chain comes to it from elsewhere, it goes on without it. What ends all ends the stage.
    """
    chains = [[demand for demand in chain if demand.amount > 0] for chain in segment.chains]
    joined = _common_end(chains)
    parted, end = [chain[: len(chain) - joined] for chain in chains], chains[0][len(chains[0]) - joined :]
    shared = Counter(id(demand) for chain in parted for demand in chain)
    order = {each: place for place, (each, _) in enumerate(shared.most_common())}
    parted = [sorted(chain, key=lambda demand: order[id(demand)]) for chain in parted]

    def works(count: int) -> Sequence[Work]:
        found, placed, ends = Works(), dict[int, tuple[int, int]](), list[int]()
        for chain in parted:
            last = -1
            for demand in chain:
                if id(demand) not in placed:
                    placed[id(demand)] = found.add(segment.name, *demand, (last,)), last
                place, after = placed[id(demand)]
                last = place if after == last else last
            ends.append(last)
        for demand in end:
            ends = [found.add(segment.name, *demand, ends)]
        return found.all

    return works


def _common_end(chains: Sequence[Sequence[Demand]]) -> int:
    """How many demands at the end of all chains are the same."""
    alike = (len({id(demand) for demand in row}) == 1 for row in zip(*map(reversed, chains), strict=False))
    return sum(1 for _ in takewhile(bool, alike))
