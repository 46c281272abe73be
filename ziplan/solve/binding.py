"""What limits an answer: a tier's capacity, or the resource that the step waits for longest."""

from __future__ import annotations

from math import isnan

from ziplan.estimate import Estimate
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
    return Binding("time", resource, term)


def longest_wait(best: Estimate) -> tuple[str, str]:
    """(resource, term) of the term that the step spends most of its time on."""
    term = max(best.terms, key=lambda name: best.terms[name])
    demands = (demand for segment in best.segments for chain in segment.chains for demand in chain)
    return next(demand.resource for demand in demands if demand.term == term), term
