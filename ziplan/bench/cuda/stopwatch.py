"""Time what several streams do at once: held until all is queued, let go together, counted while all run."""

from __future__ import annotations

import ctypes
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from ziplan.bench.cuda.device import Gpu
from ziplan.bench.cuda.driver import Address, Driver, Event, Stream
from ziplan.bench.measurement import (
    SHORTEST_WINDOW,
    CannotMeasure,
    Measured,
    MeasuredUnit,
    Sampling,
    Window,
    relative_spread,
    sampled,
    summary,
)

PATIENCE = 10.0
"""Seconds that a held stream waits; queueing takes a tenth of a second at most."""
MOST_UNITS = 250
"""Units of work queued on a stream, each with its mark: past some 1000 entries a call waits for it."""
MARGIN = 1.2
"""How much longer than the shortest window the work is meant to last."""
PAGE = 4096
LINE = 128
"""Bytes between the word that the host writes and the one that the GPU writes."""
GAVE_UP = (
    f"the streams were held for more than {PATIENCE:g} s: something waited for them while work was being"
    " queued, so that it did not start together"
)


@dataclass(frozen=True)
class Work:
    """Something that a GPU does over and over: `enqueue` queues one unit of it, which is `amount` bytes.

    `check` looks at what came of it afterwards, and raises CannotMeasure where that is wrong.
    """

    gpu: Gpu
    enqueue: Callable[[Stream], None]
    amount: float
    check: Callable[[], None]


class Stopwatch:
    """Windows of several works at once; made by `stopwatch`."""

    def __init__(
        self, driver: Driver, works: Sequence[Work], streams: Sequence[Stream], page: Address, shortest: float
    ) -> None:
        self._driver, self._works, self._streams, self._shortest = driver, works, streams, shortest
        self._flag, self._gave_up = page, Address(page + LINE)
        self._start = works[0].gpu.event()
        self._begins = [work.gpu.event() for work in works]
        self._marks: list[list[Event]] = [[] for _ in works]
        self._units = [1] * len(works)

    def rehearse(self) -> None:
        """Do each work once while nothing is held: a first use loads kernels, which waits for what runs."""
        for work, stream in zip(self._works, self._streams, strict=True):
            work.gpu.enter()
            work.enqueue(stream)
        self._wait()

    def windows(self) -> tuple[Window, ...]:
        """What each work did while all of them ran: its units that ended by then, and when the last one did.

        A unit under way at that moment does not count in part: what it shared a link with is gone before
        its end, and it may have gone on faster.
        """
        while True:
            times = self._run()
            common = min(reached[-1] for reached in times)
            whole = [bisect_right(reached, common) for reached in times]
            if (common >= self._shortest and all(whole)) or not self._lengthen(times):
                break
        if not all(whole):
            raise CannotMeasure("a copy takes longer than all that can be queued beside it")
        return tuple(
            Window(count * work.amount, reached[count - 1])
            for work, count, reached in zip(self._works, whole, times, strict=True)
        )

    def _lengthen(self, times: Sequence[Sequence[float]]) -> bool:
        """Queue so much of each work that it lasts long enough; whether any can be queued more of."""
        before = list(self._units)
        wanted = MARGIN * max(self._shortest, *(reached[0] for reached in times))
        for place, reached in enumerate(times):
            lasting = math.ceil(len(reached) * wanted / max(reached[-1], 1e-9))
            self._units[place] = min(MOST_UNITS, max(self._units[place], lasting))
        return self._units != before

    def _run(self) -> list[list[float]]:
        """Seconds from the start of each work to the end of each of its units."""
        flag, gave_up = (ctypes.c_uint32.from_address(word) for word in (self._flag, self._gave_up))
        flag.value = gave_up.value = 0
        for marks, units, work in zip(self._marks, self._units, self._works, strict=True):
            marks.extend(work.gpu.event() for _ in range(units - len(marks)))
        try:
            self._hold()
            self._enqueue()
        finally:
            flag.value = 1
        self._wait()
        if gave_up.value:
            raise CannotMeasure(GAVE_UP)
        return [
            [self._driver.seconds_between(begin, mark) for mark in marks[:units]]
            for begin, marks, units in zip(self._begins, self._marks, self._units, strict=True)
        ]

    def _wait(self) -> None:
        for work, stream in zip(self._works, self._streams, strict=True):
            work.gpu.enter()
            self._driver.call("cuStreamSynchronize", stream)

    def _hold(self) -> None:
        """Hold the first stream, and the others behind its start event."""
        first = self._works[0].gpu
        first.enter()
        first.spin(self._streams[0], self._flag, self._gave_up, PATIENCE)
        self._driver.call("cuEventRecord", self._start, self._streams[0])
        for place, (work, stream) in enumerate(zip(self._works, self._streams, strict=True)):
            work.gpu.enter()
            if place:
                self._driver.call("cuStreamWaitEvent", stream, self._start, 0)
            self._driver.call("cuEventRecord", self._begins[place], stream)

    def _enqueue(self) -> None:
        """Queue all units, one of each stream after another, each with its mark."""
        for unit in range(max(self._units)):
            for place, work in enumerate(self._works):
                if unit < self._units[place]:
                    work.gpu.enter()
                    work.enqueue(self._streams[place])
                    self._driver.call("cuEventRecord", self._marks[place][unit], self._streams[place])


@contextmanager
def stopwatch(
    driver: Driver, works: Sequence[Work], shortest: float = SHORTEST_WINDOW
) -> Iterator[Stopwatch]:
    """A stopwatch over these works, whose windows last `shortest` seconds at the least."""
    with ExitStack() as stack:
        streams = [stack.enter_context(work.gpu.stream()) for work in works]
        page = stack.enter_context(works[0].gpu.pinned(PAGE))
        watch = Stopwatch(driver, works, streams, page, shortest)
        watch.rehearse()
        yield watch


def together(
    names: Sequence[str],
    total: str,
    windows: Callable[[], Sequence[Window]],
    method: str,
    sampling: Sampling,
    unit: MeasuredUnit = "B/s",
) -> tuple[Measured, tuple[Measured, ...]]:
    """The rate of all works together under the name `total`, and of each of them, from the same windows."""
    best: tuple[Measured, tuple[Measured, ...]] | None = None
    for _ in range(1 + sampling.retry):
        taken: list[Sequence[Window]] = []

        def window(taken: list[Sequence[Window]] = taken) -> Window:
            taken.append(windows())
            return Window(sum(part.amount / part.seconds for part in taken[-1]), 1.0)

        whole = sampled(total, unit, window, method, sampling._replace(retry=False))
        kept = taken[-sampling.samples :]
        parts = tuple(
            summary(name, unit, [parts[place].amount / parts[place].seconds for parts in kept], method)
            for place, name in enumerate(names)
        )
        if best is None or relative_spread(whole) < relative_spread(best[0]):
            best = whole, parts
        if not any(one.unstable for one in (whole, *parts)):
            break
    assert best is not None
    return best
