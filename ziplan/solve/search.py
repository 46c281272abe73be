"""From a problem to its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isnan

from ziplan.estimate import Estimate
from ziplan.plan import Plan
from ziplan.runtimes.runtime import COLLECTIVE
from ziplan.solve.baseline import plain_stage3
from ziplan.solve.batches import MOST_TOKENS_PER_STEP, splits
from ziplan.solve.binding import binding
from ziplan.solve.changes import changes
from ziplan.solve.enumerate import (
    DOES_NOT_FIT,
    FITS,
    KNEE,
    TIGHT,
    UNLIKELY,
    Candidate,
    Survey,
    evaluated,
    free_batch,
    solved,
    surveyed,
)
from ziplan.solve.fewer import Size, faster_on_fewer
from ziplan.solve.grid import Grid
from ziplan.solve.problem import Answer, Problem
from ziplan.units import counted
from ziplan.workload.training import Workload

ALTERNATIVES = 4
"""Runner-up placements that an answer carries."""

EACH = 64
"""Sizes of a cluster that are all solved for the objective, from the smallest on."""

TO_THE_DOUBLE = 16
"""Sizes beyond those that are solved until there are twice as many: the best of them is within a 16th."""

MANY_RANKS = 512
"""Ranks from which on it is said where the latency of collectives is left out: a ring passes them all, which
takes a ms and more (`ziplan.hardware.collectives`), for each of a step's hundreds."""

WORTH_A_TRY = 1.1
"""Factor by which a plan that is likely to fit must beat the one that surely does to be told of."""

WORTH_THE_RISK = 2.0
"""The same of a plan that is more likely not to fit: it runs less than every other time, and must do twice as
much where it does."""


def solve(problem: Problem, alternatives: int = ALTERNATIVES) -> Answer:
    """The best plan of a problem; where nothing fits, the one that lacks least.

    `alternatives` is how many runner-up placements are worked out beside it. Fewest GPUs and
    cheapest tokens are also a choice of the number of nodes, fewest GPUs of those of one node too.
    """
    there = problem.cluster.gpu_count
    if problem.objective in ("gpus", "cost"):
        problem = _on_fewer(problem)
    survey, changed, asked = _search(problem)
    grid, found = survey.grid, survey.found
    best = evaluated(problem, grid, found[0])
    others = _by_verdict(found[1:])[:alternatives]
    return Answer(
        problem=problem,
        best=best,
        alternatives=tuple(evaluated(problem, grid, candidate) for candidate in others),
        baseline=plain_stage3(problem, best),
        binding=binding(best),
        changes=changes(problem, best, asked),
        do_not_offload=best.verdict == "fits" and not _off_gpu(best),
        plans_evaluated=grid.size,
        space=_space(grid),
        gpus_there=there,
        notes=(*_notes(best, changed), *_of_the_runtime(problem, best)),
        faster_if_it_fits=_faster_if_it_fits(problem, survey),
        faster_on_fewer=faster_on_fewer(problem, best),
    )


def _by_verdict(found: Sequence[Candidate]) -> list[Candidate]:
    """Those that surely fit, then those that may, on however many tiers; by the objective within."""
    there = [c for c in found if c.rank != DOES_NOT_FIT]
    return sorted(there, key=lambda c: (min(c.rank, TIGHT), c.paid, c.place))


def _faster_if_it_fits(problem: Problem, survey: Survey) -> Estimate | None:
    """The best plan that may fit, where it beats the lead by enough to be tried.

    The lead surely fits, or is likely to and tight on fewer tiers. Plans that are likely to fit come first.
    """
    lead = survey.found[0]
    if problem.objective == "wear" or lead.rank >= UNLIKELY:
        return None
    for found, worth in ((survey.tight, WORTH_A_TRY), (survey.unlikely, WORTH_THE_RISK)):
        if found is not None and lead.paid > worth * found.paid:
            return evaluated(problem, survey.grid, found)
    return None


def best_plan(problem: Problem) -> Estimate:
    """The estimate that `solve` would answer with, without what it works out beside it."""
    if problem.objective in ("gpus", "cost"):
        problem = _on_fewer(problem)
    survey = _search(problem)[0]
    return evaluated(problem, survey.grid, survey.found[0])


def _search(problem: Problem) -> tuple[Survey, bool, Survey]:
    """Search without changes to the user's model first, and with them only where nothing else fits.

    The survey that answers, whether it has such changes, and the survey of what was asked.
    """
    asked = surveyed(problem, code_changes=problem.allow_tiling)
    if asked.found[0].rank == DOES_NOT_FIT and not problem.allow_tiling:
        wider = surveyed(problem, code_changes=True)
        if wider.found[0].rank != DOES_NOT_FIT:
            return wider, True, asked
    return asked, problem.allow_tiling, asked


def _on_fewer(problem: Problem) -> Problem:
    """The same problem on the GPUs that serve its objective best; on all of them where nothing fits.

    GPUs with a plan that surely fits come before those where a plan may fit; then the fewest, or
    those with the least node time per token: a node's price only scales it.
    """
    for code_changes in (True,) if problem.allow_tiling else (False, True):
        rank, smaller = _best_of_fewer(problem, code_changes)
        if rank != DOES_NOT_FIT:
            return smaller
    return problem


