"""Exact search by enumeration: the whole grid is evaluated, and the best of each placement kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from ziplan.estimate import Estimate, elsewhere, estimate
from ziplan.runtimes.runtime import Axis
from ziplan.solve.batches import batch_axis
from ziplan.solve.grid import CHUNK, Grid
from ziplan.solve.problem import Problem
from ziplan.workload.training import Workload

KNEE = 1.05
"""Where the batch is the solver's choice, fewer accumulation steps are taken at up to this factor in cost."""

WEAR_WEIGHT = 1e6
"""Seconds that a byte written to flash counts for: enough that time decides among equal wear only."""

FITS, TIGHT, UNLIKELY, DOES_NOT_FIT = 0, 1, 10, 100
"""How a plan fits: surely; likely, the middle of what may be needed being there on every tier; at best; not.

Of those that are likely to, one that is tight on more tiers than one ranks that much below. Of the others
their number tells little: one tier that may lack half as much again is worse than two that may a hundredth.
"""

WORTH_OFFLOADING = 1.02
"""Factor by which moving more off the GPU must win: less is simpler, and the difference within the error."""

ALIKE = 1.002
"""Factor within which a plan that reads ahead costs the same as the one that does not and is equal otherwise:
no printed step time tells them apart."""

MAYBE = 1e-3
"""What a share of a tier that may be lacking counts for, beside one that surely is."""

NO_KNOWN_COST = 1e300
"""What a plan costs whose time nobody can tell: more than any that is known."""


class Candidate(NamedTuple):
    """The best plan of one placement: how it fits, what it costs, where in the grid it stands.

    `cost` is that of the placement's cheapest plan; the plan itself costs `paid`, more where it
    takes fewer accumulation steps.
    """

    rank: int
    cost: float
    place: tuple[int, ...]
    paid: float
    steps: float


class Survey(NamedTuple):
    """A problem's grid, the best plan of each placement, and the estimate of every plan where it is kept.

    `tight` is the best of the plans that are likely to fit and not sure to, `unlikely` of those less likely.
    """

    grid: Grid
    found: list[Candidate]
    estimate: Estimate | None
    tight: Candidate | None = None
    unlikely: Candidate | None = None


def search_grid(problem: Problem, code_changes: bool = False) -> Grid:
    """The search space of a problem."""
    cluster, workload = problem.cluster, problem.workload
    axes = (
        *problem.runtime.axes(cluster, workload, code_changes),
        batch_axis(cluster, workload, problem.ranks),
    )
    pinned = tuple(_pinned(axis, problem.fixed) for axis in axes)
    return Grid(pinned, {"dp_degree": float(problem.ranks)})


def _pinned(axis: Axis, fixed: Mapping[str, Any]) -> Axis:
    """The axis with the fields that are fixed: the choices that agree, or the first one made to."""
    kept = tuple(c for c in axis.choices if all(fixed.get(name, value) == value for name, value in c.items()))
    first = axis.choices[0]
    return Axis(axis.name, kept or ({**first, **{name: fixed[name] for name in first if name in fixed}},))


def best_by_placement(problem: Problem, grid: Grid) -> list[Candidate]:
    """For each placement its best plan, best placement first.

    A plan that surely fits beats one that is likely to, that one on fewer tiers rather than more, which
    beats one that may, which beats one that does not; then the objective decides, among the last what all
    tiers surely lack together, each as a share of what it has, and of those that lack the same what they
    may lack; then the order of the axes, which lists what costs less elsewhere first; then reading ahead
    (`ALIKE`). Where the batch is free, the fewest accumulation steps lead among the plans within `KNEE` of
    the cheapest of all. Of the placements that then cost about the same, the one that moves least off the
    GPU leads.
    """
    rank, cost = _scored(problem, grid)
    return _best_of_each(problem, grid, rank, cost)


def _scored(problem: Problem, grid: Grid) -> tuple[Any, Any]:
    """(how it fits, cost) of every plan of a grid, chunk by chunk."""
    rank = np.empty(grid.shape, dtype=np.int8)
    cost = np.empty(grid.shape)
    for chunk in grid.chunks():
        place = tuple(slice(piece.start, piece.stop) for piece in chunk)
        rank[place], cost[place] = scores(problem, _estimates(problem, grid, chunk))
    return rank, cost


