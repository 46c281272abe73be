"""What limits an answer, and which single change of the inputs would move the limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ziplan.estimate import Estimate
from ziplan.hardware.cluster import Cluster
from ziplan.hardware.node import Tier
from ziplan.solve.enumerate import DOES_NOT_FIT, FITS, best_by_placement, evaluated, search_grid
from ziplan.solve.problem import Binding, Change, Problem
from ziplan.units import show

MOST_NODES = 1024
"""Nodes beyond which no larger cluster is proposed."""

WORTH_SAYING = 0.03
"""A change that saves less of the step time than this is not worth a line."""


def binding(best: Estimate) -> Binding:
    """The tier that lacks most, or the term that the step spends most of its time on."""
    worst = max(best.memory, key=lambda name: best.memory[name].low / best.memory[name].available)
    if best.verdict == "does_not_fit":
        tier = best.memory[worst]
        phase = max(tier.phases, key=lambda name: tier.phases[name][0])
        return Binding("capacity", worst, phase)
    term = max(best.terms, key=lambda name: best.terms[name])
    return Binding("time", _resource(best, term), term)


def _resource(best: Estimate, term: str) -> str:
    for segment in best.segments:
        for chain in segment.chains:
            for demand in chain:
                if demand.term == term:
                    return demand.resource
    return term


def changes(problem: Problem, best: Estimate) -> tuple[Change, ...]:
    """Single changes of the inputs, each checked by solving again, the smallest first."""
    if best.verdict == "does_not_fit":
        return tuple(_that_make_it_fit(problem, best))
    return tuple(_that_speed_it_up(problem, best))


def _that_make_it_fit(problem: Problem, best: Estimate) -> Iterator[Change]:
    for name in [name for name, tier in problem.cluster.node.tiers.items() if tier.scope == "node"]:
        found = _smallest_capacity(problem, name)
        if found is not None:
            yield found
    more = _more_nodes(problem)
    if more is not None:
        yield more
    shorter = _shorter_sequence(problem)
    if shorter is not None:
        yield shorter


def _solved(problem: Problem) -> Estimate | None:
    """The best plan that fits a problem, or None."""
    grid = search_grid(problem)
    found = best_by_placement(problem, grid)[0]
    return None if found.rank == DOES_NOT_FIT else evaluated(problem, grid, found)


def _with_tier(cluster: Cluster, name: str, **update: float | None) -> Cluster:
    node = cluster.node
    tier: Tier = node.tiers[name].model_copy(update=update)
    return replace(cluster, node=node.model_copy(update={"tiers": {**node.tiers, name: tier}}))


def _smallest_capacity(problem: Problem, name: str) -> Change | None:
    """The least capacity of one tier with which some plan surely fits, found from that plan's own need."""
    capacity = problem.cluster.node.tiers[name].capacity
    roomy = replace(problem, cluster=_with_tier(problem.cluster, name, capacity=1e3 * capacity))
    grid = search_grid(roomy)
    needs = [
        answer.memory[name].high / (1 - answer.memory[name].reserve / answer.memory[name].capacity)
        for candidate in best_by_placement(roomy, grid)
        if candidate.rank == FITS
        for answer in (evaluated(roomy, grid, candidate),)
    ]
    larger = [need for need in needs if need > capacity]
    if not larger:
        return None
    need = min(larger)
    return Change(
        f"tiers.{name}.capacity",
        show(capacity, "B"),
        show(need, "B"),
        f"fits with {show(need, 'B')} of {name} per node",
    )


def _more_nodes(problem: Problem) -> Change | None:
    cluster = problem.cluster
    if cluster.node.network is None:
        return None
    nodes = cluster.nodes
    while nodes < MOST_NODES:
        nodes *= 2
        larger = replace(problem, cluster=replace(cluster, nodes=nodes))
        batch = problem.workload.training.global_batch_size
        if batch is not None and batch % larger.cluster.gpu_count:
            return None
        answer = _solved(larger)
        if answer is not None:
            return Change("nodes", str(cluster.nodes), str(nodes), f"fits on {larger.cluster.gpu_count} GPUs")
    return None


def _shorter_sequence(problem: Problem) -> Change | None:
    length = problem.workload.training.sequence_length
    shorter = length
    while shorter > 512:
        shorter //= 2
        training = problem.workload.training.model_copy(update={"sequence_length": shorter})
        if _solved(replace(problem, workload=replace(problem.workload, training=training))) is not None:
            return Change(
                "training.sequence_length", str(length), str(shorter), f"fits with sequences of {shorter}"
            )
    return None


def _that_speed_it_up(problem: Problem, best: Estimate) -> Iterator[Change]:
    """What the outer tiers' capacity and the binding tier's bandwidth would save."""
    tried = []
    same_steps = replace(problem, fixed={**problem.fixed, "accumulation_steps": best.plan.accumulation_steps})
    for name, tier in problem.cluster.node.tiers.items():
        if tier.scope != "node":
            continue
        doubled: dict[str, float | None] = {"capacity": 2 * tier.capacity}
        tried.append(
            (f"tiers.{name}.capacity", show(tier.capacity, "B"), show(2 * tier.capacity, "B"), name, doubled)
        )
        if tier.drive is not None and tier.drive_count and tier.read_bandwidth:
            tried.append(_twice_the_drives(name, tier))
    for path, before, after, name, update in tried:
        answer = _solved(replace(same_steps, cluster=_with_tier(problem.cluster, name, **update)))
        if answer is None:
            continue
        saved = 1 - answer.time_per_token / best.time_per_token
        if saved >= WORTH_SAYING:
            yield Change(path, before, after, f"{saved:.0%} less time per token")


def _twice_the_drives(name: str, tier: Tier) -> tuple[str, str, str, str, dict[str, float | None]]:
    update: dict[str, float | None] = {
        "drive_count": 2 * tier.drive_count,
        "capacity": 2 * tier.capacity,
        "read_bandwidth": None if tier.read_bandwidth is None else 2 * tier.read_bandwidth,
        "write_bandwidth": None if tier.write_bandwidth is None else 2 * tier.write_bandwidth,
    }
    return f"tiers.{name}.drive_count", str(tier.drive_count), str(2 * tier.drive_count), name, update
