"""Evaluation: the only place where laws and a runtime meet a machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ziplan.estimate.ceilings import limits, tier_tests
from ziplan.estimate.fidelity import residuals, widened
from ziplan.estimate.rates import Rates, rates_of
from ziplan.estimate.result import Assumption, Estimate, TierMemory
from ziplan.hardware.cluster import Cluster
from ziplan.hardware.rates import ARITHMETIC, COUNTED, GPU, UNKNOWN, End
from ziplan.laws.counts import step_flops, tokens_per_step
from ziplan.laws.efficiency import partly_overlapped_time, step_cost
from ziplan.laws.endurance import drive_lifetime
from ziplan.laws.law import Derivation, maximum, where
from ziplan.laws.partition import latency_time
from ziplan.laws.traffic import compute_time, product_time, transfer_time
from ziplan.plan import Plan
from ziplan.runtimes.runtime import (
    COLLECTIVE,
    MEMLOCK,
    NOT_BYTES,
    OF_OTHERS,
    PHASES,
    PYTHON,
    Demand,
    Ledger,
    Runtime,
    Segment,
    bare,
    total,
)
from ziplan.workload.training import Workload

RESERVE = {"hbm": 0.0, "dram": 0.05, "nvme": 0.05}
"""Share of a tier's capacity that is left alone: the operating system's memory, a full drive's slack.

A GPU's overheads are lines of the ledger, so nothing is held back there.
"""

HOUR = 3600.0

ROLLOUTS = Assumption(
    "time of rollouts",
    0.0,
    "s",
    "assumed",
    "not modelled: generating text, and scoring it with the models that are trained, come on top of a step",
)
"""Said where a job has models of RLHF or distillation, which may train on text that they generate."""

MODEL_FLOPS = 6.0
"""FLOPs per parameter and token by the convention that counts no recomputation and no attention."""


def estimate(
    cluster: Cluster, workload: Workload, runtime: Runtime, plan: Plan, record: bool = True
) -> Estimate:
    """Everything predicted about `plan`, or, with arrays in its fields, about a grid of plans.

    With `record`, the laws applied are kept, and the article's tests and ceilings worked out;
    a grid leaves them out (`record=False`).
    """
    derivation = Derivation(record)
    book = ledger(derivation, cluster, workload, runtime, plan)
    segments = _program(derivation, cluster, workload, runtime, plan)
    return _estimated(derivation, cluster, workload, runtime, plan, book, segments)


def elsewhere(answer: Estimate, cluster: Cluster, runtime: Runtime) -> Estimate:
    """A grid's estimate on a machine whose links and nodes' tiers carry and hold something else.

    What a plan holds and moves depends on neither (`Runtime`), so ledger and program are the same.
    """
    derivation = Derivation(record=False)
    workload, plan = answer.workload, answer.plan
    return _estimated(derivation, cluster, workload, runtime, plan, answer.ledger, answer.segments)


def _estimated(
    derivation: Derivation,
    cluster: Cluster,
    workload: Workload,
    runtime: Runtime,
    plan: Plan,
    book: Ledger,
    segments: tuple[Segment, ...],
) -> Estimate:
    """What a plan's bytes and work come to on a machine."""
    rates = rates_of(derivation, cluster, workload, runtime, float(np.max(plan.gpus)))
    step_time = total(_segment_time(derivation, rates, segment) for segment in segments)
    tokens = derivation.apply(
        tokens_per_step,
        tokens_per_rank=plan.micro_batch_size * workload.training.sequence_length,
        accumulation_steps=plan.accumulation_steps,
        dp_degree=plan.dp_degree,
    )
    model_flops = derivation.apply(
        step_flops,
        "by the convention of 6 per parameter and token",
        params=float(workload.model.active_params),
        tokens_per_rank=tokens,
        flops_per_param_token=MODEL_FLOPS,
    )
    answer: dict[str, Any] = {}
    if derivation.record:
        answer = _details(derivation, cluster, workload, runtime, plan, rates, segments, step_time)
        achieved = model_flops / step_time
        answer["limits"] = limits(
            derivation, cluster, workload, plan, rates, achieved, runtime.homes(cluster, plan)
        )
    return Estimate(
        cluster=cluster,
        workload=workload,
        runtime=runtime.NAME,
        plan=plan,
        step_time=step_time,
        tokens_per_step=tokens,
        model_flops=model_flops,
        hardware_flops=total(_worked(segments, kind) for kind in COUNTED) * plan.gpus,
        memory=memory(cluster, book),
        ledger=book,
        segments=segments,
        flash_writes=total(_worked(segments, resource) for resource in _written_to_flash(cluster)),
        derivation=derivation,
        **answer,
    )


