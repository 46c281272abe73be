"""When gradients are reduced while backward runs: a bucket at a time, and the last one when it has ended.

Buckets fill up in the order in which backward makes gradients, and one is reduced when the next tensor does
not fit (`reduce_independent_p_g_buckets_and_remove_grads` of `stage_1_and_2.py` and of `stage3.py`); what is
in the last one is reduced by `independent_gradient_partition_epilogue`, beside which nothing computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from ziplan.plan import Checkpointing
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.knobs import each
from ziplan.runtimes.deepspeed.shards import as_made, in_module_order
from ziplan.workload.model import Model


class Order(NamedTuple):
    """Share of the gradients in the first bucket and the last, where they are reduced beside backward."""

    in_the_first: float
    in_the_last: float


@lru_cache(maxsize=256)
def filled(model: Model, bucket_params: float) -> tuple[float, float]:
    """Share of the trained elements that are in the first bucket, and in the last, of those so large."""
    buckets = fill(reversed(tuple(in_module_order(model))), bucket_params)
    trained = max(1, sum(buckets))
    return buckets[0] / trained, buckets[-1] / trained


def fill(gradients: Iterable[int], bucket_params: float) -> list[int]:
    """Elements of each bucket: the next is begun before a gradient that does not fit."""
    buckets = [0]
    for elements in gradients:
        if buckets[-1] and buckets[-1] + elements > bucket_params:
            buckets.append(0)
        buckets[-1] += elements
    return buckets


def order(f: Facts) -> Order:
    """Of what is reduced beside backward: in stages 1 to 3, and by PyTorch's own data parallelism."""
    first, last = (
        each(lambda bucket, end=end: filled(f.workload.model, bucket)[end], f.knobs.reduce_bucket)
        for end in (0, 1)
    )
    return Order(f.reduces_in_backward * first, f.reduces_in_backward * last)


REDUCE_PACES = (0.6, 1.0, 1.6)
"""Times that all that is reduced beside backward takes, over that of what is computed meanwhile."""


def on_the_way(f: Facts, pace: int) -> tuple[float, float]:
    """Shares of what is computed and of what is reduced beside backward that follow each other, at a pace.

    Below stage 3 backward waits at each bucket for the one before it (`stage_1_and_2.py:average_tensor`), so
    between two of them it takes as long as the longer of the two: buckets of equal size are made of tensors
    with more or less to compute.
    """
    full = f.plan.activation_checkpointing == Checkpointing.FULL
    shares = (
        each(
            lambda bucket, full, end=end: uneven(f.workload.model, bucket, bool(full), pace)[end],
            f.knobs.reduce_bucket,
            full,
        )
        for end in (0, 1)
    )
    computed, reduced = shares
    return computed, reduced


@lru_cache(maxsize=1024)
def uneven(model: Model, bucket_params: float, full: bool, pace: int) -> tuple[float, float]:
    """The same of buckets so large, with layers recomputed in `full` or not at all."""
    works, sizes = _between(_backward(model, full), bucket_params)
    computed, reduced = sum(works[1:]), sum(sizes[:-1])
    if not computed or not reduced:
        return 1.0, 0.0
    shares = [(work / computed, size / reduced) for work, size in zip(works[1:], sizes, strict=False)]
    waits = [REDUCE_PACES[pace] * size > work for work, size in shares]
    return (
        sum(work for (work, _), waited in zip(shares, waits, strict=True) if not waited),
        sum(size for (_, size), waited in zip(shares, waits, strict=True) if waited),
    )


def _between(made: Iterable[tuple[int, float]], bucket_params: float) -> tuple[list[float], list[int]]:
    """What is computed until each bucket is reduced, and its elements; the last is reduced at the end."""
    works, sizes = [0.0], [0]
    for elements, work in made:
        works[-1] += work
        if sizes[-1] and sizes[-1] + elements > bucket_params:
            works.append(0.0)
            sizes.append(0)
        sizes[-1] += elements
    return works, sizes


def _backward(model: Model, full: bool) -> Iterator[tuple[int, float]]:
    """Elements of each gradient as backward makes them, and what is computed for it since the one before."""
    for section in reversed(model.sections):
        once: list[tuple[int, float]] = []
        for layer in reversed(as_made(model, section)):
            again = full * section.block * sum(operator.matmul_params for operator in layer)
            for operator in reversed(layer):
                sizes = operator.tensors[::-1] if operator.trainable else (0,)
                work = again + operator.matmul_params * (1.0 + operator.trainable)
                again = 0
                once += [(size, work * (place == 0)) for place, size in enumerate(sizes)]
        for _ in range(section.repeat):
            yield from once
