"""What stage 3 sends and receives: in how many collectives, and whether computation hides it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ziplan.laws.law import maximum, where
from ziplan.runtimes.deepspeed import laws
from ziplan.runtimes.deepspeed.buckets import fill
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.knobs import each
from ziplan.runtimes.deepspeed.releases import NAME
from ziplan.runtimes.deepspeed.tiled import by_tiles
from ziplan.workload.model import Model


def between_nodes(f: Facts) -> float:
    """1 where stage 3's gathers and sums over several nodes stand in the way of computation.

    Not where a calibration of DeepSpeed's runs over several nodes of this machine says how much is hidden.
    """
    calibrated = f.cluster.calibrated
    measured = calibrated.hidden(NAME, f.nodes) if calibrated is not None else None
    if f.nodes <= 1 or measured is not None:
        return 0.0
    return f.traits.network_waits * where(f.plan.zero_stage >= 3, 1.0, 0.0)


def reductions(f: Facts) -> float:
    """Ways around the ring of all ranks on which stage 3 reduces the gradients of a micro-step."""

    def of(model: Model) -> float:
        return each(lambda bucket: bucket_count(model, bucket), maximum(f.knobs.reduce_bucket, 1.0))

    return by_tiles(f.workload.model, f.plan.tile_count, of)


@lru_cache(maxsize=256)
def bucket_count(model: Model, bucket_params: float) -> float:
    """How often gradients are reduced: before a tensor that a bucket has no room for, and at the end."""
    return float(sum(elements > 0 for elements in fill(_gradients(model), bucket_params)))


def _gradients(model: Model) -> Iterator[int]:
    """Elements of each gradient in the order in which backward makes them."""
    for section in reversed(model.sections):
        trained = [operator for layer in section.layers for operator in layer if operator.trainable]
        once = [elements for operator in trained for elements in operator.tensors][::-1]
        for _ in range(section.repeat):
            yield from once


def kept_gathers(f: Facts) -> tuple[float, float]:
    """(bytes that a rank receives, gathers) of what stays gathered, once the optimizer has stepped.

    One gather for each tensor (`partition_parameters.py:_allgather_params_coalesced`).
    """

    def small(model: Model) -> list[tuple[int, float]]:
        return [(n, float(count)) for n, count, _ in model.tensors if n <= f.knobs.persistence]

    model, tiles, steps = f.workload.model, f.plan.tile_count, 1.0 if f.trained else 0.0
    tensors = by_tiles(model, tiles, lambda each: sum((count for _, count in small(each)), 0.0))
    elements = by_tiles(model, tiles, lambda each: sum((n * count for n, count in small(each)), 0.0))
    received = f.derivation.apply(
        laws.gathered_bytes_per_step,
        "parameters that stay gathered, once per step",
        zero_stage=f.plan.zero_stage,
        fetched_params=steps * elements,
        param_bytes_per_param=f.element,
        dp_degree=f.plan.dp_degree,
    )
    return received, steps * f.stage3 * tensors
