"""The question and the answer of the solver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ziplan.estimate import Estimate
from ziplan.hardware.cluster import Cluster
from ziplan.runtimes.runtime import Runtime
from ziplan.workload.training import Workload

Objective = Literal["time", "gpus", "cost", "wear"]


@dataclass(frozen=True)
class Problem:
    """What to solve: the cheapest way to train this workload on this cluster with this runtime.

    `fixed` pins plan fields by name. `allow_tiling` lets the solver ask for a code change
    (tiled linears) where something else fits too.
    """

    cluster: Cluster
    workload: Workload
    runtime: Runtime
    objective: Objective = "time"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    allow_tiling: bool = False

    @property
    def ranks(self) -> int:
        """Ranks that train: one on each GPU, unless `fixed` leaves some of a node's idle."""
        return int(self.fixed.get("dp_degree", self.cluster.gpu_count))


class Binding(NamedTuple):
    """What limits the answer: a tier's capacity, or the resource that the step waits for longest.

    `where` is empty where an input that nobody has stated decides it.
    """

    kind: Literal["capacity", "time"]
    where: str
    what: str


class Change(NamedTuple):
    """One change of the inputs and what it does ("tiers.dram.capacity", from, to, effect)."""

    path: str
    before: str
    after: str
    effect: str


class Baseline(NamedTuple):
    """Plain stage 3, everything in HBM: the GPUs it needs, and its step time on that many."""

    gpus: float
    usable_bytes_per_gpu: float
    step_time: float | None
    fits_here: bool
    step_gpus: int | None = None
    """GPUs that `step_time` is for: whole nodes, and never fewer than the cluster has."""


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """The solver's answer. `best` is the best plan that fits, else the one nearest to fitting.

    `alternatives` are the best plans of other placements: those that surely fit first, then those
    that may, each by the objective. `gpus_there` are the GPUs of the cluster that was asked about,
    of which `problem` may have fewer. `do_not_offload` is true when the best plan keeps everything in HBM.
    `faster_if_it_fits` is a plan that may fit and is faster than the best, which surely does, or is likely to
    on fewer tiers; `faster_on_fewer` one on fewer GPUs that takes less time for the same global batch.
    `space` says what was searched and pruned.
    """

    problem: Problem
    best: Estimate
    alternatives: tuple[Estimate, ...]
    baseline: Baseline
    binding: Binding
    changes: tuple[Change, ...]
    do_not_offload: bool
    plans_evaluated: int
    space: str
    gpus_there: int
    notes: tuple[str, ...] = ()
    faster_if_it_fits: Estimate | None = None
    faster_on_fewer: Estimate | None = None
