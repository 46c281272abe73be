"""Batch arithmetic: which micro-batch sizes and accumulation steps are worth asking about."""

from __future__ import annotations

from collections.abc import Mapping

from ziplan.errors import BadInput
from ziplan.hardware.cluster import Cluster
from ziplan.runtimes.runtime import Axis
from ziplan.workload.training import Workload

MOST_TOKENS_PER_STEP = 4_194_304
"""Tokens of one optimizer step beyond which no batch is proposed unless it is asked for."""

LOGIT_BYTES = 6.0
"""The least that one token's logits take per vocabulary entry: 16 bit and fp32."""


def batch_axes(cluster: Cluster, workload: Workload, dp_degree: int) -> tuple[Axis, ...]:
    """The axes of micro-batch size and accumulation steps.

    With a global batch they are one axis, because their product is settled. A micro-batch whose
    logits alone exceed the GPU is left out: memory only grows with it.
    """
    training = workload.training
    if training.global_batch_size is not None:
        per_rank = _per_rank(training.global_batch_size, dp_degree)
        pairs = [(micro, per_rank // micro) for micro in range(1, per_rank + 1) if per_rank % micro == 0]
        pairs = [
            pair for pair in pairs if _asked(pair, training.micro_batch_size, training.accumulation_steps)
        ]
        if not pairs:
            _refuse(workload, dp_degree)
        largest = _largest_micro_batch(cluster, workload)
        kept = [pair for pair in pairs if pair[0] <= largest] or pairs[:1]
        return (Axis("batch", tuple(_fields(*pair) for pair in kept)),)
    micro = [training.micro_batch_size] if training.micro_batch_size else _micro_batches(cluster, workload)
    steps = [training.accumulation_steps] if training.accumulation_steps else _steps(workload, dp_degree)
    return (
        Axis("micro-batch", tuple({"micro_batch_size": float(size)} for size in micro)),
        Axis("accumulation", tuple({"accumulation_steps": float(count)} for count in steps)),
    )


def _fields(micro: int, steps: int) -> Mapping[str, float]:
    return {"micro_batch_size": float(micro), "accumulation_steps": float(steps)}


def _asked(pair: tuple[int, int], micro: int | None, steps: int | None) -> bool:
    return micro in (None, pair[0]) and steps in (None, pair[1])


def _per_rank(global_batch: int, dp_degree: int) -> int:
    if global_batch % dp_degree:
        below = global_batch // dp_degree * dp_degree
        near = " or ".join(str(size) for size in (below, below + dp_degree) if size)
        raise BadInput.of(
            f"global_batch_size {global_batch} cannot be split over {dp_degree} ranks",
            code="ZP020",
            help=f"use {near}",
        )
    return global_batch // dp_degree


def _refuse(workload: Workload, dp_degree: int) -> None:
    training = workload.training
    micro, steps = training.micro_batch_size or 1, training.accumulation_steps or 1
    raise BadInput.of(
        f"global_batch_size {training.global_batch_size} is not micro_batch_size x accumulation_steps x "
        f"{dp_degree} ranks",
        code="ZP020",
        help=f"{micro} x {steps} x {dp_degree} = {micro * steps * dp_degree}; leave one of them out",
    )


def _largest_micro_batch(cluster: Cluster, workload: Workload) -> int:
    gpu = next(tier for tier in cluster.node.tiers.values() if tier.scope == "gpu")
    logits = LOGIT_BYTES * workload.model.vocab_size * workload.training.sequence_length
    return max(1, int(gpu.capacity / logits))


def _micro_batches(cluster: Cluster, workload: Workload) -> list[int]:
    largest = _largest_micro_batch(cluster, workload)
    sizes = {size for power in range(12) for size in (2**power, 3 * 2**power) if size <= largest}
    return sorted(sizes)


def _steps(workload: Workload, dp_degree: int) -> list[int]:
    most = max(1, MOST_TOKENS_PER_STEP // (workload.training.sequence_length * dp_degree))
    return [2**power for power in range(most.bit_length()) if 2**power <= most]
