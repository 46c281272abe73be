"""What the evaluator answers: one record for one plan or for a grid of plans.

Every number is a scalar or, for a grid, an array (statically `float`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation, maximum
from ziplan.plan import Plan
from ziplan.runtimes.runtime import Ledger, Segment
from ziplan.workload.training import Workload

Verdict = Literal["fits", "tight", "does_not_fit", "unknown"]


class Assumption(NamedTuple):
    """A number that nobody measured here: what it is, where it comes from, how far off it may be."""

    name: str
    value: float
    unit: str
    kind: str
    source: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class TierMemory:
    """What a tier has and what each phase needs of it, as (low, high) bytes.

    `available` is after the reserve; both are of one GPU or of one node, as the tier's scope says.
    """

    capacity: float
    reserve: float
    available: float
    phases: Mapping[str, tuple[float, float]]

    @cached_property
    def low(self) -> float:
        """The most that any phase needs at the least."""
        return maximum(*(low for low, _ in self.phases.values()))

    @cached_property
    def high(self) -> float:
        """The most that any phase may need."""
        return maximum(*(high for _, high in self.phases.values()))


class TierTest(NamedTuple):
    """The article's test of one tier: what streaming parameters from it asks, and what there is."""

    bandwidth: float
    machine_balance: float
    arithmetic_intensity: float
    required_tokens: float
    hiding_margin: float
    owner_fetch_time: float
    striped_fetch_time: float
    prefetch_depth_owner: float
    prefetch_depth_striped: float


class Limits(NamedTuple):
    """The ceilings: parameters by capacity and by compute, width, and how long training takes."""

    max_params_by_capacity: float
    max_d_model_by_width: float
    max_params_by_compute: float
    training_time: float
    greatest_tile_count: float
    time_budget: float
    tokens_per_param: float
    max_d_model_untiled: float = math.nan
    """The ceiling of width without tiles, which are a change of the model's code."""
    capacity_tier: str = ""
    """The tier whose capacity is that of `max_params_by_capacity`."""


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """Everything predicted about one plan (or a grid of plans)."""

    cluster: Cluster
    workload: Workload
    runtime: str
    plan: Plan
    step_time: float
    tokens_per_step: float
    model_flops: float
    """6 FLOPs per parameter and token, all ranks, one step."""
    hardware_flops: float
    """What the GPUs compute in a step, recomputation and attention included, all ranks."""
    memory: Mapping[str, TierMemory]
    ledger: Ledger
    segments: tuple[Segment, ...]
    flash_writes: float
    """Bytes written to NVMe per step and rank."""
    derivation: Derivation
    terms: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the step by term, exposed time only: they add up to `step_time`."""
    busy: Mapping[str, float] = field(default_factory=dict)
    """Seconds that each term's resource works, hidden or not."""
    traffic: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Bytes per step and rank over each link, (read, write)."""
    tiers: Mapping[str, TierTest] = field(default_factory=dict)
    limits: Limits | None = None
    assumptions: tuple[Assumption, ...] = ()
    interval: tuple[float, float] = (1.0, 1.0)
    """Factors on `step_time` for its low and high end."""
    interval_source: str = ""
    published: tuple[float, float] | None = None
    """Measured over predicted step time of published runs like this one; None where there is none."""
    drive_lifetime: float | None = None
    """Seconds until the drives' endurance is used up; None where it is unknown or nothing is written."""
    step_cost: float | None = None
    """Dollars that all nodes cost during one step; None where nobody has stated a price."""
    unknown: tuple[str, ...] = ()
    """Inputs that decide and that nobody stated."""

    @property
    def fits(self) -> bool:
        """Whether even the high end of every need is there (an array of a grid)."""
        return cast(bool, _every(tier.high <= tier.available for tier in self.memory.values()))

    @property
    def may_fit(self) -> bool:
        """Whether the low end of every need is there (an array of a grid)."""
        return cast(bool, _every(tier.low <= tier.available for tier in self.memory.values()))

    @property
    def likely_fits(self) -> bool:
        """Whether the middle of every need is there (an array of a grid)."""
        return cast(bool, _every(tier.low + tier.high <= 2 * tier.available for tier in self.memory.values()))

    @property
    def verdict(self) -> Verdict:
        """The verdict on one plan: unknown where it may fit but nobody can say how long a step is."""
        if self.unknown and self.may_fit:
            return "unknown"
        return "fits" if self.fits else "tight" if self.may_fit else "does_not_fit"

    @property
    def overflow(self) -> float:
        """What the tiers lack at the low end, each as a share of what it has, together; 0 where it may fit.

        A tier that lacks half as much again as it has counts 0.5: that much more of it would do.
        """
        return _beyond((tier.low, tier.available) for tier in self.memory.values())

    @property
    def likely_overflow(self) -> float:
        """The same at the high end: what the tiers may lack together."""
        return _beyond((tier.high, tier.available) for tier in self.memory.values())

    @property
    def time_per_token(self) -> float:
        """Seconds per token, all ranks together."""
        return self.step_time / self.tokens_per_step

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second, all ranks together."""
        return self.tokens_per_step / self.step_time

    @property
    def model_flops_per_s_per_gpu(self) -> float:
        """6 FLOPs per parameter and token, over the step time, of one GPU."""
        return self.model_flops / self.step_time / self.gpus

    @property
    def hardware_flops_per_s_per_gpu(self) -> float:
        """What is really computed, over the step time, of one GPU."""
        return self.hardware_flops / self.step_time / self.gpus

    @property
    def gpus(self) -> float:
        """GPUs that the plan uses."""
        return self.plan.gpus


def _beyond(needs: Iterable[tuple[float, float]]) -> float:
    """What is needed beyond what there is, of several (needed, there), each as a share, together."""
    short: Any = 0.0
    for needed, there in needs:
        short = short + maximum(0.0, needed / there - 1)
    return cast(float, short)


def _every(conditions: Iterable[bool]) -> Any:
    result: Any = True
    for condition in conditions:
        result = np.logical_and(result, condition)
    return result
