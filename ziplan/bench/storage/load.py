"""Threads that read and write files directly.

Each thread keeps one operation in flight, so threads are the queue depth.
"""

from __future__ import annotations

import itertools
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from ziplan.bench.measurement import CannotMeasure
from ziplan.bench.storage.scratch import PAGE, said
from ziplan.bench.timeline import AtWork, Operations, Step, at_once

MIB = 2**20
Block = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass
class Stream:
    """One kind of operation on one file: `threads` of blocks, in order, over `[0, extent)` again and again.

    `most` bounds the operations (a cap on bytes written); `label` names the file where one fails.
    """

    fd: int
    mode: Literal["read", "write"]
    extent: int
    label: str = ""
    block: int = MIB
    threads: int = 16
    most: int | None = None
    turn: Iterator[int] = field(default_factory=itertools.count)


class Run(NamedTuple):
    """What streams did in the same time: operations of each, seconds that all were at work, the sync's."""

    streams: tuple[Operations, ...]
    full: float
    sync_seconds: float

    def rates(self, index: int, slices: int, begin: float = 0.0, end: float | None = None) -> list[float]:
        """B/s of a stream in equal slices of the time from `begin` to `end` (all of it)."""
        return self.streams[index].rates(begin, self.full if end is None else end, slices)


def random_block(size: int) -> Block:
    """A page-aligned buffer of random bytes, which nothing compresses."""
    buffer = np.frombuffer(mmap.mmap(-1, size), dtype=np.uint8)
    buffer[:] = np.frombuffer(os.urandom(size), dtype=np.uint8)
    return buffer


def stamped(block: Block, index: int) -> None:
    """Number each page of a random block, so that no page of it was written before: nothing deduplicates."""
    block.view(np.uint64).reshape(-1, PAGE // 8)[:, 0] = index


def run(streams: Sequence[Stream], seconds: float) -> Run:
    """All streams at once for a time; what was written is on the drives (fdatasync) when it ends."""
    owners = [index for index, stream in enumerate(streams) for _ in range(stream.threads)]
    done = at_once([_maker(streams[index]) for index in owners], seconds)
    before = time.perf_counter()
    for fd in dict.fromkeys(stream.fd for stream in streams if stream.mode == "write"):
        os.fdatasync(fd)
    return _told(streams, owners, done, time.perf_counter() - before)


def _told(streams: Sequence[Stream], owners: Sequence[int], done: AtWork, sync_seconds: float) -> Run:
    """The operations of each stream's threads together."""
    each = []
    for index, stream in enumerate(streams):
        own = [worker for worker, owner in enumerate(owners) if owner == index]
        each.append(done.of(own, stream.block))
    return Run(tuple(each), done.full, sync_seconds)


def _maker(stream: Stream) -> Callable[[], Step]:
    """What one thread of a stream does."""
    operate: Callable[[int, Any, int], int] = os.preadv if stream.mode == "read" else os.pwritev
    blocks = max(1, stream.extent // stream.block)

    def make() -> Step:
        block = random_block(stream.block)
        views = [block.data]

        def step() -> bool:
            index = next(stream.turn)
            if stream.most is not None and index >= stream.most:
                return False
            if stream.mode == "write":
                stamped(block, index)
            try:
                done = operate(stream.fd, views, index % blocks * stream.block)
            except OSError as error:
                raise CannotMeasure(f"{stream.label}: {stream.mode} failed: {said(error)}") from None
            if done != stream.block:
                raise CannotMeasure(f"{stream.label}: {stream.mode} of {stream.block} bytes did {done}")
            return True

        return step

    return make
