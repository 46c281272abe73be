"""What drives deliver: each folder alone, then all at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from ziplan.bench import names
from ziplan.bench.benchmark import Benchmark, Cost, Task
from ziplan.bench.measurement import (
    SHORTEST_WINDOW,
    CannotMeasure,
    Measured,
    Noted,
    Result,
    Waived,
    steadiest,
    summary,
)
from ziplan.bench.storage.load import MIB, Run, Stream, run
from ziplan.bench.storage.plan import (
    BURST_SECONDS,
    DEPTHS,
    MIXED_SHARE,
    SMALLEST_FILE,
    STARTING_SECONDS,
    Times,
    apart,
    file_size,
    measurable,
    times,
    with_room,
    write_share,
)
from ziplan.bench.storage.scratch import Scratch, scratch
from ziplan.bench.timeline import slices_of, steady
from ziplan.bench.topology import FoundFolder
from ziplan.runtimes.deepspeed.knobs import AIO
from ziplan.units import show

SAMPLES = 7
QUANTITIES = ("write_bandwidth", "read_bandwidth", "mixed_read_bandwidth", "mixed_write_bandwidth")
FULL_DEPTH = 16
"""Operations in flight where none was found to be better."""
AS_GOOD = 0.98
"""A depth is enough where it reaches this share of the best."""


class _File(NamedTuple):
    """A folder being measured: its file, how much of it may be used, and for how long what is done."""

    folder: FoundFolder
    scratch: Scratch
    size: int
    times: Times

    def name(self, quantity: str) -> str:
        return names.storage(self.folder.label, quantity)

    def stream(self, mode: str, extent: int, threads: int, most: float | None = None) -> Stream:
        return Stream(
            fd=self.scratch.fd,
            mode="write" if mode == "write" else "read",
            extent=extent,
            label=self.folder.path,
            threads=threads,
            most=None if most is None else max(1, int(most // MIB)),
        )

    def method(self, what: str, threads: int, extent: int) -> str:
        """How it was done, in words."""
        return (
            f"{what}: {threads} threads of 1 MiB, O_DIRECT ({self.scratch.proof}), random data, "
            f"file of {show(extent, 'B')} on {self.folder.filesystem}"
        )


def _alone(task: Task) -> Iterator[Result]:
    share = write_share(task, len(measurable(task.topology.folders)))
    if not task.topology.folders:
        reason = "no folder on a drive was given or found: --storage DIR"
        yield Waived(name="storage.read_bandwidth", reason=reason)
        yield Waived(name="storage.write_bandwidth", reason=reason)
    for folder in task.topology.folders:
        done: set[str] = set()
        try:
            for result in _folder(task, folder, share):
                done.add(result.name)
                yield result
        except (CannotMeasure, OSError) as error:
            for quantity in QUANTITIES:
                if (name := names.storage(folder.label, quantity)) not in done:
                    yield Waived(name=name, reason=str(error))


def _folder(task: Task, folder: FoundFolder, share: float) -> Iterator[Result]:
    with scratch(folder.path) as opened:
        size = file_size(folder.path, task.options)
        plan = times(task.options, len(measurable(task.topology.folders)))
        file = _File(folder, opened, size, plan)
        stream = file.stream("write", size, FULL_DEPTH, share * (1 - MIXED_SHARE))
        wrote = run([stream], plan.write)
        yield from _written(file, wrote)
        extent = _extent(size, wrote)
        depth = _depth(file, extent)
        yield _aio(file, depth)
        yield steadiest(lambda: _read(file, extent, depth), task.options.sampling.tries)
        yield from _mixed(file, extent, share * MIXED_SHARE)


def _extent(size: int, wrote: Run) -> int:
    """Bytes of the file that hold data: unwritten ones read faster than any drive."""
    extent = int(min(size, wrote.streams[0].amount))
    if extent < SMALLEST_FILE:
        raise CannotMeasure(f"only {show(extent, 'B')} could be written, too little to read from")
    return extent


def _written(file: _File, wrote: Run) -> Iterator[Measured | Waived]:
    """The first seconds, and the last third, of which each slice bears its part of the final sync.

    What was written too soon to tell a rate can be read all the same.
    """
    amount, full = wrote.streams[0].amount, wrote.full
    if full / 3 < SAMPLES * SHORTEST_WINDOW:
        reason = f"--max-write ended the write after {show(full, 's')}, too soon to tell a rate"
        for quantity in ("write_burst_bandwidth", "write_bandwidth"):
            yield Waived(name=file.name(quantity), reason=reason)
        return
    how = f"{file.method('pwritev', FULL_DEPTH, file.size)}; {show(amount, 'B')} written in {show(full, 's')}"
    burst_end = min(BURST_SECONDS, full)
    slices = slices_of(full / 3, file.times.slice, SAMPLES)
    burst = wrote.rates(0, SAMPLES, 0.0, burst_end)
    yield summary(
        file.name("write_burst_bandwidth"), "B/s", burst, f"{how}: the first {show(burst_end, 's')}"
    )
    synced = full / (full + wrote.sync_seconds)
    tail = [synced * rate for rate in wrote.rates(0, slices, 2 * full / 3)]
    yield summary(file.name("write_bandwidth"), "B/s", tail, f"{how}: the last third, fdatasync included")


def _depth(file: _File, extent: int) -> int:
    """The fewest operations in flight that read as fast as the most do."""
    rates = {}
    for threads in DEPTHS:
        tried = run([file.stream("read", extent, threads)], file.times.depth)
        rates[threads] = tried.rates(0, 1, tried.full / 4)[0]
    best = max(rates.values())
    return min(threads for threads, rate in rates.items() if rate >= AS_GOOD * best)


def _aio(file: _File, depth: int) -> Noted:
    """A DeepSpeed config's `aio` for this folder (deepspeed/runtime/swap_tensor/aio_config.py)."""
    section = {**AIO, "block_size": MIB, "queue_depth": depth}
    tried = ", ".join(map(str, DEPTHS))
    method = f"the fewest reads in flight, of {tried}, within {1 - AS_GOOD:.0%} of the best"
    return Noted(name=file.name("aio"), text=json.dumps(section), method=method)


