"""ZP101 to ZP105: memory that runs out, or may, tier by tier. The ledger says how much."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ziplan.check.case import Case
from ziplan.check.finding import Hit, Number, Rule
from ziplan.runtimes.runtime import MEMLOCK, Line
from ziplan.units import show

NAMED_LINES = 3
"""Lines that a finding about a whole tier names."""


def size(amount: float) -> str:
    """Bytes for people."""
    return show(amount, "B", 3)


def largest(lines: Iterable[Line]) -> str:
    """The largest lines in words."""
    return ", ".join(f"{each.name} {size(each.high)}" for each in list(lines)[:NAMED_LINES])


def changes(lines: Iterable[Line]) -> str:
    """What changes the largest lines."""
    named = [f"{each.name} by {each.knob}" for each in list(lines)[:NAMED_LINES] if each.knob]
    return f"change {'; '.join(named)}" if named else ""


def lacks(medium: str) -> Callable[[Case], Iterator[Hit]]:
    """A rule's function: the tier of this medium holds less than the low end of what is needed."""

    def find(case: Case) -> Iterator[Hit]:
        tier = case.cluster.node.tier_of(medium)  # type: ignore[arg-type]
        yield from _lacking(case, tier)

    return find


def _lacking(case: Case, tier: str | None) -> Iterator[Hit]:
    memory = case.memory.get(tier) if tier else None
    if memory is None or tier is None or memory.low <= memory.available:
        return
    phase = max(memory.phases, key=lambda name: memory.phases[name])
    lines = [line for line in case.lines(tier) if phase in line.phases]
    yield Hit(
        f"{tier} runs out in {phase}: {size(memory.low)} to {size(memory.high)} needed, "
        f"{size(memory.available)} there; largest: {largest(lines)}",
        field="placement",
        key="zero_optimization",
        fix=changes(lines),
        number=Number(memory.low - memory.available, "B"),
    )


def memlock(case: Case) -> Iterator[Hit]:
    """The swap buffers of one process are more than it may lock."""
    yield from _lacking(case, MEMLOCK)


def tight(case: Case) -> Iterator[Hit]:
    """The low end is there and the high end is not."""
    for tier, memory in case.memory.items():
        if not memory.low <= memory.available < memory.high:
            continue
        phase = max(memory.phases, key=lambda name: memory.phases[name][1])
        wide = [line for line in case.lines(tier) if phase in line.phases and line.high > line.low]
        wide.sort(key=lambda line: line.low - line.high)
        yield Hit(
            f"{tier} may run out in {phase}: {size(memory.low)} to {size(memory.high)} needed, "
            f"{size(memory.available)} there; least known: {largest(wide)}",
            key="zero_optimization",
            field="placement",
            fix=changes(wide),
            number=Number(memory.high - memory.available, "B"),
        )


CAPACITY = (
    Rule(
        "ZP101",
        "GPU memory runs out",
        "error",
        lacks("hbm"),
        "The least that a phase needs of a GPU is more than the GPU has.",
        "The run ends in `CUDA out of memory`. Most such runs die while they load or start, not in the "
        "steady state, "
        "so each phase is compared on its own.",
        "micro-batch 16 of 8,192 tokens without activation checkpointing on a 24 GB card",
        "Change what the largest lines depend on: micro-batch, checkpointing, stage, offload, buckets.",
    ),
    Rule(
        "ZP102",
        "Host memory runs out",
        "error",
        lacks("dram"),
        "The least that a phase needs of a node's DRAM is more than the node has after the reserve.",
        "The kernel ends a process with signal 9; there is no message, and GPUs may be half empty.",
        "a 70B model with optimizer and parameters on the CPU: about 22 bytes per parameter, 1.5 TB",
        "Less on the host: NVMe for the optimizer, zero.Init while loading, a smaller sub_group_size, more "
        "nodes.",
    ),
    Rule(
        "ZP103",
        "Drives are full",
        "error",
        lacks("nvme"),
        "Parameter, optimizer and gradient files are more than a node's drives hold after the reserve.",
        "A write fails, and the next read dies with a file that is shorter than its tensor.",
        "a trillion parameters on one node with 8 TB of flash: 18 bytes per parameter are needed",
        "More or larger drives, or more nodes.",
    ),
    Rule(
        "ZP104",
        "More locked memory than a process may have",
        "error",
        memlock,
        "Swap buffers are locked with mlock, and one process locks more than `memlock_limit` of the machine.",
        "mlock fails with `Cannot allocate memory` when the buffers are made, while most of the host is "
        "free.",
        "four buffers of 1e9 fp32 elements under `ulimit -l` of 8 GiB",
        "`ulimit -l unlimited` (memlock in limits.conf, --ulimit memlock=-1 in a container), or smaller "
        "sub-groups.",
    ),
    Rule(
        "ZP105",
        "It may not fit",
        "warning",
        tight,
        "The low end of a need is there and the high end is not.",
        "Whether it runs depends on what is not known: kernels, allocator, who reads the checkpoint.",
        "78 to 83 GB needed of an 80 GiB GPU in backward",
        "State what is unknown (training.loading, optimizer.fused, ...), or leave more room.",
    ),
)
