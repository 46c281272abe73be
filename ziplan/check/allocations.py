"""Reading a failed allocation back: which line of the ledger, or which tensor, has the size asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ziplan.check.case import Case
from ziplan.laws.law import Step
from ziplan.runtimes.shared.facts import ELEMENT_BYTES, FP32_BYTES
from ziplan.units import BINARY

_SIZE = re.compile(
    r"(?:tried to allocate|allocating|allocate)\D{0,20}?(?P<number>[0-9][0-9,]*(?:\.[0-9]+)?)\s*"
    r"(?P<unit>[KMGT]i?B|bytes?|B)?",
    re.IGNORECASE,
)
_SWAP = re.compile(r"More elements (?P<number>[0-9]+) than buffer size")

GPU_BLOCK = 2.0 * 1024**2
"""PyTorch's CUDA allocator asks for blocks of 10 MiB and more in multiples of this
(`c10/cuda/CUDACachingAllocator.cpp`, kRoundLarge)."""

FROM = 10.0 * 1024**2
"""Bytes from which on it does."""


class Failed(NamedTuple):
    """The size that a message has: bytes, how far off its digits leave it, and whether they are elements."""

    amount: float
    within: float
    elements: bool = False
    of_gpu: bool = False
    """Whether it is the GPU's allocator that says it."""

    def matches(self, amount: float) -> bool:
        """Whether so many bytes (or elements) are printed like that, as they are or as they are asked for."""
        rounded = -(-amount // GPU_BLOCK) * GPU_BLOCK if amount >= FROM and not self.elements else amount
        return any(abs(value - self.amount) <= self.within for value in (amount, rounded))


class Cause(NamedTuple):
    """Something of the size that was asked for: what, where, how it comes to that size, what changes it."""

    name: str
    where: str
    amount: float
    formula: str
    knob: str = ""


def failed(text: str) -> Failed | None:
    """What a message of PyTorch, DeepSpeed or the allocator asked for; None where it says no size."""
    swap = _SWAP.search(text)
    if swap is not None:
        return Failed(float(swap["number"]), 0.5, elements=True)
    match = _SIZE.search(text)
    if match is None:
        return None
    number, unit = match["number"].replace(",", ""), match["unit"] or "bytes"
    scale = _scale(unit)
    digits = len(number.partition(".")[2])
    of_gpu = re.search(r"(?i)\b(CUDA|HIP|GPU)\b", text) is not None
    return Failed(float(number) * scale, 0.5 * 10.0**-digits * scale, of_gpu=of_gpu)


def _scale(unit: str) -> float:
    if unit.lower().startswith("byte") or unit == "B":
        return 1.0
    prefix = unit[:-1]
    if prefix.endswith("i"):
        return BINARY[prefix[:1].upper() + "i"]
    # PyTorch before 2.1 prints "GB" and "MB" for 2^30 and 2^20, as DeepSpeed still does.
    return BINARY[prefix.upper() + "i"]


def causes(case: Case, asked: Failed) -> list[Cause]:
    """Everything of this size: lines of the ledger first, then sums of parameters, then single tensors.

    What is known to be on another tier than the one that the message is of comes last.
    """
    every = _elements(case) if asked.elements else (*_lines(case), *_sums(case), *_tensors(case))
    found = list(dict.fromkeys(cause for cause in every if asked.matches(cause.amount)))
    tier = case.gpu if asked.of_gpu else None
    return sorted(found, key=lambda cause: tier is not None and cause.where not in ("", tier))


def _lines(case: Case) -> Iterator[Cause]:
    """Lines of the ledger, of one rank and of one pinned block of it."""
    if case.estimate is None or case.plan is None:
        return
    tiers = case.cluster.node.tiers
    for line in case.estimate.ledger.lines:
        tier = tiers.get(line.tier)
        shared = tier is not None and tier.scope == "node"
        ranks = min(float(case.cluster.node.gpus_per_node), float(case.plan.dp_degree)) if shared else 1.0
        whose = f", of one of {ranks:,.0f} ranks" if ranks > 1 else ""
        how = _told(line.step) if line.step else ""
        each = f"({how}) / {ranks:,.0f}" if how and ranks > 1 else how
        if line.high > 0:
            yield Cause(f"{line.name}{whose}", line.tier, line.high / ranks, each, line.knob)
        if 0 < line.low < line.high:
            yield Cause(f"{line.name}{whose}, at the least", line.tier, line.low / ranks, "", line.knob)


def _told(step: Step) -> str:
    """A law's expression with its numbers, each with its unit."""
    units = step.law.units
    return step.law.with_numbers(
        {name: _exact(float(value), units[name].symbol) for name, value in step.arguments.items()}
    )


def _exact(value: float, unit: str) -> str:
    """A number to its last digit: sizes are told apart by it."""
    digits = f"{value:,.0f}" if value.is_integer() else f"{value:g}"
    return digits if unit == "1" else f"{digits} {unit}"


def _sums(case: Case) -> Iterator[Cause]:
    """All parameters, a rank's share of them, and its largest sub-group, at 2 and at 4 bytes."""
    assert case.plan is not None
    model, ranks = case.workload.model, float(case.plan.dp_degree)
    parts = [("all parameters", float(model.params), f"{model.params:,}")]
    parts.append(
        ("a rank's share of the parameters", model.params / ranks, f"{model.params:,} / {ranks:,.0f}")
    )
    if model.trainable_params != model.params:
        trained = model.trainable_params / ranks
        parts.append(
            ("a rank's share of what is trained", trained, f"{model.trainable_params:,} / {ranks:,.0f}")
        )
    if case.facts is not None:
        group = case.facts.sub_group
        parts.append(("the largest sub-group of a rank", group, f"{group:,.0f}"))
    for name, elements, how in parts:
        for size in _sizes(case):
            yield Cause(
                name, "", size * elements, f"{how} x {size:.0f} B", "zero_optimization.stage, offload"
            )


def _tensors(case: Case) -> Iterator[Cause]:
    """Each matrix, whole and as a rank's shard; logits of a micro-step."""
    assert case.plan is not None
    ranks, model = float(case.plan.dp_degree), case.workload.model
    for operator in model.operators:
        for elements in sorted(set(operator.tensors)):
            for size in _sizes(case):
                whole = f"{elements:,} x {size:.0f} B"
                yield Cause(f"tensor of {operator.name}", "", size * elements, whole, "the model's width")
                shard = f"ceil({elements:,} / {ranks:,.0f}) x {size:.0f} B"
                amount = size * -(-elements // int(ranks))
                yield Cause(f"a rank's shard of {operator.name}", "", amount, shard, "dp_degree")
    sequences = int(case.plan.micro_batch_size)
    tokens = sequences * case.workload.training.sequence_length
    for size in _sizes(case):
        logits = f"{tokens:,} tokens x {model.vocab_size:,} x {size:.0f} B"
        knob = "micro_batch_size, sequence_length"
        yield Cause("logits of one micro-step", case.gpu, size * tokens * model.vocab_size, logits, knob)
        yield from _scores(case, sequences, size)


def _scores(case: Case, sequences: int, size: float) -> Iterator[Cause]:
    """Attention scores of one layer without a fused kernel, of a sequence and of a micro-batch."""
    length, heads = case.workload.training.sequence_length, case.workload.model.attention_heads
    for count in sorted({1, sequences}):
        how = f"{count} x {heads} heads x {length:,} x {length:,} x {size:.0f} B"
        amount = size * count * heads * length * length
        yield Cause("attention scores of one layer", case.gpu, amount, how, "attention: flash")


def _elements(case: Case) -> Iterator[Cause]:
    """Shards of tensors, in elements, that a swap buffer has to hold."""
    assert case.plan is not None
    ranks = int(case.plan.dp_degree)
    for operator in case.workload.model.operators:
        for elements in sorted(set(operator.tensors)):
            how = f"ceil({elements:,} / {ranks:,})"
            shard = float(-(-elements // ranks))
            yield Cause(f"a rank's shard of {operator.name}", "", shard, how, "offload_param.buffer_size")


def _sizes(case: Case) -> tuple[float, ...]:
    """Bytes of an element in the precision that computes, and in fp32."""
    return tuple(dict.fromkeys((ELEMENT_BYTES[case.workload.precision], FP32_BYTES)))
