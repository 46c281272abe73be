"""Whether fewer GPUs than there are take less time for the same global batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import isfinite
from typing import NamedTuple

from ziplan.estimate import Estimate
from ziplan.hardware.rates import ARITHMETIC, COUNTED
from ziplan.plan import Checkpointing
from ziplan.solve.batches import splits
from ziplan.solve.changes import WORTH_SAYING
from ziplan.solve.enumerate import DOES_NOT_FIT, FITS, evaluated, solved
from ziplan.solve.problem import Problem

NEEDED = 2 / 3
"""The least share of a step's FLOPs that every plan for its tokens computes, where layers are recomputed.

Forward, and backward for inputs alone: two of three passes, where weights are frozen, else three of four.
"""


class Size(NamedTuple):
    """A number of nodes, of the only one of which no more than `ranks` GPUs may be at work."""

    nodes: int
    ranks: int = 0

    def of(self, problem: Problem) -> Problem:
        """The problem on so many."""
        fixed = {**problem.fixed, "dp_degree": float(self.ranks)} if self.ranks else problem.fixed
        return replace(problem, cluster=replace(problem.cluster, nodes=self.nodes), fixed=fixed)


def faster_on_fewer(problem: Problem, best: Estimate) -> Estimate | None:
    """The fastest plan on 1, 2, 4, ... nodes or GPUs of one node, where it beats the one on all of them.

    Each takes the global batch of `best`, so that steps compare, and fits as surely. None where `time` is
    not the objective: the others choose their GPUs themselves.
    """
    pinned = problem.objective != "time" or "dp_degree" in problem.fixed
    if pinned or best.verdict not in ("fits", "tight") or not isfinite(best.step_time):
        return None
    least = FITS if best.verdict == "fits" else DOES_NOT_FIT - 1
    found: Estimate | None = None
    for smaller in _smaller(problem, best):
        if _least_step_time(best, smaller.ranks) >= best.step_time:
            break
        grid, candidates = solved(smaller, smaller.allow_tiling)
        limit = found.time_per_token if found else (1 - WORTH_SAYING) * best.time_per_token
        if candidates[0].rank <= least and candidates[0].paid < limit:
            found = evaluated(smaller, grid, candidates[0])
    return found


def _smaller(problem: Problem, best: Estimate) -> Iterator[Problem]:
    """The problem on fewer GPUs with the global batch of a plan, where it splits over them; most first."""
    node, nodes = problem.cluster.node, problem.cluster.nodes
    batch = round(best.tokens_per_step / problem.workload.training.sequence_length)
    asked = {"global_batch_size": batch, "accumulation_steps": None}
    workload = replace(problem.workload, training=problem.workload.training.model_copy(update=asked))
    sizes = [Size(count) for count in _powers_below(nodes)]
    sizes += [Size(1, count) for count in _powers_below(node.gpus_per_node)]
    for size in sizes:
        ranks = size.ranks or size.nodes * node.gpus_per_node
        micro = problem.workload.training.micro_batch_size or 1
        if splits(batch, ranks * micro):
            yield size.of(replace(problem, workload=workload))


def _powers_below(number: int) -> list[int]:
    """The powers of two below a number, largest first."""
    return [2**power for power in reversed(range((number - 1).bit_length()))]


def _least_step_time(best: Estimate, ranks: int) -> float:
    """Seconds that no plan for the tokens of `best` stays below on so many GPUs: what it must compute."""
    precision, node = best.workload.precision, best.cluster.node
    recomputed = best.plan.activation_checkpointing != Checkpointing.NONE
    flops = best.hardware_flops * (NEEDED if recomputed else 1.0)
    return flops / (ranks * max(ARITHMETIC[kind](node, precision).value for kind in COUNTED))