def ledger(
    derivation: Derivation, cluster: Cluster, workload: Workload, runtime: Runtime, plan: Plan
) -> Ledger:
    """The runtime's ledger, with those of the other models of the job where there are any."""
    if not workload.companions:
        return runtime.ledger(derivation, cluster, workload, plan)
    from ziplan.runtimes.shared.companions import engines, job_ledger  # few jobs have several models

    others = engines(runtime, cluster, workload, plan)
    return job_ledger(runtime.ledger, derivation, cluster, workload, plan, others)


def _program(
    derivation: Derivation, cluster: Cluster, workload: Workload, runtime: Runtime, plan: Plan
) -> tuple[Segment, ...]:
    """The runtime's step, and after it those of the other models."""
    if not workload.companions:
        return tuple(runtime.program(derivation, cluster, workload, plan))
    from ziplan.runtimes.shared.companions import engines, job_program

    others = engines(runtime, cluster, workload, plan)
    return job_program(runtime, derivation, cluster, workload, plan, others)


def _written_to_flash(cluster: Cluster) -> list[str]:
    """Resources whose work is bytes written to NVMe, by the CPU or straight from the GPU."""
    flash = [name for name, tier in cluster.node.tiers.items() if tier.medium == "nvme"]
    return [f"{name}.{direction}" for name in flash for direction in ("swap_write", "write")]


def step_parts(answer: Estimate, runtime: Runtime) -> list[tuple[Segment, float]]:
    """The segments of an estimate's step in order, each with its seconds, repeats included."""
    silent, ranks = Derivation(record=False), float(np.max(answer.gpus))
    rates = rates_of(silent, answer.cluster, answer.workload, runtime, ranks)
    return [(segment, _segment_time(silent, rates, segment)) for segment in answer.segments]


def demand_time(answer: Estimate, runtime: Runtime, demand: Demand) -> float:
    """Seconds of one demand of an estimate's step by itself."""
    silent, ranks = Derivation(record=False), float(np.max(answer.gpus))
    rates = rates_of(silent, answer.cluster, answer.workload, runtime, ranks)
    return _demand_time(silent, rates, demand)


def _segment_time(derivation: Derivation, rates: Rates, segment: Segment) -> float:
    chains = [total(_demand_time(derivation, rates, d) for d in chain) for chain in segment.chains]
    silent = Derivation(record=False)
    ways = [total(_demand_time(silent, rates, d) for d in way) for way in segment.ways]
    longest = maximum(*chains, *ways)
    if rates.overlap == 1.0 or not _computes(segment):
        return segment.repeats * longest
    serial = total(_demand_time(derivation, rates, demand) for demand in in_turn(segment))
    return segment.repeats * derivation.apply(
        partly_overlapped_time,
        segment.name,
        longest_time=longest,
        serial_time=maximum(longest, serial),
        overlap=rates.overlap,
    )


def _computes(segment: Segment) -> bool:
    """Whether the GPU works in it: how much is hidden behind that is what a calibration tells."""
    return any(demand.resource in ARITHMETIC for chain in segment.chains for demand in chain)


def in_turn(segment: Segment) -> list[Demand]:
    """Each demand of a segment once, but for the Python thread, which runs ahead of the GPU in any case."""
    once = {id(demand): demand for chain in segment.chains for demand in chain}
    return [demand for demand in once.values() if demand.resource != PYTHON]


