"""When gradients are reduced while backward runs: a bucket at a time, and the last one when it has ended.

Buckets fill up in the order in which backward makes gradients, and one is reduced when the next tensor does
not fit (`reduce_independent_p_g_buckets_and_remove_grads` of `stage_1_and_2.py` and of `stage3.py`); what is
in the last one is reduced by `independent_gradient_partition_epilogue`, beside which nothing computes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.knobs import each
from ziplan.runtimes.deepspeed.shards import in_module_order
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
