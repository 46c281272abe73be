"""Exact search by enumeration: the whole grid is evaluated, and the best of each placement kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ziplan.estimate import Estimate, estimate
from ziplan.runtimes.runtime import Axis
from ziplan.solve.batches import batch_axes
from ziplan.solve.grid import Grid
from ziplan.solve.problem import Problem
from ziplan.workload.training import Workload

KNEE = 1.05
"""Where the batch is the solver's choice, fewer accumulation steps are taken at up to this factor in cost."""

FITS, TIGHT, DOES_NOT_FIT = 0, 1, 2


@dataclass(frozen=True)
class Candidate:
    """The best plan of one placement: how it fits, what it costs, where in the grid it stands."""

    rank: int
    cost: float
    place: tuple[int, ...]


def search_grid(problem: Problem, code_changes: bool = False) -> Grid:
    """The search space of a problem."""
    cluster, workload = problem.cluster, problem.workload
    dp_degree = cluster.gpu_count
    axes = (
        *problem.runtime.axes(cluster, workload, code_changes),
        *batch_axes(cluster, workload, dp_degree),
    )
    pinned = tuple(_pinned(axis, problem.fixed) for axis in axes)
    return Grid(pinned, {"dp_degree": float(dp_degree)})


def _pinned(axis: Axis, fixed: Mapping[str, Any]) -> Axis:
    """The axis with the fields that are fixed: the choices that agree, or the first one made to."""
    kept = tuple(c for c in axis.choices if all(fixed.get(name, value) == value for name, value in c.items()))
    first = axis.choices[0]
    return Axis(axis.name, kept or ({**first, **{name: fixed[name] for name in first if name in fixed}},))


def best_by_placement(problem: Problem, grid: Grid) -> list[Candidate]:
    """For each placement its best plan, best placement first.

    A plan that surely fits beats one that may, which beats one that does not; then the
    objective decides, among the last the least lacking share of a tier; then the order of
    the axes, which lists what costs less elsewhere first.
    """
    best: dict[int, Candidate] = {}
    for chunk in grid.chunks():
        rank, cost, steps = scores(problem, grid, chunk)
        for row, placement in enumerate(chunk[0]):
            found = _best(rank[row], cost[row], steps[row], _free_batch(problem.workload))
            place = (placement, *(axis[i] for axis, i in zip(chunk[1:], found.place, strict=True)))
            candidate = Candidate(found.rank, found.cost, place)
            known = best.get(placement)
            if known is None or (candidate.rank, candidate.cost) < (known.rank, known.cost):
                best[placement] = candidate
    return sorted(best.values(), key=lambda c: (c.rank, c.cost, c.place))


def scores(problem: Problem, grid: Grid, chunk: Sequence[Sequence[int]]) -> tuple[Any, Any, Any]:
    """(how it fits, cost, accumulation steps) of every plan of a chunk."""
    plans = problem.runtime.settle(problem.cluster, problem.workload, grid.plans(chunk))
    answer = estimate(problem.cluster, problem.workload, problem.runtime, plans, record=False)
    shape = tuple(len(piece) for piece in chunk)
    rank = np.where(answer.fits, FITS, np.where(answer.may_fit, TIGHT, DOES_NOT_FIT))
    cost = np.where(rank == DOES_NOT_FIT, answer.overflow, objective(problem, answer))
    return (
        np.broadcast_to(rank, shape),
        np.broadcast_to(cost, shape),
        np.broadcast_to(plans.accumulation_steps, shape),
    )


def objective(problem: Problem, answer: Estimate) -> float:
    """What is minimised: seconds per token, or bytes written to flash per token (then seconds)."""
    if problem.objective == "wear":
        return answer.flash_writes / answer.tokens_per_step * 1e6 + answer.time_per_token
    return answer.time_per_token


def _free_batch(workload: Workload) -> bool:
    training = workload.training
    return training.global_batch_size is None and training.accumulation_steps is None


def _best(rank: Any, cost: Any, steps: Any, free_batch: bool) -> Candidate:
    least = rank.min()
    among = np.where(rank == least, cost, np.inf)
    place = np.unravel_index(int(among.argmin()), among.shape)
    if free_batch and least != DOES_NOT_FIT:
        near = np.where(among <= KNEE * among[place], steps, np.inf)
        fewest = near.min()
        place = np.unravel_index(int(np.where(near == fewest, among, np.inf).argmin()), among.shape)
    return Candidate(int(least), float(among[place]), tuple(int(i) for i in place))


def evaluated(problem: Problem, grid: Grid, candidate: Candidate) -> Estimate:
    """The full estimate of a candidate."""
    plan = problem.runtime.settle(problem.cluster, problem.workload, grid.plan(candidate.place))
    return estimate(problem.cluster, problem.workload, problem.runtime, plan)