def _demand_time(derivation: Derivation, rates: Rates, demand: Demand) -> float:
    if np.ndim(demand.amount) == 0 and demand.amount == 0:
        return 0.0
    rate, label = rates.of(demand.resource), demand.term
    if rate == UNKNOWN:
        return where(demand.amount > 0, math.nan, 0.0)
    if demand.resource == PYTHON:
        return demand.amount
    if demand.resource == GPU:
        return derivation.apply(compute_time, label, flops=demand.amount, sustained_flops_per_s=rate)
    if demand.resource in ARITHMETIC:
        return derivation.apply(product_time, label, flops=demand.amount, product_flops_per_s=rate)
    if demand.resource == "cpu_optimizer":
        return rates.update_time(derivation, label, demand.amount)
    if demand.resource == COLLECTIVE:
        return derivation.apply(latency_time, label, pass_count=demand.amount, ring_latency=1 / rate)
    return derivation.apply(transfer_time, label, bytes_moved=demand.amount, link_bandwidth=rate)


def memory(cluster: Cluster, book: Ledger) -> dict[str, TierMemory]:
    """Need and availability of every tier, and of what a process may lock where that is limited."""
    needs = {}
    for name, tier in cluster.node.tiers.items():
        reserve = RESERVE[tier.medium] * tier.capacity
        phases = {phase: book.need(name, phase) for phase in PHASES}
        needs[name] = TierMemory(tier.capacity, reserve, tier.capacity - reserve, phases)
    limit = cluster.node.memlock_limit
    if limit is not None:
        needs[MEMLOCK] = TierMemory(limit, 0.0, limit, {phase: book.need(MEMLOCK, phase) for phase in PHASES})
    return needs


def _details(
    derivation: Derivation,
    cluster: Cluster,
    workload: Workload,
    runtime: Runtime,
    plan: Plan,
    rates: Rates,
    segments: Sequence[Segment],
    step_time: float,
) -> dict[str, Any]:
    """What is worked out for one plan only."""
    published = residuals(runtime.NAME, cluster, plan)
    low, high, source = widened(published, *_ends(cluster, workload, runtime, plan, segments, step_time))
    traffic = _traffic(segments)
    tests = tier_tests(derivation, cluster, workload, plan, rates)
    return {
        "terms": _exposed(derivation, rates, segments),
        "busy": _busy(rates, segments),
        "traffic": traffic,
        "tiers": tests,
        "assumptions": (*rates.said(), *[ROLLOUTS] * bool(workload.companions)),
        "unknown": _unknown(rates, segments),
        "interval": (low, high),
        "interval_source": source,
        "published": published.range,
        "drive_lifetime": _lifetime(derivation, cluster, traffic, rates.ranks_per_node, step_time),
        "step_cost": _cost(derivation, cluster, step_time),
    }


def _ends(
    cluster: Cluster,
    workload: Workload,
    runtime: Runtime,
    plan: Plan,
    segments: Sequence[Segment],
    step_time: float,
) -> tuple[float, float]:
    """Factors on the step time with every assumed rate at its high end, and at its low end."""
    silent = Derivation(record=False)

    def step(end: End) -> float:
        rates = rates_of(silent, cluster, workload, runtime, float(plan.gpus), end)
        return total(_segment_time(silent, rates, segment) for segment in segments)

    return step("high") / step_time, step("low") / step_time


def _cost(derivation: Derivation, cluster: Cluster, step_time: float) -> float | None:
    """What one step costs at the price that the cluster file states."""
    if cluster.price is None:
        return None
    return derivation.apply(
        step_cost,
        node_hour_price=cluster.price.per_node_hour_usd,
        node_count=float(cluster.nodes),
        step_time=step_time,
        hour_length=HOUR,
    )


