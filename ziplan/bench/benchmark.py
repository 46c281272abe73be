"""What a benchmark is, and the list of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import NamedTuple, cast

from ziplan.bench.measurement import Measured, Result, Sampling
from ziplan.bench.topology import Topology

GIB = 2**30
MOST_WRITTEN, MOST_WRITTEN_QUICKLY = 256.0 * GIB, 64.0 * GIB
"""Bytes that a run, and a quick one, writes at the most unless told otherwise."""


class Cost(NamedTuple):
    """What a benchmark will take: seconds of wall clock, and bytes written to drives in all."""

    seconds: float
    bytes_written: float = 0.0


@dataclass(frozen=True)
class Options:
    """What the user asked for: folders to measure, and the most bytes to write, all drives together."""

    quick: bool = False
    storage: tuple[str, ...] = ()
    max_write: float = MOST_WRITTEN

    @property
    def sampling(self) -> Sampling:
        """How many windows a measurement takes: seven at the least, also of a quick run."""
        return Sampling() if not self.quick else Sampling(retry=False)


@dataclass(frozen=True)
class Task:
    """What a benchmark is run with.

    `earlier` holds by name what benchmarks before it measured; `seconds` is the time that it may take
    (past it, it is ended), `bytes_left` the bytes that it may still write.
    """

    topology: Topology
    options: Options = Options()
    earlier: Mapping[str, Measured] = field(default_factory=dict)
    seconds: float = float("inf")
    bytes_left: float = float("inf")


@dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    `run` yields each result as it comes: a crash keeps those before it. It runs in a process of its own,
    with a watchdog, so it may import what it likes and need not clean up memory; it must leave no file
    behind however it ends. It yields a `Waived` for what it cannot measure; a CannotMeasure that it
    raises waives the rest of it. `cost` runs in the command itself and imports nothing large.
    """

    name: str
    what: str
    cost: Callable[[Task], Cost]
    run: Callable[[Task], Iterator[Result]]


REGISTRY: dict[str, str] = {
    "ziplan.bench.host.dram": "host memory",
    "ziplan.bench.host.optimizer": "the optimizer on the host",
    "ziplan.bench.storage.benchmarks": "drives",
    "ziplan.bench.cuda.benchmarks": "GPUs",
}
"""Sub-package or module to what it measures; each has a tuple `BENCHMARKS`. In the order of running."""


def benchmarks() -> tuple[Benchmark, ...]:
    """All benchmarks, in the order in which they run."""
    return tuple(
        benchmark
        for module in REGISTRY
        for benchmark in cast("tuple[Benchmark, ...]", import_module(module).BENCHMARKS)
    )
