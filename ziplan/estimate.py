"""The one evaluator: (cluster, workload, runtime, plan) to memory, time and what binds.

Only this module applies laws and a runtime to a machine. One plan or a grid of plans goes
through the same lines: every number is a scalar or an array (statically `float`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes.runtime import Ledger, Segment
from ziplan.workload.training import Workload

Verdict = Literal["fits", "tight", "does_not_fit", "unknown"]


@dataclass(frozen=True)
class Assumption:
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

    @property
    def low(self) -> float:
        """The most that any phase needs at the least."""
        raise NotImplementedError

    @property
    def high(self) -> float:
        """The most that any phase may need."""
        raise NotImplementedError


@dataclass(frozen=True)
class TierTest:
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


@dataclass(frozen=True)
class Limits:
    """The ceilings: parameters by capacity and by compute, width, and how long training takes."""

    max_params_by_capacity: float
    max_d_model_by_width: float
    max_params_by_compute: float
    training_time: float
    greatest_tile_count: float
    time_budget: float
    tokens_per_param: float


@dataclass(frozen=True)
class Estimate:
    """Everything predicted about one plan (or a grid of plans)."""

    cluster: Cluster
    workload: Workload
    runtime: str
    plan: Plan
    step_time: float
    tokens_per_step: float
    terms: Mapping[str, float]
    """Seconds of the step by term, exposed time only: they add up to `step_time`."""
    busy: Mapping[str, float]
    """Seconds that each term's resource works, hidden or not."""
    model_flops: float
    """6 FLOPs per parameter and token, all ranks, one step."""
    hardware_flops: float
    """What the GPUs compute in a step, recomputation and attention included, all ranks."""
    traffic: Mapping[str, tuple[float, float]]
    """Bytes per step and rank over each link, (read, write)."""
    memory: Mapping[str, TierMemory]
    ledger: Ledger
    segments: tuple[Segment, ...]
    derivation: Derivation
    tiers: Mapping[str, TierTest] = field(default_factory=dict)
    limits: Limits | None = None
    assumptions: tuple[Assumption, ...] = ()
    interval: tuple[float, float] = (1.0, 1.0)
    """Factors on `step_time` for its low and high end."""
    interval_source: str = ""
    drive_lifetime: float | None = None
    """Seconds until the drives' endurance is used up; None where it is unknown or nothing is written."""
    unknown: tuple[str, ...] = ()
    """Inputs that decide and that nobody stated."""
    verdict: Verdict = "unknown"