def _exposed(derivation: Derivation, rates: Rates, segments: Iterable[Segment]) -> dict[str, float]:
    """Seconds of the step by term: those of the slowest chain of each segment, so they add up."""
    silent = Derivation(record=False)
    terms: dict[str, float] = {}
    for segment in segments:
        ways = (*segment.chains, *segment.ways)
        slowest = max(ways, key=lambda way: sum(_demand_time(silent, rates, d) for d in way))
        for demand, share in [*((d, 1.0) for d in slowest), *_left_over(silent, rates, segment, slowest)]:
            seconds = share * segment.repeats * _demand_time(silent, rates, demand)
            if seconds > 0:
                terms[demand.term] = terms.get(demand.term, 0.0) + seconds
    return terms


def _left_over(
    silent: Derivation, rates: Rates, segment: Segment, slowest: Sequence[Demand]
) -> list[tuple[Demand, float]]:
    """Demands beside the slowest chain, and the share of each that the overlap leaves exposed."""
    if rates.overlap == 1.0 or not _computes(segment):
        return []
    taken = {id(demand) for demand in slowest}
    others = [demand for demand in in_turn(segment) if id(demand) not in taken]
    beside = sum(_demand_time(silent, rates, demand) for demand in others)
    exposed = _segment_time(silent, rates, segment) / segment.repeats if segment.repeats else 0.0
    exposed -= sum(_demand_time(silent, rates, demand) for demand in slowest)
    return [(demand, max(0.0, exposed) / beside) for demand in others] if beside > 0 else []


def _demands(segments: Iterable[Segment]) -> Iterable[tuple[float, Demand]]:
    """Each demand once with its repeats: one that stands in several chains is one piece of work."""
    for segment in segments:
        if segment.idle:
            continue
        once = {id(demand): demand for chain in segment.chains for demand in chain}
        for demand in once.values():
            yield segment.repeats, demand


def _busy(rates: Rates, segments: Iterable[Segment]) -> dict[str, float]:
    silent = Derivation(record=False)
    terms: dict[str, float] = {}
    for repeats, demand in _demands(segments):
        seconds = repeats * _demand_time(silent, rates, demand)
        if seconds > 0:
            terms[demand.term] = terms.get(demand.term, 0.0) + seconds
    return terms


def _unknown(rates: Rates, segments: Iterable[Segment]) -> tuple[str, ...]:
    """Inputs that nobody stated and that this plan's time depends on."""
    used = [bare(d.resource) for _, d in _demands(segments) if d.amount > 0]
    return tuple(dict.fromkeys(rates.unknown[resource] for resource in used if resource in rates.unknown))


def _worked(segments: Iterable[Segment], resource: str) -> float:
    return total(repeats * d.amount for repeats, d in _demands(segments) if d.resource == resource)


def _traffic(segments: Iterable[Segment]) -> dict[str, tuple[float, float]]:
    """Bytes per step and rank, (read, write), of each tier and of the gather."""
    links: dict[str, tuple[float, float]] = {}
    for repeats, demand in _demands(segments):
        if demand.resource in NOT_BYTES or demand.resource.endswith(OF_OTHERS):
            continue
        name, _, direction = bare(demand.resource).partition(".")
        read, written = links.get(name, (0.0, 0.0))
        moved = repeats * demand.amount
        links[name] = (read, written + moved) if direction.endswith("write") else (read + moved, written)
    return links


def _lifetime(
    derivation: Derivation,
    cluster: Cluster,
    traffic: dict[str, tuple[float, float]],
    ranks: float,
    step_time: float,
) -> float | None:
    for name, tier in cluster.node.tiers.items():
        written = traffic.get(name, (0.0, 0.0))[1]
        if (
            tier.medium == "nvme"
            and tier.drive is not None
            and tier.drive.endurance is not None
            and written > 0
        ):
            return derivation.apply(
                drive_lifetime,
                name,
                drive_endurance=tier.drive.endurance,
                drive_count=float(tier.drive_count),
                bytes_written_per_step=written * ranks,
                step_time=step_time,
            )
    return None
