"""Bandwidth of host memory: copy and scale of large arrays, a thread on each core."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ziplan.bench import names
from ziplan.bench.benchmark import Benchmark, Cost, Task
from ziplan.bench.measurement import CannotMeasure, Measured, Result, steadiest, summary
from ziplan.bench.timeline import Step, at_once, slices_of, steady
from ziplan.units import show

MIB = 2**20
LEAST_IN_ALL = 1024 * MIB
"""Bytes of all arrays together: beyond the last-level caches where there are few cores."""
LEAST_OF_A_THREAD = 64 * MIB
"""Bytes of an array where there are many: beyond what a core has of any last-level cache."""
MOST_SHARE = 1 / 8
"""Of the memory that is there, what arrays may take."""
STARTING_SECONDS = 2.0
"""A process of its own with numpy, and touching the arrays for the first time."""
SLICE = 0.1
SAMPLES = 7

COUNTED = "read and written bytes both counted (a write that reads its line first is counted once)"


def _seconds(task: Task) -> float:
    return 2.0 if task.options.quick else 3.0


def _array_bytes(task: Task) -> int:
    """Bytes of one array of a thread, of which it has two."""
    threads = len(task.topology.working_cpus)
    wanted = max(LEAST_OF_A_THREAD, LEAST_IN_ALL // threads // 2)
    limit = task.topology.memory_limit_bytes or task.topology.memory_bytes
    allowed = int(MOST_SHARE * limit / threads / 2) if limit else wanted
    size = min(wanted, allowed) // MIB * MIB
    if size < MIB:
        raise CannotMeasure(f"{show(limit, 'B')} of memory are too little for arrays beyond the caches")
    return size


def _on(cpu: int, size: int, kind: str) -> Callable[[], Step]:
    """What a thread does: it binds itself to a core, so that the arrays lie in the memory next to it."""

    def make() -> Step:
        # Where binding is not allowed, the scheduler keeps threads apart well enough.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {cpu})
        source = np.tile(np.random.default_rng(cpu).standard_normal(MIB // 8), size // MIB)
        target = np.empty_like(source)
        target[:] = source

        def copy() -> bool:
            np.copyto(target, source)
            return True

        def scale() -> bool:
            np.multiply(source, 3.0, out=target)
            return True

        return copy if kind == "copy" else scale

    return make


def _run(task: Task) -> Iterator[Result]:
    for kind, name in (("copy", names.DRAM_COPY), ("scale", names.DRAM_SCALE)):
        yield steadiest(partial(_measured, task, kind, name), task.options.sampling.tries)


def _measured(task: Task, kind: str, name: str) -> Measured:
    size, cpus = _array_bytes(task), task.topology.working_cpus
    done = at_once([_on(cpu, size, kind) for cpu in cpus], _seconds(task))
    both = done.of(range(len(cpus)), 2.0 * size)
    rates = steady(both.rates(0.0, done.full, slices_of(done.full, SLICE, SAMPLES)), SAMPLES)
    method = f"numpy {kind}, {len(cpus)} threads, two arrays of {show(size, 'B')} each, {COUNTED}"
    return summary(name, "B/s", rates, method)


def _cost(task: Task) -> Cost:
    return Cost(STARTING_SECONDS + 2 * task.options.sampling.tries * _seconds(task))


BENCHMARKS = (Benchmark("dram", "host memory: copy and scale, all cores", _cost, _run),)
