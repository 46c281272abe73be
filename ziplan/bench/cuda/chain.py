"""The way of a parameter from a drive: read into page-locked memory, then copied to a GPU.

Measured as a chain, since each part may be fast and the chain slow, and again beside copies that keep
the GPU's link busy as the gather of parameters does: what shares a link shows as a number.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from ziplan.bench.cuda.device import Gpu
from ziplan.bench.cuda.driver import Address, Event, Stream
from ziplan.bench.measurement import CannotMeasure
from ziplan.bench.timeline import Operations, Step, at_once

BLOCK = 4 * 2**20
"""Bytes read and copied at once by a thread."""
DEPTH = 16
"""Threads: as many reads as saturate a drive."""
QUEUED = 64
"""Copies beside the chain that are queued at any time."""
POLL_SECONDS = 1e-3

Reader = Callable[[memoryview, int], None]
"""Fills a buffer; the number counts the blocks that were read before, over all threads."""


@dataclass(frozen=True)
class Lane:
    """One thread's way: a page-locked block, the block on the GPU that it goes to, a stream."""

    gpu: Gpu
    host: Address
    device: Address
    stream: Stream
    size: int

    @property
    def view(self) -> memoryview:
        """The page-locked block."""
        return memoryview((ctypes.c_char * self.size).from_address(self.host)).cast("B")

    def copy(self) -> None:
        """Queue the block's copy to the GPU."""
        call = self.gpu.driver.call
        call("cuMemcpyHtoDAsync", self.device, self.host, self.size, self.stream)


@contextmanager
def lanes(gpu: Gpu, count: int, size: int) -> Iterator[tuple[Lane, ...]]:
    """So many ways to a GPU."""
    with ExitStack() as stack:
        enter = stack.enter_context
        yield tuple(
            Lane(gpu, enter(gpu.pinned(size)), enter(gpu.memory(size)), enter(gpu.stream()), size)
            for _ in range(count)
        )


def file_reader(fd: int, extent: int, block: int) -> Reader:
    """Reads blocks of a file in order, again and again."""
    blocks = extent // block

    def read(view: memoryview, turn: int) -> None:
        done = os.preadv(fd, [view], turn % blocks * block)
        if done != block:
            raise CannotMeasure(f"a read of {block} bytes did {done}")

    return read


class Beside:
    """Copies to a GPU that never stop while something else is measured."""

    def __init__(self, lane: Lane, queued: int = QUEUED) -> None:
        """Queue the first of them."""
        self._lane, self._driver = lane, lane.gpu.driver
        self._begin = self._mark()
        self._marks: deque[Event] = deque()
        self._last, self._done = self._begin, 0
        for _ in range(queued):
            self._queue()

    def _mark(self) -> Event:
        event = self._lane.gpu.event()
        self._driver.call("cuEventRecord", event, self._lane.stream)
        return event

    def _queue(self) -> None:
        self._lane.copy()
        self._marks.append(self._mark())

    def keep_up(self) -> None:
        """Queue one for each that is done."""
        while self._marks and self._driver.reached(self._marks[0]):
            self._last, self._done = self._marks.popleft(), self._done + 1
            self._queue()

    def keeper(self) -> Step:
        """A thread's step that keeps up."""
        self._lane.gpu.enter()

        def step() -> bool:
            self.keep_up()
            time.sleep(POLL_SECONDS)
            return True

        return step

    def rate(self) -> float:
        """B/s of those that are done."""
        self.keep_up()
        if not self._done:
            raise CannotMeasure("no copy beside the chain came to an end")
        return self._done * self._lane.size / self._driver.seconds_between(self._begin, self._last)


def through(ways: Sequence[Lane], read: Reader, seconds: float, beside: Beside | None = None) -> Operations:
    """Blocks on their way from a drive to a GPU for so many seconds, each with its begin and end."""
    turns = itertools.count()
    makers: list[Callable[[], Step]] = [partial(_carrier, lane, read, turns) for lane in ways]
    if beside is not None:
        makers.append(beside.keeper)
    return at_once(makers, seconds).of(range(len(ways)), ways[0].size)


def _carrier(lane: Lane, read: Reader, turns: Iterator[int]) -> Step:
    """One thread's step: read a block, copy it, wait for the copy."""
    call, view = lane.gpu.driver.call, lane.view
    lane.gpu.enter()

    def step() -> bool:
        read(view, next(turns))
        lane.copy()
        call("cuStreamSynchronize", lane.stream)
        return True

    return step
