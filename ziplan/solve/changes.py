"""Single changes of the inputs that would make a plan fit or a step shorter, each one solved again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, floor, isfinite, log10
from typing import Any

from ziplan.errors import BadInput
from ziplan.estimate import Estimate, estimate
from ziplan.hardware.cluster import Cluster
from ziplan.hardware.node import Tier
from ziplan.solve.binding import few_threads, longest_wait
from ziplan.solve.enumerate import (
    DOES_NOT_FIT,
    FITS,
    Survey,
    best_elsewhere,
    free_batch,
    least_capacity,
    solved,
)
from ziplan.solve.problem import Change, Problem
from ziplan.units import counted, parse, show

MOST_NODES = 1024
"""Nodes beyond which no larger cluster is proposed."""

SHORTEST_SEQUENCE = 256
"""Tokens below which no shorter sequence is proposed."""

WORTH_SAYING = 0.03
"""A change that saves less of the step time than this is not worth a line."""


def changes(problem: Problem, best: Estimate, survey: Survey) -> tuple[Change, ...]:
    """Single changes of the inputs: what would make it surely fit, then what would make it faster.

    `survey` is the problem's own, with the changes of the user's model that were asked for.
    """
    found: list[Change] = []
    if best.verdict in ("does_not_fit", "tight"):
        found += _that_make_it_fit(problem, survey)
    if best.verdict in ("fits", "tight"):
        found += _that_speed_it_up(problem, best, survey)
    return tuple(found)


def _that_make_it_fit(problem: Problem, survey: Survey) -> Iterator[Change]:
    for name, tier in problem.cluster.node.tiers.items():
        if tier.scope == "node":
            yield from _more_capacity(problem, name, tier, survey)
    more = list(_more_nodes(problem))
    yield from more or _fewer_nodes(problem)
    yield from _less_at_once(problem)


def _fits(problem: Problem) -> bool:
    """Whether some plan of a problem surely fits; one that cannot be posed has none."""
    try:
        return solved(problem, problem.allow_tiling)[1][0].rank == FITS
    except BadInput:
        return False


def _more_capacity(problem: Problem, name: str, tier: Tier, survey: Survey) -> Iterator[Change]:
    """The least of one tier with which some plan surely fits, as it would be written down."""
    need = least_capacity(problem, survey, name)
    if not isfinite(need) or need <= tier.capacity:
        return
    if tier.drive is not None and tier.drive_count:
        count = ceil(need / (tier.capacity / tier.drive_count))
        change = drives(name, tier, count)
    else:
        text = show(_rounded_up(need), "B")
        change = (f"tiers.{name}.capacity", show(tier.capacity, "B"), text, {"capacity": parse(text, "B")})
    path, before, after, update = change
    if best_elsewhere(with_tier(problem, name, **update), survey)[0] == FITS:
        yield Change(path, before, after, f"fits with {show(need, 'B')} of {name} per node")


def _rounded_up(amount: float) -> float:
    """The next amount of three significant digits."""
    grain = 10.0 ** (floor(log10(amount)) - 2)
    return ceil(amount / grain) * grain


TierChange = tuple[str, str, str, dict[str, float | None]]
"""Path, before, after, and the fields of the tier that change."""


def drives(name: str, tier: Tier, count: int) -> TierChange:
    """A tier with another number of its drives: what they give together grows with them."""
    factor = count / tier.drive_count
    update: dict[str, float | None] = {"drive_count": count}
    for field in ("capacity", "read_bandwidth", "write_bandwidth"):
        value = getattr(tier, field)
        update[field] = None if value is None else factor * value
    return f"tiers.{name}.drive_count", str(tier.drive_count), str(count), update


def with_node(problem: Problem, **update: Any) -> Problem:
    """The problem with some fields of its nodes replaced."""
    cluster: Cluster = problem.cluster
    return replace(problem, cluster=replace(cluster, node=cluster.node.model_copy(update=update)))


def with_tier(problem: Problem, name: str, **update: float | None) -> Problem:
    """The problem with some fields of one tier replaced."""
    tiers = problem.cluster.node.tiers
    return with_node(problem, tiers={**tiers, name: tiers[name].model_copy(update=update)})


def _with_training(problem: Problem, **update: Any) -> Problem:
    training = problem.workload.training.model_copy(update=update)
    return replace(problem, workload=replace(problem.workload, training=training))


def _more_nodes(problem: Problem) -> Iterator[Change]:
    """The fewest nodes found by doubling, then by halving the last step."""

    def fits(nodes: int) -> bool:
        return _fits(replace(problem, cluster=replace(problem.cluster, nodes=nodes)))

    if problem.cluster.node.network is None:
        return
    now = problem.cluster.nodes
    few, many = now, 2 * now
    while many <= MOST_NODES and not fits(many):
        few, many = many, 2 * many
    if many > MOST_NODES:
        return
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if fits(middle) else (middle, many)
    gpus = counted(many * problem.cluster.node.gpus_per_node, "GPU")
    yield Change("nodes", str(now), str(many), f"fits on {gpus}")


def _fewer_nodes(problem: Problem) -> Iterator[Change]:
    """Half the nodes, a quarter, ...: what pads all that it divides may need less of each of fewer ranks."""
    now = problem.cluster.nodes
    nodes = now // 2
    while nodes and not _fits(replace(problem, cluster=replace(problem.cluster, nodes=nodes))):
        nodes //= 2
    if nodes:
        gpus = counted(nodes * problem.cluster.node.gpus_per_node, "GPU")
        yield Change("nodes", str(now), str(nodes), f"fits on {gpus}")


def _less_at_once(problem: Problem) -> Iterator[Change]:
    """Smaller settings of the training itself, where they were asked for."""
    training = problem.workload.training
    if training.activation_checkpointing not in ("full", "auto"):
        again = _with_training(problem, activation_checkpointing="full")
        if _fits(again):
            asked = training.activation_checkpointing
            yield Change(
                "training.activation_checkpointing", asked, "full", "fits when layers are recomputed"
            )
    for name, least in (("micro_batch_size", 1), ("sequence_length", SHORTEST_SEQUENCE)):
        now: int | None = getattr(training, name)
        smaller = _halved_until_it_fits(problem, name, now, least) if now else None
        if smaller is not None:
            yield Change(f"training.{name}", str(now), str(smaller), f"fits with a {name} of {smaller:,}")


def _halved_until_it_fits(problem: Problem, name: str, now: int, least: int) -> int | None:
    while now // 2 >= least:
        now //= 2
        if _fits(_with_training(problem, **{name: now})):
            return now
    return None


def _that_speed_it_up(problem: Problem, best: Estimate, survey: Survey) -> Iterator[Change]:
    """What twice of an outer tier, or of a link that the longest term crosses, would save."""
    # Compared at the same accumulation, so that what is saved is the change's doing.
    steps = best.plan.accumulation_steps if free_batch(problem.workload) else None
    _, as_it_is = best_elsewhere(problem, survey, steps)
    for path, before, after, changed in _doubled(problem, best):
        rank, time_per_token = best_elsewhere(changed, survey, steps)
        if rank == DOES_NOT_FIT:
            continue
        saved = 1 - time_per_token / as_it_is
        if saved >= WORTH_SAYING:
            yield Change(path, before, after, f"{saved:.0%} less time per token")
    yield from _threads_divided(problem, best)


def _threads_divided(problem: Problem, best: Estimate) -> Iterator[Change]:
    """What the same plan saves with the cores of a node divided among its ranks."""
    if not few_threads(best):
        return
    divided = _with_training(problem, optimizer_threads="bound")
    step = estimate(divided.cluster, divided.workload, divided.runtime, best.plan, record=False)
    saved = 1 - step.step_time / best.step_time
    if saved >= WORTH_SAYING:
        now = str(problem.workload.training.optimizer_threads)
        yield Change("training.optimizer_threads", now, "bound", f"{saved:.0%} less time per token")


def _doubled(problem: Problem, best: Estimate) -> Iterator[tuple[str, str, str, Problem]]:
    node = problem.cluster.node
    for name, tier in node.tiers.items():
        if tier.scope == "node":
            yield from _doubled_tier(problem, name, tier)
    for name in links_crossed(problem, best):
        link = node.links[name]
        faster = {**node.links, name: link.model_copy(update={"bandwidth": 2 * link.bandwidth})}
        yield (
            f"links.{name}.bandwidth",
            show(link.bandwidth, "B/s"),
            show(2 * link.bandwidth, "B/s"),
            with_node(problem, links=faster),
        )


def _doubled_tier(problem: Problem, name: str, tier: Tier) -> Iterator[tuple[str, str, str, Problem]]:
    if tier.drive is not None and tier.drive_count:
        path, before, after, update = drives(name, tier, 2 * tier.drive_count)
    else:
        path, before = f"tiers.{name}.capacity", show(tier.capacity, "B")
        after, update = show(2 * tier.capacity, "B"), {"capacity": 2 * tier.capacity}
    yield path, before, after, with_tier(problem, name, **update)


def links_crossed(problem: Problem, best: Estimate) -> tuple[str, ...]:
    """Links on the way of the resource that the step waits for longest."""
    node, nodes = problem.cluster.node, problem.cluster.nodes
    resource = longest_wait(best)[0]
    if resource == "gather":
        crossed = (node.network if nodes > 1 else None, node.fabric)
        return tuple(name for name in crossed if name is not None)
    tier, _, direction = resource.partition(".")
    return node.tiers[tier].via if direction in ("read", "write") else ()
