"""What limits an answer: a tier's capacity, or the resource that the step waits for longest."""

from __future__ import annotations

from itertools import accumulate
from math import isnan

from ziplan.estimate import Estimate
from ziplan.hardware.processors import THREADS
from ziplan.runtimes.runtime import bare
from ziplan.solve.problem import Binding


def binding(best: Estimate) -> Binding:
    """The tier that lacks most, or the resource that the step waits for longest, if that is known."""
    if best.verdict == "does_not_fit":
        worst = max(best.memory, key=lambda name: best.memory[name].low / best.memory[name].available)
        phases = best.memory[worst].phases
        return Binding("capacity", worst, max(phases, key=lambda name: phases[name][0]))
    if isnan(best.step_time):
        return Binding("time", "", f"unknown without {' and '.join(best.unknown)}")
    resource, terms = longest_wait(best)
    few = resource == "cpu_optimizer" and few_threads(best)
    return Binding("time", resource, THREADS if few else " and ".join(terms))


def few_threads(best: Estimate) -> bool:
    """Whether the CPU optimizer would be faster with more threads."""
    return any(each.name == THREADS for each in best.assumptions)


def longest_wait(best: Estimate) -> tuple[str, tuple[str, ...]]:
    """(resource, terms): what the step waits for longest, and the terms that do.

    The terms are the longest of that resource, as many as together outweigh every other one of the step.
    """
    resources = _resources(best)
    waits: dict[str, dict[str, float]] = {}
    for term, seconds in best.terms.items():
        waits.setdefault(bare(resources[term]), {})[term] = seconds
    longest = max(waits.values(), key=lambda terms: sum(terms.values()))
    terms = sorted(longest, key=lambda term: -longest[term])
    others = max((time for term, time in best.terms.items() if term not in longest), default=0.0)
    too_few = sum(together < others for together in accumulate(longest[term] for term in terms))
    return resources[terms[0]], tuple(terms[: too_few + 1])


def _resources(best: Estimate) -> dict[str, str]:
    """The resource of each term; of several, as bytes one way and the other, the one with most work."""
    work: dict[str, dict[str, float]] = {}
    for segment in best.segments:
        once = {id(demand): demand for chain in segment.chains for demand in chain}
        for demand in once.values():
            of_term = work.setdefault(demand.term, {})
            of_term[demand.resource] = of_term.get(demand.resource, 0.0) + segment.repeats * demand.amount
    return {term: max(amounts, key=lambda resource: amounts[resource]) for term, amounts in work.items()}
