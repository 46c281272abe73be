"""From a problem to its answer."""

from __future__ import annotations

from dataclasses import replace

from ziplan.estimate import Estimate
from ziplan.solve.baseline import plain_stage3
from ziplan.solve.binding import binding, changes
from ziplan.solve.enumerate import DOES_NOT_FIT, Candidate, best_by_placement, evaluated, search_grid
from ziplan.solve.grid import Grid
from ziplan.solve.problem import Answer, Problem

ALTERNATIVES = 4
"""Runner-up placements that an answer carries."""


def solve(problem: Problem) -> Answer:
    """The best plan of a problem; where nothing fits, the one that lacks least."""
    if problem.objective == "gpus":
        problem = _fewest_nodes(problem)
    grid, found, changed = _search(problem)
    best = evaluated(problem, grid, found[0])
    others = [evaluated(problem, grid, c) for c in found[1:] if c.rank != DOES_NOT_FIT][:ALTERNATIVES]
    offloaded = any(share > 0 and name != _gpu(best) for name, share in _homes(best).items())
    return Answer(
        problem=problem,
        best=best,
        alternatives=tuple(others),
        baseline=plain_stage3(problem, best),
        binding=binding(best),
        changes=changes(problem, best),
        do_not_offload=best.verdict == "fits" and not offloaded,
        plans_evaluated=grid.size,
        space=_space(grid),
        notes=_notes(best, changed),
    )


def _search(problem: Problem) -> tuple[Grid, list[Candidate], bool]:
    """Search without changes to the user's model first, and with them only where nothing else fits."""
    grid = search_grid(problem, code_changes=problem.allow_tiling)
    found = best_by_placement(problem, grid)
    if found[0].rank == DOES_NOT_FIT and not problem.allow_tiling:
        wider = search_grid(problem, code_changes=True)
        again = best_by_placement(problem, wider)
        if again[0].rank != DOES_NOT_FIT:
            return wider, again, True
    return grid, found, problem.allow_tiling


def _fewest_nodes(problem: Problem) -> Problem:
    """The same problem on the fewest nodes that fit; on all of them where none do."""
    for nodes in range(1, problem.cluster.nodes):
        smaller = replace(problem, cluster=replace(problem.cluster, nodes=nodes), objective="time")
        batch = problem.workload.training.global_batch_size
        if batch is not None and batch % smaller.cluster.gpu_count:
            continue
        if _search(smaller)[1][0].rank != DOES_NOT_FIT:
            return replace(smaller, objective="gpus")
    return problem


def _gpu(answer: Estimate) -> str:
    return next(name for name, tier in answer.cluster.node.tiers.items() if tier.scope == "gpu")


def _homes(answer: Estimate) -> dict[str, float]:
    placement = answer.plan.placement
    return {**placement.params, **placement.grads, **placement.optimizer, **placement.checkpoints}


def _space(grid: Grid) -> str:
    axes = " x ".join(f"{len(axis.choices)} {axis.name}" for axis in grid.axes)
    return f"{axes} = {grid.size:,} plans, all evaluated; swap buffers at the fewest that suffice"


def _notes(best: Estimate, changed: bool) -> tuple[str, ...]:
    notes = []
    training = best.workload.training
    if training.global_batch_size is None and training.accumulation_steps is None:
        sequences = int(best.plan.micro_batch_size * best.plan.accumulation_steps * best.plan.dp_degree)
        notes.append(
            f"global batch of {sequences} sequences chosen by the solver: the fewest accumulation steps "
            "within 5 % of the best throughput, at most 4,194,304 tokens a step"
        )
    if changed and best.plan.tile_count > 1:
        notes.append(f"needs a change in the model: the widest linears in {int(best.plan.tile_count)} tiles")
    if changed and any(best.plan.placement.checkpoints.get(n, 0) > 0 for n in best.memory if n != _gpu(best)):
        notes.append(
            "needs a change in the model: layers checkpointed by deepspeed.checkpointing, kept on the host"
        )
    return tuple(notes)