def _best_between(
    problem: Problem, grid: Grid, rank: Any, cost: Any, least: int, below: int
) -> Candidate | None:
    """The best of the plans from one rank on to below another, whatever their rank within; None for none."""
    among = np.where((rank >= least) & (rank < below), least, DOES_NOT_FIT)
    if among.min() == DOES_NOT_FIT:
        return None
    among, cost, steps = (
        np.broadcast_to(each, grid.shape) for each in (among, cost, grid.plans().accumulation_steps)
    )
    limit = KNEE * float(cost[among == least].min()) if free_batch(problem.workload) else None
    return _reading_ahead(grid, among, cost, _best(among, cost, steps, limit))


def _best_of_each(problem: Problem, grid: Grid, rank: Any, cost: Any) -> list[Candidate]:
    """The best plan of each placement, given how each plan of the grid fits and what it costs."""
    rank, cost, steps = (
        np.broadcast_to(each, grid.shape) for each in (rank, cost, grid.plans().accumulation_steps)
    )
    best_rank = rank.min()
    free = free_batch(problem.workload) and best_rank != DOES_NOT_FIT
    # What a plan may cost for having fewer accumulation steps; nothing where the batch is given.
    limit = KNEE * float(cost[rank == best_rank].min()) if free else None
    found = []
    for placement in range(grid.shape[0]):
        best = _best(rank[placement], cost[placement], steps[placement], limit)
        best = best._replace(place=(placement, *best.place))
        found.append(_reading_ahead(grid, rank, cost, best))
    return _least_offloaded_first(sorted(found, key=lambda c: (c.rank, c.paid, c.place)), limit)


def _least_offloaded_first(found: list[Candidate], limit: float | None) -> list[Candidate]:
    """Placements are listed with the least offloaded first, so the earliest of those that tie leads."""
    if found[0].rank == DOES_NOT_FIT:
        return found
    ties = [c for c in found if c.rank == found[0].rank]
    if limit is not None:
        near = [c for c in ties if c.paid <= limit]
        fewest = min(c.steps for c in near)
        ties = [c for c in near if c.steps == fewest]
    cheapest = min(c.paid for c in ties)
    lead = min((c for c in ties if c.paid <= WORTH_OFFLOADING * cheapest), key=lambda c: c.place)
    return [lead, *(c for c in found if c is not lead)]


def scores(problem: Problem, answer: Estimate) -> tuple[Any, Any]:
    """(how it fits, cost) of every plan that an estimate is of."""
    short = cast(Any, sum(1 * (tier.high > tier.available) for tier in answer.memory.values()))
    tight = np.where(answer.likely_fits, TIGHT - 1 + short, UNLIKELY)
    rank = np.where(answer.fits, FITS, np.where(answer.may_fit, tight, DOES_NOT_FIT))
    cost: Any = objective(problem, answer)
    known = np.where(np.isnan(cost), NO_KNOWN_COST, cost)
    # Nearest to fitting is what surely lacks least, and of plans that lack the same what may lack least.
    lacking = answer.overflow + MAYBE * answer.likely_overflow
    return rank, np.where(rank == DOES_NOT_FIT, lacking, known)


def least_capacity(problem: Problem, survey: Survey, tier: str) -> float:
    """The least capacity of one tier with which some plan surely fits; infinite where no capacity helps."""
    least = np.inf
    for answer in _every_estimate(problem, survey):
        memory = answer.memory
        others: Any = True
        for name, other in memory.items():
            if name != tier:
                others = others & (other.high <= other.available)
        needed = memory[tier].high * (memory[tier].capacity / memory[tier].available)
        least = min(least, float(np.min(np.where(others, needed, np.inf))))
    return least


def _every_estimate(problem: Problem, survey: Survey) -> Iterator[Estimate]:
    if survey.estimate is not None:
        yield survey.estimate
    else:
        yield from (_estimates(problem, survey.grid, chunk) for chunk in survey.grid.chunks())


def _estimates(problem: Problem, grid: Grid, chunk: Sequence[Sequence[int]]) -> Estimate:
    plans = problem.runtime.settle(problem.cluster, problem.workload, grid.plans(chunk))
    return estimate(problem.cluster, problem.workload, problem.runtime, plans, record=False)


def objective(problem: Problem, answer: Estimate) -> float:
    """What is minimised: seconds per token, or bytes written to flash per token (then seconds)."""
    if problem.objective == "wear":
        return answer.flash_writes / answer.tokens_per_step * WEAR_WEIGHT + answer.time_per_token
    return answer.time_per_token


