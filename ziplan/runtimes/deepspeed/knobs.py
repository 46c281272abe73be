"""DeepSpeed's own settings, derived from a plan: the one place where they are decided.

The ledger, the step program and the emitted config all take them from here. Counts of
elements are those of unpartitioned tensors unless the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ziplan.laws.law import maximum, minimum, where
from ziplan.plan import Checkpointing, Plan
from ziplan.runtimes.deepspeed.coordinator import Policy
from ziplan.runtimes.deepspeed.fetches import Fetches, fetches
from ziplan.runtimes.deepspeed.leaves import LEAF_CLASSES
from ziplan.runtimes.deepspeed.tiled import tiled
from ziplan.runtimes.deepspeed.traits import NEWEST
from ziplan.workload.model import Model

T = TypeVar("T")

if TYPE_CHECKING:
    from ziplan.runtimes.deepspeed.reading.settings import Settings

PERSISTENCE_THRESHOLD = 100_000
"""Elements below which a tensor stays gathered: biases and norms."""

AIO = {
    "block_size": 1_048_576,
    "queue_depth": 32,
    "intra_op_parallelism": 1,
    "single_submit": False,
    "overlap_events": True,
}
"""Bytes per request, requests in flight, threads. A larger block would keep more shards from swapping."""

SWAP_THRESHOLD_BYTES = max(1 << 20, int(AIO["block_size"]))
"""Shards of fewer bytes never leave memory (`swap_tensor/partitioned_param_swapper.py:swappable_tensor`)."""

SWAP_ALIGNMENT_ELEMENTS = 256 * int(AIO["intra_op_parallelism"])
"""fp32 gradient shards that are no multiple of this stay on the GPU until the step."""

STAGE_0_BUCKET = 500_000_000
"""Elements that stage 0 reduces at once, whatever is set (`engine.py:MEMORY_OPT_ALLREDUCE_SIZE`)."""

DDP_BUCKET_BYTES = 25.0 * (1 << 20)
"""Of PyTorch's `DistributedDataParallel` (`bucket_cap_mb`), whose first one is smaller still."""

LARGEST_REDUCE_BUCKET = 500_000_000
SMALLEST_REDUCE_BUCKET = 10_000_000


class Knobs(NamedTuple):
    """What the config will say, as numbers (scalars, or arrays of a grid)."""

    prefetch_bucket: float
    max_live: float
    reuse_distance: float
    reduce_bucket: float
    params_on_nvme: float
    """1.0 where parameters live on NVMe, where DeepSpeed cannot prefetch."""

    persistence: float = PERSISTENCE_THRESHOLD
    reentrant: bool = False
    """Which checkpoint function recomputes layers."""
    leaves: tuple[str, ...] = LEAF_CLASSES
    """Classes of modules that are fetched whole."""
    dropout: bool | None = None
    """What is said of it: a layer that ends with it is recomputed before any of its modules is fetched."""


KEYS = {
    "stage3_prefetch_bucket_size": "prefetch_bucket",
    "stage3_max_live_parameters": "max_live",
    "stage3_max_reuse_distance": "reuse_distance",
    "stage3_param_persistence_threshold": "persistence",
    "reduce_bucket_size": "reduce_bucket",
}
"""Keys of `zero_optimization`, and what each of them sets."""

PIN_MEMORY = "offload_optimizer_pin_memory"
"""What a run says of `pin_memory` in `offload_optimizer`."""


def on_medium(fractions: Any, tier: str | None) -> float:
    """The fraction that a placement puts on a tier; 0 where the machine has no such tier."""
    return fractions.get(tier, 0.0) if tier else 0.0


def knobs(model: Model, plan: Plan, nvme: str | None) -> Knobs:
    """DeepSpeed's settings for a plan; `nvme` is the machine's NVMe tier, if any."""
    on_nvme = where(on_medium(plan.placement.params, nvme) > 0, 1.0, 0.0)
    # Tiles are let go one by one only where nothing is read ahead and nothing kept for later.
    whole = where(plan.tile_count > 1, 0.0, 1.0)
    depth = plan.prefetch_depth * (1 - on_nvme) * whole
    layer, largest = float(model.largest_layer_params), float(largest_module(model))
    return Knobs(
        prefetch_bucket=depth * layer,
        max_live=maximum((1 + depth) * layer, largest),
        # Twice a layer keeps its parameters from recomputation to backward.
        reuse_distance=whole * where(plan.activation_checkpointing == Checkpointing.FULL, 2.0 * layer, 0.0),
        reduce_bucket=_reduce_bucket(model),
        params_on_nvme=on_nvme,
    )


def stated_knobs(stated: Settings, plan: Plan, nvme: str | None) -> Knobs:
    """The same of a config that exists, which states them or takes DeepSpeed's defaults."""
    return Knobs(
        prefetch_bucket=1.0 if stated.allgather_sequential else float(stated.prefetch_bucket_size),
        max_live=float(stated.max_live_parameters),
        reuse_distance=float(stated.max_reuse_distance),
        reduce_bucket=float(stated.reduce_bucket_size),
        params_on_nvme=where(on_medium(plan.placement.params, nvme) > 0, 1.0, 0.0),
        persistence=float(stated.param_persistence_threshold),
        leaves=stated.leaf_classes,
    )


