"""How long each folder is measured, on how large a file, and how much is written at the most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ziplan.bench.benchmark import GIB, Options, Task
from ziplan.bench.measurement import CannotMeasure
from ziplan.bench.storage.load import MIB
from ziplan.bench.storage.scratch import FREE_FLOOR, Room, room
from ziplan.bench.topology import FoundFolder
from ziplan.units import show

BURST_SECONDS = 5.0
"""The beginning of a write, which a drive's DRAM and SLC cache may take in."""
SMALLEST_FILE = 256 * MIB
MIXED_SHARE = 0.15
"""Of the bytes that a folder may be written, those kept for reading and writing at once."""
STARTING_SECONDS = 1.5
"""A process of its own, numpy included, until it measures (0.4 s on an idle core, more on a busy one)."""


MANY = 4
"""Folders from which each is measured more shortly: how long a write lasts is then told by all at once."""


class Times(NamedTuple):
    """Seconds of each part, of one folder alone (`write` to `mixed`) and of all at once."""

    write: float
    depth: float
    read: float
    mixed: float
    slice: float
    write_all: float
    read_all: float

    @property
    def alone(self) -> float:
        """One folder alone."""
        return self.write + len(DEPTHS) * self.depth + self.read + self.mixed

    @property
    def together(self) -> float:
        """All folders at once."""
        return self.write_all + self.read_all


DEPTHS = (4, 8, 16, 32)
"""Operations in flight that are tried."""


def times(options: Options, folders: int) -> Times:
    """Seconds of each part; writing, which caches hide, is the longer the fewer folders there are."""
    if options.quick:
        return Times(write=8, depth=0.5, read=4, mixed=3, slice=0.25, write_all=6, read_all=4)
    many = max(1, folders)
    write, read = min(60.0, max(6.0, 60.0 / many)), min(8.0, max(2.0, 16.0 / many))
    mixed = 3 if many < MANY else 2
    return Times(write=write, depth=0.5, read=read, mixed=mixed, slice=0.25, write_all=20, read_all=6)


def measurable(folders: Iterable[FoundFolder]) -> list[FoundFolder]:
    """The folders whose file systems are on drives or a network (memory is waived by name)."""
    return [folder for folder in folders if folder.kind != "memory"]


def apart(folders: Iterable[FoundFolder]) -> list[FoundFolder]:
    """One folder of each set of drives: two on the same drives would take from each other."""
    seen: set[str] = set()
    found = []
    for folder in measurable(folders):
        drives = set(folder.drives or (folder.path,))
        if not drives & seen:
            found.append(folder)
            seen |= drives
    return found


def write_share(task: Task, beside: int) -> float:
    """Bytes that one of `beside` folders may be written: equal parts of the cap.

    A folder has a part alone, one with the others, and one on the way to a GPU where there is one.
    """
    folders, together = measurable(task.topology.folders), apart(task.topology.folders)
    parts = len(folders) * (2 if task.topology.gpus else 1) + (len(together) if len(together) > 1 else 0)
    return min(task.options.max_write / max(1, parts), task.bytes_left / max(1, beside))


def with_room(folders: Iterable[FoundFolder]) -> list[FoundFolder]:
    """The folders in which there is room for a file, or of which it is not known."""
    return [
        each
        for each in folders
        if not each.size_bytes or Room(each.size_bytes, each.free_bytes).usable >= SMALLEST_FILE
    ]


def without_room(folders: Iterable[FoundFolder]) -> Iterator[str]:
    """Of each folder in which there is no room for a file, that it is so."""
    every = measurable(folders)
    found = with_room(every)
    for each in every:
        if each not in found:
            yield f"{each.path}: {_no_room(Room(each.size_bytes, each.free_bytes))}"


def _no_room(space: Room) -> str:
    free = f"{space.free / max(1.0, space.size):.0%} of {show(space.size, 'B')} is free"
    left = f"{show(space.usable, 'B')} are left, and a file has at least {show(SMALLEST_FILE, 'B')}"
    return f"{free}, and {FREE_FLOOR:.0%} stay free: there is no room for a file ({left})"


def file_size(folder: str, options: Options) -> int:
    """Bytes of the file in a folder: beyond a drive's own DRAM, within what is free above the floor."""
    space = room(folder)
    wanted = (4 if options.quick else 16) * GIB
    size = int(min(wanted, space.usable, options.max_write)) // MIB * MIB
    if size < SMALLEST_FILE:
        if options.max_write < SMALLEST_FILE:
            raise CannotMeasure(f"--max-write leaves less than {SMALLEST_FILE // MIB} MiB to write")
        raise CannotMeasure(_no_room(space))
    return size