def free_batch(workload: Workload) -> bool:
    """Whether the tokens of a step are the solver's choice."""
    training = workload.training
    return training.global_batch_size is None and training.accumulation_steps is None


def _best(rank: Any, cost: Any, steps: Any, limit: float | None) -> Candidate:
    """The best plan of a placement; a cost may be infinite, where a rate is not known.

    With a `limit` on what it may cost, its fewest accumulation steps; a placement that is
    dearer anyway is held to its own cheapest.
    """
    among = np.flatnonzero(rank == rank.min())
    costs = cost.flat[among]
    least = float(costs.min())
    if limit is not None and rank.min() != DOES_NOT_FIT:
        near = costs <= (limit if least <= limit else KNEE * least)
        among, costs = among[near], costs[near]
        counts = steps.flat[among]
        fewest = counts == counts.min()
        among, costs = among[fewest], costs[fewest]
    chosen = int(costs.argmin())
    place = np.unravel_index(int(among[chosen]), rank.shape)
    where_it_stands = tuple(int(index) for index in place)
    fewest_steps = float(steps.flat[among[chosen]])
    return Candidate(int(rank.min()), least, where_it_stands, float(costs[chosen]), fewest_steps)


def _reading_ahead(grid: Grid, rank: Any, cost: Any, best: Candidate) -> Candidate:
    """The same plan with a layer read ahead, where that fits as well and costs the same."""
    for number, axis in enumerate(grid.axes):
        if axis.name == "prefetch" and best.place[number] and best.rank != DOES_NOT_FIT:
            place = (*best.place[:number], 0, *best.place[number + 1 :])
            paid = float(cost[place])
            if int(rank[place]) == best.rank and paid <= ALIKE * best.paid:
                return best._replace(place=place, paid=paid)
    return best


def surveyed(problem: Problem, code_changes: bool = False) -> Survey:
    """A problem's whole grid; its estimate is kept where it is small."""
    grid = search_grid(problem, code_changes)
    answer = None
    if grid.size > CHUNK:
        rank, cost = _scored(problem, grid)
    else:
        (whole,) = grid.chunks()
        answer = _estimates(problem, grid, whole)
        rank, cost = scores(problem, answer)
    return Survey(
        grid,
        _best_of_each(problem, grid, rank, cost),
        answer,
        tight=_best_between(problem, grid, rank, cost, TIGHT, UNLIKELY),
        unlikely=_best_between(problem, grid, rank, cost, UNLIKELY, DOES_NOT_FIT),
    )


def _survey(problem: Problem, grid: Grid, answer: Estimate, steps: float | None = None) -> Survey:
    """Every plan of a grid; with `steps`, those with as many accumulation steps count alone."""
    rank, cost = scores(problem, answer)
    if steps is not None:
        rank = np.where(answer.plan.accumulation_steps == steps, rank, DOES_NOT_FIT)
    return Survey(grid, _best_of_each(problem, grid, rank, cost), answer)


def solved(problem: Problem, code_changes: bool = False) -> tuple[Grid, list[Candidate]]:
    """A problem's grid and the best plan of each placement."""
    survey = surveyed(problem, code_changes)
    return survey.grid, survey.found


def best_elsewhere(problem: Problem, survey: Survey, steps: float | None = None) -> tuple[int, float]:
    """(how it fits, seconds per token) of the best plan, with `steps` of those of as many accumulation steps.

    The problem differs from the one that was surveyed only in what the links and the nodes' tiers of its
    machine carry and hold.
    """
    if survey.estimate is not None:
        answer = elsewhere(survey.estimate, problem.cluster, problem.runtime)
        lead = _survey(problem, survey.grid, answer, steps).found[0]
        return lead.rank, float(np.broadcast_to(answer.time_per_token, survey.grid.shape)[lead.place])
    if steps is not None:
        problem = replace(problem, fixed={**problem.fixed, "accumulation_steps": steps})
    grid, found = solved(problem, problem.allow_tiling)
    return found[0].rank, evaluated(problem, grid, found[0], record=False).time_per_token


def evaluated(problem: Problem, grid: Grid, candidate: Candidate, record: bool = True) -> Estimate:
    """The estimate of a candidate, with its derivation unless only numbers are wanted."""
    plan = problem.runtime.settle(problem.cluster, problem.workload, grid.plan(candidate.place))
    return estimate(problem.cluster, problem.workload, problem.runtime, plan, record)
