"""The search done the slow way: one plan at a time, and the rule of the best plan applied by hand."""

from __future__ import annotations

from itertools import product

from ziplan.estimate import estimate
from ziplan.solve.enumerate import search_grid
from ziplan.solve.problem import Problem

FITS, LACKS = 0, 100


def one_by_one(problem: Problem, code_changes=False):
    """Every place of the grid with its estimate."""
    grid = search_grid(problem, code_changes)
    for place in product(*(range(length) for length in grid.shape)):
        plan = problem.runtime.settle(problem.cluster, problem.workload, grid.plan(place))
        yield place, estimate(problem.cluster, problem.workload, problem.runtime, plan, record=False)


def rank(answer):
    """Of plans that may fit those come first of whose needs the middle is there on every tier.

    Of these, those that are tight on fewer tiers.
    """
    if answer.verdict == "tight":
        likely = all((tier.low + tier.high) / 2 <= tier.available for tier in answer.memory.values())
        short = len([tier for tier in answer.memory.values() if tier.high > tier.available])
        return short if likely else 10
    return {"fits": FITS, "does_not_fit": LACKS}[answer.verdict]


def cost(problem, answer):
    if rank(answer) == LACKS:
        surely = sum(max(0.0, tier.low / tier.available - 1) for tier in answer.memory.values())
        return surely + 1e-3 * sum(
            max(0.0, tier.high / tier.available - 1) for tier in answer.memory.values()
        )
    seconds = answer.step_time / answer.tokens_per_step
    if problem.objective == "wear":
        return 1e6 * answer.flash_writes / answer.tokens_per_step + seconds
    return seconds


def reading_ahead(axes, picked, entries):
    """The same plan, but for what is read ahead, which is a layer: where it costs the same within 0.2 %."""
    if "prefetch" not in axes:
        return picked
    ahead = list(picked[2])
    ahead[axes.index("prefetch")] = 0
    return next((e for e in entries if list(e[2]) == ahead and e[1] <= 1.002 * picked[1]), picked)


def best_of_each_placement(problem: Problem, plans):
    """(rank, cost of the cheapest plan, place of the plan picked) of each placement, best first.

    Where the batch is free, the fewest accumulation steps within 5 % of the cheapest plan of all
    lead; placements within 2 % of each other then count as equal, and the first listed leads.
    """
    axes = [axis.name for axis in search_grid(problem).axes]
    training = problem.workload.training
    free = training.global_batch_size is None and training.accumulation_steps is None
    every = [(rank(a), cost(problem, a), place, a.plan.accumulation_steps) for place, a in plans]
    top = min(entry[0] for entry in every)
    limit = 1.05 * min(entry[1] for entry in every if entry[0] == top) if free and top != LACKS else None
    best = []
    for placement in sorted({entry[2][0] for entry in every}):
        entries = [entry for entry in every if entry[2][0] == placement]
        least = min(entry[0] for entry in entries)
        entries = [entry for entry in entries if entry[0] == least]
        cheapest = min(entry[1] for entry in entries)
        if limit is not None and least != LACKS:
            near = [e for e in entries if e[1] <= (limit if cheapest <= limit else 1.05 * cheapest)]
            fewest = min(entry[3] for entry in near)
            entries = [entry for entry in near if entry[3] == fewest]
        picked = min(entries, key=lambda entry: (entry[1], entry[2]))
        picked = reading_ahead(axes, picked, entries) if least != LACKS else picked
        best.append((least, picked[1], picked[2], picked[3], cheapest))
    best.sort()
    if top != LACKS:
        among = [one for one in best if one[0] == top and (limit is None or one[1] <= limit)]
        if limit is not None:
            fewest = min(one[3] for one in among)
            among = [one for one in among if one[3] == fewest]
        near = [one for one in among if one[1] <= 1.02 * min(one[1] for one in among)]
        lead = min(near, key=lambda one: one[2])
        best.remove(lead)
        best.insert(0, lead)
    return [(least, cheapest, place) for least, _, place, _, cheapest in best]