def _best_of_fewer(problem: Problem, code_changes: bool) -> tuple[int, Problem]:
    """How it fits on the GPUs that serve the objective best, and the problem on those."""
    sizes = _sizes(problem)
    found: list[tuple[int, float, Problem]] = []
    tried = 0
    for place in _tried(len(sizes)):
        found.append(_paid(problem, sizes[place], code_changes))
        if problem.objective == "gpus" and found[-1][0] == FITS:
            return FITS, _fewest(problem, sizes[tried : place + 1], code_changes)
        tried = place + 1
    rank, _, smaller = min(found, key=lambda each: each[:2])
    return rank, smaller


def _paid(problem: Problem, size: Size, code_changes: bool) -> tuple[int, float, Problem]:
    """How the best plan on so many GPUs fits, what it pays for the objective, and the problem on those."""
    smaller = size.of(problem)
    best, nodes = solved(smaller, code_changes)[1][0], smaller.cluster.nodes
    paid = nodes * best.paid if problem.objective == "cost" else float(smaller.ranks)
    return best.rank, paid, smaller


def _fewest(problem: Problem, sizes: Sequence[Size], code_changes: bool) -> Problem:
    """The first of some sizes on which a plan surely fits, as the last does: halved until it is found."""
    few, many = -1, len(sizes) - 1
    while many - few > 1:
        middle = (few + many) // 2
        fits = _paid(problem, sizes[middle], code_changes)[0] == FITS
        few, many = (few, middle) if fits else (middle, many)
    return sizes[many].of(problem)


def _tried(count: int) -> Iterator[int]:
    """Places among so many sizes: the first ones all, then `TO_THE_DOUBLE` until there are twice as many."""
    place = 0
    while place < count - 1:
        yield place
        place += 1 if place < EACH else max(1, place // TO_THE_DOUBLE)
    yield count - 1


def _sizes(problem: Problem) -> list[Size]:
    """1, 2, ... of the nodes, as far as the batch splits over them; all of them in any case.

    Where GPUs count and not nodes, 1, 2, ... GPUs of one node first.
    """
    batch, node = problem.workload.training.global_batch_size, problem.cluster.node
    of_a_node = range(1, node.gpus_per_node if problem.objective == "gpus" else 1)
    sizes = [Size(1, ranks) for ranks in of_a_node if batch is None or splits(batch, ranks)]
    sizes += [
        Size(nodes)
        for nodes in range(1, problem.cluster.nodes)
        if batch is None or splits(batch, nodes * node.gpus_per_node)
    ]
    return [*sizes, Size(problem.cluster.nodes)]


def _off_gpu(answer: Estimate) -> bool:
    """Whether a plan keeps anything outside GPU memory."""
    gpu, placement = answer.cluster.node.gpu_tier, answer.plan.placement
    homes = (placement.params, placement.grads, placement.optimizer, placement.checkpoints)
    return any(share > 0 for home in homes for name, share in home.items() if name != gpu)


def _space(grid: Grid) -> str:
    axes = " x ".join(f"{len(axis.choices)} {axis.name}" for axis in grid.axes)
    return f"{axes} = {grid.size:,} plans, all evaluated; swap buffers at the fewest that suffice"


def _of_the_runtime(problem: Problem, best: Estimate) -> Sequence[str]:
    """What a runtime that has such notes says of a plan."""
    told: Callable[[Workload, Plan], Sequence[str]] | None = getattr(problem.runtime, "notes", None)
    return told(problem.workload, best.plan) if told else ()


def _counts_hops(best: Estimate) -> bool:
    """Whether a step has the hops of its collectives."""
    chains = (chain for segment in best.segments for chain in segment.chains)
    return any(demand.resource == COLLECTIVE for chain in chains for demand in chain)


def _notes(best: Estimate, changed: bool) -> tuple[str, ...]:
    """What must be said with the answer, most needed first."""
    notes, plan = [*best.workload.model.notes, *best.workload.notes], best.plan
    notes += [f"{each.name}: {note}" for each in best.workload.companions for note in each.model.notes]
    if changed and plan.tile_count > 1:
        notes.append(f"needs a change in the model: the widest linears in {int(plan.tile_count)} tiles")
    if best.gpus >= MANY_RANKS and not _counts_hops(best):
        notes.append(
            f"collectives of {int(best.gpus):,} ranks are timed by their bytes alone: their latency, which "
            "grows with the ranks, is not counted"
        )
    gpu = best.cluster.node.gpu_tier
    if changed and any(share > 0 for name, share in plan.placement.checkpoints.items() if name != gpu):
        notes.append(
            "needs a change in the model: layers checkpointed by deepspeed.checkpointing, kept on the host"
        )
    if free_batch(best.workload):
        sequences = int(plan.micro_batch_size * plan.accumulation_steps * plan.dp_degree)
        why = (
            f"the fewest accumulation steps within {KNEE - 1:.0%} of the best throughput, at most "
            f"{MOST_TOKENS_PER_STEP:,} tokens a step"
        )
        if best.tokens_per_step > MOST_TOKENS_PER_STEP:
            why = "one sequence on each rank, the least that so many ranks take"
        if isnan(best.step_time):
            why = "the fewest accumulation steps, as no throughput is known"
        if best.verdict == "does_not_fit":
            why = "nothing fits, and this lacks least"
        notes.append(f"global batch of {counted(sequences, 'sequence')} chosen by the solver: {why}")
    return tuple(notes)
