"""Batch arithmetic: which micro-batch sizes and accumulation steps are worth asking about."""

from __future__ import annotations

from math import isqrt

from ziplan.errors import BadInput
from ziplan.hardware.cluster import Cluster
from ziplan.runtimes.runtime import Axis
from ziplan.units import counted
from ziplan.workload.loss import LOGIT_BYTES
from ziplan.workload.training import Training, Workload

MOST_TOKENS_PER_STEP = 4_194_304
"""Tokens of one optimizer step beyond which no batch is proposed unless it is asked for."""

Pair = tuple[int, int]
"""Micro-batch size and accumulation steps."""


def batch_axis(cluster: Cluster, workload: Workload, dp_degree: int) -> Axis:
    """The axis of micro-batch size and accumulation steps: one axis, because their product is bounded.

    A micro-batch whose logits alone exceed the GPU is left out where there is another one:
    memory only grows with it.
    """
    training, largest = workload.training, _largest_micro_batch(cluster, workload)
    if training.global_batch_size is not None:
        pairs = _of_the_batch(training, training.global_batch_size, dp_degree)
        pairs = [pair for pair in pairs if pair[0] <= largest] or pairs[:1]
    else:
        pairs = _free(training, largest, dp_degree)
    choices = (
        {"micro_batch_size": float(micro), "accumulation_steps": float(steps)} for micro, steps in pairs
    )
    return Axis("batch", tuple(choices))


def splits(global_batch: int, dp_degree: int) -> bool:
    """Whether a global batch can be split evenly over so many ranks."""
    return global_batch % dp_degree == 0


def _of_the_batch(training: Training, global_batch: int, dp_degree: int) -> list[Pair]:
    """Every way to split the global batch that agrees with what else is asked."""
    if not splits(global_batch, dp_degree):
        below = global_batch // dp_degree * dp_degree
        raise BadInput.of(
            f"global_batch_size {global_batch:,} cannot be split over {counted(dp_degree, 'rank')}",
            code="ZP020",
            help=f"use {_either([size for size in (below, below + dp_degree) if size])}",
        )
    per_rank = global_batch // dp_degree
    pairs = [(micro, per_rank // micro) for micro in _divisors(per_rank)]
    micro, steps = training.micro_batch_size, training.accumulation_steps
    asked = [pair for pair in pairs if micro in (None, pair[0]) and steps in (None, pair[1])]
    if not asked:
        raise _no_such_split(training, [size for size, _ in pairs], dp_degree)
    return asked


def _divisors(number: int) -> list[int]:
    small = [divisor for divisor in range(1, isqrt(number) + 1) if number % divisor == 0]
    return small + [number // divisor for divisor in reversed(small) if divisor * divisor != number]


def _no_such_split(training: Training, divisors: list[int], dp_degree: int) -> BadInput:
    micro, steps = training.micro_batch_size, training.accumulation_steps
    if micro and steps:
        made = micro * steps * dp_degree
        remedy = f"{micro:,} x {steps:,} x {dp_degree:,} = {made:,}; leave one of the three out"
    else:
        name, wrong = ("micro_batch_size", micro) if micro else ("accumulation_steps", steps)
        remedy = f"use {name} {_either(_nearest(divisors, wrong or 1))}"
    return BadInput.of(
        f"global_batch_size {training.global_batch_size:,} is not micro_batch_size x accumulation_steps x "
        f"{counted(dp_degree, 'rank')} with " + " and ".join(_stated(micro, steps)),
        code="ZP020",
        help=remedy,
    )


def _stated(micro: int | None, steps: int | None) -> list[str]:
    given = (("micro_batch_size", micro), ("accumulation_steps", steps))
    return [f"{name} {value:,}" for name, value in given if value]


def _nearest(divisors: list[int], wrong: int) -> list[int]:
    below = [size for size in divisors if size < wrong][-1:]
    return below + [size for size in divisors if size > wrong][:1]


def _either(sizes: list[int]) -> str:
    return " or ".join(str(size) for size in sizes)


def _largest_micro_batch(cluster: Cluster, workload: Workload) -> int:
    gpu = cluster.node.tiers[cluster.node.gpu_tier]
    model, (least, _) = workload.model, LOGIT_BYTES[workload.training.loss]
    logits = least * model.logits_share * model.vocab_size * workload.training.sequence_length
    return max(1, int(gpu.capacity / logits))


def _free(training: Training, largest: int, dp_degree: int) -> list[Pair]:
    """Powers of two and three times those, up to the most tokens; the least there is, where all exceed it."""
    most = max(1, MOST_TOKENS_PER_STEP // (training.sequence_length * dp_degree))
    sizes = sorted(size for power in range(12) for size in (2**power, 3 * 2**power) if size <= largest)
    micros = [training.micro_batch_size] if training.micro_batch_size else sizes
    counts = [training.accumulation_steps] if training.accumulation_steps else [2**k for k in range(23)]
    pairs = [(micro, steps) for micro in micros for steps in counts]
    return [(micro, steps) for micro, steps in pairs if micro * steps <= most] or pairs[:1]