def _reduce_bucket(model: Model) -> float:
    """Elements of the bucket that gradients are reduced in; an engine that only infers has none."""
    largest = float(largest_trained_tensor(model))
    return maximum(minimum(largest, LARGEST_REDUCE_BUCKET), SMALLEST_REDUCE_BUCKET) if largest else 0.0


def largest_module(model: Model) -> int:
    """Elements of the module with the most parameters."""
    return max(operator.params for operator in model.operators)


def largest_trained_tensor(model: Model) -> int:
    """Elements of the largest parameter tensor that has a gradient; 0 where none has."""
    return max((elements for elements, _, _ in model.trainable_tensors), default=0)


class Plays(NamedTuple):
    """Micro-steps as they are fetched under a plan, or under each distinct setting of a grid of plans."""

    distinct: tuple[tuple[Fetches, float], ...]
    """Of each setting what is fetched, and its data-parallel degree."""
    places: Any
    """Which of them each plan of the grid has."""

    def measured(self, measure: Callable[[Fetches, float], float]) -> float:
        """`measure(fetches, dp_degree)` of each plan."""
        if np.ndim(self.places) == 0:
            return measure(*self.distinct[self.places])
        return np.array([measure(*each) for each in self.distinct])[self.places]  # type: ignore[no-any-return]


def plays(model: Model, plan: Plan, settings: Knobs) -> Callable[[Callable[[Fetches, float], float]], float]:
    """What takes a measure (of fetches and the data-parallel degree) of a plan, or of each in a grid.

    Tiles are modules of their own.
    """
    # In a grid micro-steps are an axis that the other settings do not vary along.
    bare = decided_bare(model, plan)
    if np.all(bare) or not np.any(bare):
        return _plays(model, plan, settings, bool(np.all(bare))).measured
    first, later = (_plays(model, plan, settings, each) for each in (True, False))
    return lambda measure: where(bare > 0, first.measured(measure), later.measured(measure))


def _plays(model: Model, plan: Plan, settings: Knobs, bare: bool) -> Plays:
    def one(
        tiles: float, checkpointing: float, bucket: float, live: float, reuse: float, dp_degree: float
    ) -> tuple[Fetches, float]:
        one_of = settings._replace(prefetch_bucket=bucket, max_live=live, reuse_distance=reuse)
        seen = tiled(model, int(tiles))
        asked = _policy(one_of, bare)
        played = fetches(seen, int(checkpointing), settings.reentrant, asked, settings.dropout)
        return played, dp_degree

    return Plays(
        *distinct(
            one,
            plan.tile_count,
            plan.activation_checkpointing,
            settings.prefetch_bucket,
            settings.max_live,
            settings.reuse_distance,
            plan.dp_degree,
        )
    )


def decided_bare(model: Model, plan: Plan) -> float:
    """1 where no optimizer step comes before the second micro-step (`Policy.decided_bare`)."""
    return where(plan.accumulation_steps > 1, 1.0, 0.0) if model.trainable_params else 1.0


def policy(model: Model, plan: Plan, settings: Knobs) -> Policy:
    """What the coordinator does under one plan."""
    return _policy(settings, bool(decided_bare(model, plan)))


def _policy(settings: Knobs, bare: bool) -> Policy:
    return Policy(
        settings.prefetch_bucket,
        settings.max_live,
        settings.reuse_distance,
        int(settings.persistence),
        # Nothing that is let go depends on it where nothing is read ahead.
        bare and settings.prefetch_bucket > 0,
        settings.leaves,
    )


REENTRANT = bool(NEWEST.recomputes_whole_layers)
"""Which checkpoint function the emitted launch uses: transformers' default is the non-reentrant one."""


def each(function: Callable[..., float], *fields: float) -> float:
    """`function` of scalars; of arrays, once for each distinct combination of their values."""
    values, places = distinct(function, *fields)
    return values[0] if np.ndim(places) == 0 else np.array(values, dtype=float)[places]


def distinct(function: Callable[..., T], *fields: float) -> tuple[tuple[T, ...], Any]:
    """`function` of each distinct combination of values of arrays (or of scalars), and where each belongs."""
    if all(np.ndim(field) == 0 for field in fields):
        return (function(*(float(field) for field in fields)),), 0
    spread = np.broadcast_arrays(*(np.asarray(field, dtype=float) for field in fields))
    known: dict[tuple[float, ...], int] = {}
    places = [
        known.setdefault(arguments, len(known))
        for arguments in zip(*(field.ravel().tolist() for field in spread), strict=True)
    ]
    return tuple(function(*arguments) for arguments in known), np.reshape(places, spread[0].shape)
