"""The search done the slow way: one plan at a time, and the rule of the best plan applied by hand."""

from __future__ import annotations

from itertools import product

from ziplan.estimate import estimate
from ziplan.solve.enumerate import search_grid
from ziplan.solve.problem import Problem

FITS, TIGHT, LACKS = range(3)


def one_by_one(problem: Problem, code_changes=False):
    """Every place of the grid with its estimate."""
    grid = search_grid(problem, code_changes)
    for place in product(*(range(length) for length in grid.shape)):
        plan = problem.runtime.settle(problem.cluster, problem.workload, grid.plan(place))
        yield place, estimate(problem.cluster, problem.workload, problem.runtime, plan, record=False)


def rank(answer):
    return {"fits": FITS, "tight": TIGHT, "does_not_fit": LACKS}[answer.verdict]


def cost(problem, answer):
    if rank(answer) == LACKS:
        return max(max(0.0, tier.low / tier.available - 1) for tier in answer.memory.values())
    seconds = answer.step_time / answer.tokens_per_step
    if problem.objective == "wear":
        return 1e6 * answer.flash_writes / answer.tokens_per_step + seconds
    return seconds


def best_of_each_placement(problem: Problem, plans):
    """(rank, cost of the cheapest plan, place of the plan picked) of each placement, best first.

    Placements within 2 % of the cheapest count as equal, and then the first listed leads.
    """
    training = problem.workload.training
    free = training.global_batch_size is None and training.accumulation_steps is None
    by_placement = {}
    for place, answer in plans:
        entry = (rank(answer), cost(problem, answer), place, answer.plan.accumulation_steps)
        by_placement.setdefault(place[0], []).append(entry)
    best = []
    for entries in by_placement.values():
        least = min(entry[0] for entry in entries)
        entries = [entry for entry in entries if entry[0] == least]
        cheapest = min(entry[1] for entry in entries)
        if free and least != LACKS:
            near = [entry for entry in entries if entry[1] <= 1.05 * cheapest]
            fewest = min(entry[3] for entry in near)
            entries = [entry for entry in near if entry[3] == fewest]
        best.append((least, cheapest, min(entry[:3] for entry in entries)[2]))
    best.sort()
    if best[0][0] != LACKS:
        near = [one for one in best if one[0] == best[0][0] and one[1] <= 1.02 * best[0][1]]
        lead = min(near, key=lambda one: one[2])
        best.remove(lead)
        best.insert(0, lead)
    return best
