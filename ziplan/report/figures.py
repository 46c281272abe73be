"""Figures that the text and the JSON both show: an estimate's own numbers, per second or per GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

from ziplan.estimate import Estimate, TierMemory
from ziplan.plan import Placement, Plan

KINDS = ("measured", "datasheet", "derived", "assumed", "given")
PLACED = ("params", "grads", "optimizer", "checkpoints")


def interval(estimate: Estimate) -> tuple[float, float]:
    """The low and high end of the step time."""
    low, high = estimate.interval
    return float(estimate.step_time) * low, float(estimate.step_time) * high


NOTICEABLE = 1e-9
"""Share of a term below which what is hidden of it is rounding."""

MILLION = 1e6
HOUR = 3600.0


def hidden(estimate: Estimate) -> dict[str, float]:
    """Seconds of each term that pass behind others, longest first: work that the step does not wait for."""
    behind = {term: busy - estimate.terms.get(term, 0.0) for term, busy in estimate.busy.items()}
    kept = {term: time for term, time in behind.items() if time > NOTICEABLE * estimate.busy[term]}
    return dict(sorted(kept.items(), key=lambda each: -each[1]))


def gpu_hours_per_million_tokens(estimate: Estimate) -> float:
    """GPU-hours of all GPUs for a million tokens."""
    return float(estimate.gpus * estimate.time_per_token) * MILLION / HOUR


def cost_per_million_tokens(estimate: Estimate) -> float | None:
    """Dollars for a million tokens; None where nobody has stated a price."""
    return (
        None if estimate.step_cost is None else estimate.step_cost / float(estimate.tokens_per_step) * MILLION
    )


def flash_writes_per_node(estimate: Estimate) -> float:
    """Bytes that a step writes to the drives of one node."""
    return float(estimate.flash_writes) * min(estimate.cluster.node.gpus_per_node, float(estimate.gpus))


def flash_writes_per_token(estimate: Estimate) -> float:
    """Bytes that all nodes together write to their drives for one token."""
    return float(estimate.flash_writes * estimate.gpus / estimate.tokens_per_step)


class Place(NamedTuple):
    """A tier in a phase, and what is left there: below zero is what is missing."""

    tier: str
    phase: str
    available: float
    left_low: float
    left_high: float

    @property
    def share(self) -> float:
        """What is left in the worst case, as a share of what there is."""
        return self.left_low / self.available if self.available else float("-inf")


def places(estimate: Estimate) -> list[Place]:
    """Every tier and phase of an estimate, in order."""
    return [
        Place(tier, phase, memory.available, memory.available - high, memory.available - low)
        for tier, memory in estimate.memory.items()
        for phase, (low, high) in memory.phases.items()
    ]


def tightest(estimate: Estimate) -> Place | None:
    """Where the least is left, as a share of what there is: of the low end if that is missing somewhere."""
    every = places(estimate)
    missing = [place for place in every if place.left_high < 0]
    if missing:
        return min(missing, key=lambda place: place.left_high / place.available)
    return min(every, key=lambda place: place.share, default=None)


def lacking(estimate: Estimate) -> dict[str, float]:
    """The tiers that surely have too little, with the bytes that are missing at the least."""
    return {name: short for name, memory in estimate.memory.items() if (short := short_of(memory)) > 0}


def short_of(memory: TierMemory) -> float:
    """Bytes that a tier surely lacks: the low end of its need beyond what is available."""
    return max(0.0, float(memory.low - memory.available))


def placement_of(plan: Plan) -> dict[str, dict[str, float]]:
    """Kind of state to tier to fraction, without the tiers that hold nothing."""
    placement: Placement = plan.placement
    return {
        kind: {tier: float(part) for tier, part in getattr(placement, kind).items() if part > 0}
        for kind in PLACED
    }


def whole(value: Any) -> int | float:
    """A plain number, an int where it is whole."""
    number = float(value)
    return int(number) if number.is_integer() else number


def kinds_of_inputs(estimate: Estimate) -> dict[str, int]:
    """How many inputs of the machine and the model are of each kind of source."""
    kinds = [entry.kind for entry in estimate.cluster.provenance.values()]
    kinds += [assumption.kind for assumption in estimate.assumptions]
    return {kind: kinds.count(kind) for kind in dict.fromkeys((*KINDS, *kinds)) if kinds.count(kind)}


def tokens_per_rank(estimate: Estimate) -> float:
    """Tokens per rank and micro-step of the plan."""
    return float(estimate.plan.micro_batch_size) * estimate.workload.training.sequence_length