def _read(file: _File, extent: int, threads: int) -> Measured:
    """Reading alone."""
    read = run([file.stream("read", extent, threads)], file.times.read)
    rates = steady(read.rates(0, slices_of(read.full, file.times.slice, SAMPLES)), SAMPLES)
    return summary(file.name("read_bandwidth"), "B/s", rates, file.method("preadv", threads, extent))


def _mixed(file: _File, extent: int, most: float) -> Iterator[Measured]:
    """Reading and writing at once, half of the operations each."""
    half = FULL_DEPTH // 2
    both = run(
        [file.stream("read", extent, half), file.stream("write", extent, half, most)], file.times.mixed
    )
    if both.full < SAMPLES * SHORTEST_WINDOW:
        raise CannotMeasure(f"--max-write ended it after {show(both.full, 's')}, too soon to tell a rate")
    slices = slices_of(both.full, file.times.slice, SAMPLES)
    for index, mode in enumerate(("read", "write")):
        rates = steady(both.rates(index, slices), SAMPLES)
        method = file.method(f"{mode} while the other goes on", half, extent)
        yield summary(file.name(f"mixed_{mode}_bandwidth"), "B/s", rates, method)


def _together(task: Task) -> Iterator[Result]:
    """All folders that share no drive, at once."""
    folders = apart(task.topology.folders)
    if len(folders) < 2:
        return
    plan, share = times(task.options, len(folders)), write_share(task, len(folders))
    with ExitStack() as stack:
        files = []
        for folder in folders:
            opened = stack.enter_context(scratch(folder.path))
            files.append(_File(folder, opened, file_size(folder.path, task.options), plan))
        streams = [file.stream("write", file.size, FULL_DEPTH, share) for file in files]
        wrote = run(streams, plan.write_all)
        rates = _sums(wrote, len(files), slices_of(wrote.full / 3, plan.slice, SAMPLES), 2 * wrote.full / 3)
        synced = wrote.full / (wrote.full + wrote.sync_seconds)
        paths = ", ".join(folder.path for folder in folders)
        how = f"{len(files)} folders at once ({paths}), {FULL_DEPTH} threads of 1 MiB each, O_DIRECT"
        name = names.storage("all", "write_bandwidth")
        yield summary(name, "B/s", [synced * rate for rate in rates], f"{how}: the last third of writing")
        extents = [int(min(file.size, done.amount)) for file, done in zip(files, wrote.streams, strict=True)]
        if min(extents) < SMALLEST_FILE:
            raise CannotMeasure("too little could be written to read from")
        reads = [file.stream("read", extent, FULL_DEPTH) for file, extent in zip(files, extents, strict=True)]
        read = run(reads, plan.read_all)
        rates = _sums(read, len(files), slices_of(read.full, plan.slice, SAMPLES), 0.0)
        yield summary(names.storage("all", "read_bandwidth"), "B/s", steady(rates, SAMPLES), how)


def _sums(done: Run, streams: int, slices: int, begin: float) -> list[float]:
    """Rates of all streams together, in the time in which all of them ran."""
    each = [done.rates(index, slices, begin) for index in range(streams)]
    return [sum(rates) for rates in zip(*each, strict=True)]


def _cost_alone(task: Task) -> Cost:
    folders = measurable(task.topology.folders)
    plan = times(task.options, len(folders))
    # Reading may be taken twice.
    alone = plan.alone + (plan.read if task.options.sampling.retry else 0)
    found = len(with_room(folders))
    return Cost(STARTING_SECONDS + alone * found, write_share(task, len(folders)) * found)


def _cost_together(task: Task) -> Cost:
    folders = apart(task.topology.folders)
    if len(folders) < 2:
        return Cost(0.0)
    if len(with_room(folders)) < len(folders):
        return Cost(STARTING_SECONDS)
    seconds = STARTING_SECONDS + times(task.options, len(folders)).together
    return Cost(seconds, write_share(task, len(folders)) * len(folders))


BENCHMARKS = (
    Benchmark("storage", "each folder alone: sustained write, read, both at once", _cost_alone, _alone),
    Benchmark("storage.all", "all drives at once: write, read", _cost_together, _together),
)
