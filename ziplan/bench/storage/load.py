"""Threads that read and write files directly, and the rates that the times of their operations tell.

Each thread keeps one operation in flight, so threads are the queue depth. Every operation is timed; the
rate of a slice of time is the bytes of the operations in it, an operation over an edge counted by the
share of its duration inside. So no edge rounds, and only time in which all threads run is counted.
"""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from ziplan.bench.measurement import MOST_WARM_UPS, SETTLED, SHORTEST_WINDOW, CannotMeasure
from ziplan.bench.storage.scratch import PAGE, said

MIB = 2**20
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass
class Stream:
    """One kind of operation on one file: `threads` of blocks, in order, over `[0, extent)` again and again.

    `most` bounds the operations (a cap on bytes written); `label` names what the rates are told of.
    """

    fd: int
    mode: Literal["read", "write"]
    extent: int
    label: str = ""
    block: int = MIB
    threads: int = 16
    most: int | None = None
    turn: Iterator[int] = field(default_factory=itertools.count)


class Operations(NamedTuple):
    """Begin and end of each operation, in seconds since all began, and the bytes of each."""

    begin: Floats
    end: Floats
    block: int

    @property
    def amount(self) -> float:
        """Bytes in all."""
        return float(self.begin.size * self.block)

    def done_by(self, edges: Floats) -> Floats:
        """Bytes done by each moment; an operation under way counts by the share of its time that is over."""
        if not self.begin.size:
            return np.zeros_like(edges)
        # Of each operation, what of the stretch up to the edge it covers; a loop over few edges.
        length = np.maximum(self.end - self.begin, 1e-9)
        shares = [np.clip((edge - self.begin) / length, 0.0, 1.0).sum() for edge in edges]
        return np.asarray(shares, dtype=np.float64) * self.block


class Run(NamedTuple):
    """What streams did in the same time: operations of each, when the first of them ran dry, the sync's time.

    `full` is the number of seconds in which every thread was at work.
    """

    streams: tuple[Operations, ...]
    full: float
    sync_seconds: float

    def rates(self, index: int, slices: int, begin: float = 0.0, end: float | None = None) -> list[float]:
        """B/s of a stream in equal slices of the time from `begin` to `end` (all of it)."""
        edges = np.linspace(begin, self.full if end is None else end, slices + 1)
        found = np.diff(self.streams[index].done_by(edges)) / np.diff(edges)
        return [float(rate) for rate in found]


def random_block(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A page-aligned buffer of random bytes, which nothing compresses."""
    buffer = np.frombuffer(mmap.mmap(-1, size), dtype=np.uint8)
    buffer[:] = np.frombuffer(os.urandom(size), dtype=np.uint8)
    return buffer


def stamped(block: np.ndarray[Any, np.dtype[np.uint8]], index: int) -> None:
    """Number each page of a random block, so that no page of it was written before: nothing deduplicates."""
    block.view(np.uint64).reshape(-1, PAGE // 8)[:, 0] = index


def run(streams: Sequence[Stream], seconds: float, sync: bool = True) -> Run:
    """All streams at once for a time; what was written is on the drives (fdatasync) when it ends."""
    workers = [_Worker(stream) for stream in streams for _ in range(stream.threads)]
    barrier = threading.Barrier(len(workers) + 1)
    clock = _Clock()
    threads = [threading.Thread(target=worker.go, args=(barrier, clock), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    clock.start(seconds)
    barrier.wait()
    for thread in threads:
        thread.join()
    for worker in workers:
        if worker.failure is not None:
            raise worker.failure
    return _told(streams, workers, clock, seconds, sync)


class _Clock:
    """When all begin, and when they stop."""

    def __init__(self) -> None:
        self.begin = 0.0
        self.end = 0.0

    def start(self, seconds: float) -> None:
        self.begin = time.perf_counter()
        self.end = self.begin + seconds


class _Worker:
    """One thread: operations one after the other until the time is over or its stream has had its most."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.block = random_block(stream.block)
        self.times: list[tuple[float, float]] = []
        self.failure: Exception | None = None
        self.stopped = 0.0

    def go(self, barrier: threading.Barrier, clock: _Clock) -> None:
        """Wait for the others, then work."""
        try:
            barrier.wait()
            self._work(self.block, clock)
        except OSError as error:
            self.failure = CannotMeasure(f"{self.stream.label}: {self.stream.mode} failed: {said(error)}")
        except CannotMeasure as error:
            self.failure = error
        self.stopped = time.perf_counter()

    def _work(self, block: np.ndarray[Any, np.dtype[np.uint8]], clock: _Clock) -> None:
        stream, views, tell = self.stream, [block.data], time.perf_counter
        operate: Callable[[int, Any, int], int] = os.preadv if stream.mode == "read" else os.pwritev
        blocks = max(1, stream.extent // stream.block)
        while tell() < clock.end:
            index = next(stream.turn)
            if stream.most is not None and index >= stream.most:
                return
            if stream.mode == "write":
                stamped(block, index)
            begin = tell()
            done = operate(stream.fd, views, index % blocks * stream.block)
            self.times.append((begin, tell()))
            if done != stream.block:
                raise CannotMeasure(f"{stream.label}: {stream.mode} of {stream.block} bytes did {done}")


def _told(
    streams: Sequence[Stream], workers: Sequence[_Worker], clock: _Clock, seconds: float, sync: bool
) -> Run:
    """What the workers noted; the time counts until the first of them had nothing left to do."""
    full = min(seconds, min(worker.stopped for worker in workers) - clock.begin)
    before = time.perf_counter()
    for fd in dict.fromkeys(stream.fd for stream in streams if sync and stream.mode == "write"):
        os.fdatasync(fd)
    spent = time.perf_counter() - before
    found = []
    for stream in streams:
        times = [pair for worker in workers if worker.stream is stream for pair in worker.times]
        array = np.asarray(times, dtype=np.float64).reshape(-1, 2) - clock.begin
        found.append(Operations(array[:, 0], array[:, 1], stream.block))
    return Run(tuple(found), full, spent)


def steady(rates: Sequence[float], samples: int) -> list[float]:
    """The rates after warm-up: from the second of two in a row that agree, at most ten windows in.

    At least `samples` are left, and so the time must have been long enough for both.
    """
    latest = max(0, min(MOST_WARM_UPS, len(rates) - samples))
    for index in range(1, latest + 1):
        if abs(rates[index] - rates[index - 1]) <= SETTLED * rates[index]:
            return list(rates[index:])
    return list(rates[latest:])


def slices_of(seconds: float, length: float) -> int:
    """How many slices of about `length` a time has, none shorter than a window may be."""
    return max(1, int(seconds / max(length, SHORTEST_WINDOW) + 1e-9))
