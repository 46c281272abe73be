"""What limits an answer: a tier's capacity, or the resource that the step waits for longest."""

from __future__ import annotations

from math import isnan

from ziplan.estimate import Estimate
from ziplan.hardware.processors import THREADS
from ziplan.solve.problem import Binding


def binding(best: Estimate) -> Binding:
    """The tier that lacks most, or the term that the step spends most of its time on, if that is known."""
    if best.verdict == "does_not_fit":
        worst = max(best.memory, key=lambda name: best.memory[name].low / best.memory[name].available)
        phases = best.memory[worst].phases
        return Binding("capacity", worst, max(phases, key=lambda name: phases[name][0]))
    if isnan(best.step_time):
        return Binding("time", "", f"unknown without {' and '.join(best.unknown)}")
    resource, term = longest_wait(best)
    return Binding("time", resource, THREADS if resource == "cpu_optimizer" and few_threads(best) else term)


def few_threads(best: Estimate) -> bool:
    """Whether the CPU optimizer would be faster with more threads."""
    return any(each.name == THREADS for each in best.assumptions)


def longest_wait(best: Estimate) -> tuple[str, str]:
    """(resource, term) of the term that the step spends most of its time on.

    Where a term is work of several resources, as bytes one way and the other, it is the one with most.
    """
    term = max(best.terms, key=lambda name: best.terms[name])
    work: dict[str, float] = {}
    for segment in best.segments:
        once = {id(demand): demand for chain in segment.chains for demand in chain}
        for demand in once.values():
            if demand.term == term:
                work[demand.resource] = work.get(demand.resource, 0.0) + segment.repeats * demand.amount
    return max(work, key=lambda resource: work[resource]), term
