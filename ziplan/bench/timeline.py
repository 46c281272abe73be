"""Threads at work for a time, and the rates that the times of their operations tell.

Every operation is timed; the rate of a slice of time is what was done in it, an operation over an edge
counted by the share of its duration inside. So no edge rounds, and only time in which all threads run
is counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ziplan.bench.measurement import MOST_WARM_UPS, SETTLED, SHORTEST_WINDOW

Floats = np.ndarray[Any, np.dtype[np.float64]]
Step = Callable[[], bool]
"""One operation; False where there was nothing left to do."""


class Operations(NamedTuple):
    """Begin and end of each operation in seconds since all began, and what one does (B, param)."""

    begin: Floats
    end: Floats
    each: float

    @property
    def amount(self) -> float:
        """What was done in all."""
        return float(self.begin.size * self.each)

    def done_by(self, edges: Floats) -> Floats:
        """What was done by each moment; one under way counts by the share of its time that is over."""
        length = np.maximum(self.end - self.begin, 1e-9)
        shares = [np.clip((edge - self.begin) / length, 0.0, 1.0).sum() for edge in edges]
        return np.asarray(shares, dtype=np.float64) * self.each

    def rates(self, begin: float, end: float, slices: int) -> list[float]:
        """What was done a second, in equal slices of the time from `begin` to `end`."""
        edges = np.linspace(begin, end, slices + 1)
        return [float(rate) for rate in np.diff(self.done_by(edges)) / np.diff(edges)]


class AtWork(NamedTuple):
    """Operations of each worker, and the seconds in which all of them were at work."""

    workers: tuple[tuple[tuple[float, float], ...], ...]
    full: float

    def of(self, indices: Sequence[int], each: float) -> Operations:
        """The operations of some workers together."""
        return operations([pair for index in indices for pair in self.workers[index]], each)


def operations(times: Sequence[tuple[float, float]], each: float) -> Operations:
    """Pairs of begin and end as operations."""
    array = np.asarray(times, dtype=np.float64).reshape(-1, 2)
    return Operations(array[:, 0], array[:, 1], each)


def at_once(makers: Sequence[Callable[[], Step]], seconds: float) -> AtWork:
    """Run the step that each maker makes again and again, a thread each, all beginning together.

    A maker runs in its thread, so that memory it touches first is near. What one raises is raised here.
    """
    workers = [_Worker(maker) for maker in makers]
    ready = threading.Barrier(len(workers) + 1)
    clock = _Clock()
    threads = [threading.Thread(target=worker.go, args=(ready, clock), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    ready.wait()
    clock.start(seconds)
    for thread in threads:
        thread.join()
    for worker in workers:
        if worker.failure is not None:
            raise worker.failure
    full = min(seconds, min(worker.stopped for worker in workers) - clock.begin)
    return AtWork(
        tuple(
            tuple((begin - clock.begin, end - clock.begin) for begin, end in worker.times)
            for worker in workers
        ),
        full,
    )


class _Clock:
    """When all begin, and when they stop."""

    def __init__(self) -> None:
        self.begin = 0.0
        self.end = 0.0
        self.going = threading.Event()

    def start(self, seconds: float) -> None:
        self.begin = time.perf_counter()
        self.end = self.begin + seconds
        self.going.set()


class _Worker:
    """One thread: operations one after the other until the time is over or nothing is left."""

    def __init__(self, maker: Callable[[], Step]) -> None:
        self.maker = maker
        self.times: list[tuple[float, float]] = []
        self.failure: Exception | None = None
        self.stopped = 0.0

    def go(self, ready: threading.Barrier, clock: _Clock) -> None:
        """Get ready, wait for the others, work."""
        step = self._made()
        ready.wait()
        clock.going.wait()
        if step is not None:
            self._work(step, clock.end)
        self.stopped = time.perf_counter()

    def _made(self) -> Step | None:
        try:
            return self.maker()
        except Exception as error:  # noqa: BLE001 - handed to the thread that waits for all
            self.failure = error
            return None

    def _work(self, step: Step, until: float) -> None:
        tell, note = time.perf_counter, self.times.append
        try:
            begin = tell()
            while begin < until and step():
                end = tell()
                note((begin, end))
                begin = end
        except Exception as error:  # noqa: BLE001 - handed to the thread that waits for all
            self.failure = error


def steady(rates: Sequence[float], samples: int) -> list[float]:
    """The rates after warm-up: from the second of two in a row that agree, at most ten windows in.

    At least `samples` are left, and so the time must have been long enough for both.
    """
    latest = max(0, min(MOST_WARM_UPS, len(rates) - samples))
    for index in range(1, latest + 1):
        if abs(rates[index] - rates[index - 1]) <= SETTLED * rates[index]:
            return list(rates[index:])
    return list(rates[latest:])


def slices_of(seconds: float, length: float, least: int = 1) -> int:
    """How many slices of about `length` a time has, none shorter than a window may be; at least `least`."""
    return max(least, int(seconds / max(length, SHORTEST_WINDOW) + 1e-9))
