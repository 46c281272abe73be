"""What a little more of each thing that can be bought saves, each one solved again and ranked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import isfinite
from typing import NamedTuple

from ziplan.errors import BadInput
from ziplan.estimate import Estimate
from ziplan.solve.changes import drives, links_crossed, with_node, with_tier
from ziplan.solve.enumerate import (
    DOES_NOT_FIT,
    best_elsewhere,
    evaluated,
    free_batch,
    solved,
    surveyed,
)
from ziplan.solve.problem import Problem
from ziplan.units import show

MORE_MEMORY = 256e9
"""Bytes of host memory that are added to a node at a time: a few modules."""


class Relief(NamedTuple):
    """One purchase: its path, from, to, and what it saves.

    `what` says it in words. `saved` are seconds for the tokens of a step (below 0: lost), `share` is their
    part of the step.
    """

    what: str
    path: str
    before: str
    after: str
    saved: float
    share: float


def reliefs(problem: Problem, best: Estimate) -> tuple[Relief, ...]:
    """One more drive per node, more memory, a link twice as fast, one more node; most saved first.

    Compared at the accumulation steps of `best`, its tokens per step. Nothing is told of a plan that does
    not fit or has no known time: `changes` says what would make it fit.
    """
    if best.verdict not in ("fits", "tight") or not isfinite(best.step_time):
        return ()
    steps = best.plan.accumulation_steps if free_batch(problem.workload) else None
    survey = surveyed(problem, problem.allow_tiling)
    # At the same steps the best placement may be another one, so that is what purchases are held against.
    as_it_is = best_elsewhere(problem, survey, steps)[1]
    found = [
        _relief(best, as_it_is, purchase, best_elsewhere(purchase.problem, survey, steps))
        for purchase in _on_each_node(problem, best)
    ]
    found += [
        _relief(best, as_it_is, purchase, _solved(purchase.problem, steps))
        for purchase in _one_more_node(problem)
    ]
    return tuple(sorted((each for each in found if each), key=lambda each: (-each.saved, each.path)))


class _Purchase(NamedTuple):
    what: str
    path: str
    before: str
    after: str
    problem: Problem


def _relief(
    best: Estimate, as_it_is: float, purchase: _Purchase, solution: tuple[int, float]
) -> Relief | None:
    rank, time_per_token = solution
    if rank == DOES_NOT_FIT or not isfinite(time_per_token):
        return None
    share = 1 - time_per_token / as_it_is
    return Relief(*purchase[:-1], share * best.step_time, share)


def _on_each_node(problem: Problem, best: Estimate) -> Iterator[_Purchase]:
    node = problem.cluster.node
    for name, tier in node.tiers.items():
        if tier.scope == "node" and tier.drive is not None and tier.drive_count:
            path, before, after, update = drives(name, tier, tier.drive_count + 1)
            yield _Purchase(
                "one more drive per node", path, before, after, with_tier(problem, name, **update)
            )
        elif tier.scope == "node":
            more = tier.capacity + MORE_MEMORY
            yield _Purchase(
                f"{show(MORE_MEMORY, 'B')} more {name} per node",
                f"tiers.{name}.capacity",
                show(tier.capacity, "B"),
                show(more, "B"),
                with_tier(problem, name, capacity=more),
            )
    for name in links_crossed(problem, best):
        link = node.links[name]
        faster = {**node.links, name: link.model_copy(update={"bandwidth": 2 * link.bandwidth})}
        yield _Purchase(
            f"{name} twice as fast",
            f"links.{name}.bandwidth",
            show(link.bandwidth, "B/s"),
            show(2 * link.bandwidth, "B/s"),
            with_node(problem, links=faster),
        )


def _one_more_node(problem: Problem) -> Iterator[_Purchase]:
    cluster = problem.cluster
    if cluster.node.network is None:
        return
    nodes = cluster.nodes + 1
    larger = replace(problem, cluster=replace(cluster, nodes=nodes))
    yield _Purchase("one more node", "nodes", str(cluster.nodes), str(nodes), larger)


def _solved(problem: Problem, steps: float | None) -> tuple[int, float]:
    """How the best plan fits and its seconds per token; a batch that does not split has none."""
    if steps is not None:
        problem = replace(problem, fixed={**problem.fixed, "accumulation_steps": steps})
    try:
        grid, found = solved(problem, problem.allow_tiling)
    except BadInput:
        return DOES_NOT_FIT, 0.0
    return found[0].rank, evaluated(problem, grid, found[0], record=False).time_per_token
