"""The chains that are measured: each folder to a GPU near its drive, the first also to one that is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from ziplan.bench import names
from ziplan.bench.benchmark import Task
from ziplan.bench.cuda.chain import BLOCK, DEPTH, Beside, Lane, Reader, file_reader, lanes, through
from ziplan.bench.cuda.device import Gpu
from ziplan.bench.cuda.session import Session, each, size_text
from ziplan.bench.cuda.transfers import BUFFER, SMALLEST_BUFFER
from ziplan.bench.measurement import CannotMeasure, Measured, Result, Waived, summary
from ziplan.bench.storage.load import MIB, Stream, run
from ziplan.bench.storage.plan import SMALLEST_FILE, file_size, measurable
from ziplan.bench.storage.scratch import Scratch, scratch
from ziplan.bench.timeline import Operations, slices_of, steady
from ziplan.bench.topology import FoundFolder, Topology
from ziplan.units import show

SAMPLES = 7
SLICE = 0.25
"""Seconds of a sample."""
QUANTITIES = ("bandwidth", "beside_copies_bandwidth")
WRITERS = 16
LARGEST_FILE = 4 * 2**30
"""Bytes of the file, which is only there to be read from; past a drive's own memory."""


def seconds_of(task: Task) -> tuple[float, float]:
    """How long a file is written at the most, and how long each chain runs: less where there are many."""
    many = task.options.quick or len(measurable(task.topology.folders)) > 2
    return (3.0, 2.0) if many else (5.0, 3.0)


def write_share(task: Task) -> float:
    """Bytes that are written to one folder: an equal part of what is left, a file at the most."""
    folders = measurable(task.topology.folders)
    return min(task.options.max_write, task.bytes_left) / max(1, len(folders))


def chain_size(task: Task, folder: FoundFolder) -> int:
    """Bytes of the file in a folder."""
    size = int(min(file_size(folder.path, task.options), write_share(task), LARGEST_FILE)) // BLOCK * BLOCK
    if size < SMALLEST_FILE:
        raise CannotMeasure(f"only {show(float(size), 'B')} may be written, too little to read from")
    return size


def planned_bytes(task: Task) -> float:
    """Bytes that will be written in all."""
    total = 0.0
    for folder in measurable(task.topology.folders):
        with suppress(CannotMeasure):
            total += chain_size(task, folder)
    return total


def chain_rates(session: Session) -> Iterator[Result]:
    """Each folder through page-locked memory to GPUs, alone and beside copies to the same GPU."""
    topology = session.task.topology
    for place, folder in enumerate(topology.folders):
        gpus = near_and_far(topology, folder, session.gpus)
        if place or session.task.options.quick:
            gpus = gpus[:1]
        wanted = [names.chain(folder.label, gpu.index, quantity) for gpu in gpus for quantity in QUANTITIES]
        if folder.kind == "memory":
            reason = f"{folder.path} is in memory ({folder.filesystem}), not on a drive"
            yield from (Waived(name=name, reason=reason) for name in wanted)
            continue
        yield from each(wanted, _folder(session, folder, gpus))


def near_and_far(topology: Topology, folder: FoundFolder, gpus: tuple[Gpu, ...]) -> list[Gpu]:
    """The first GPU on the NUMA node of the folder's drives, and the first on another."""
    nodes = {
        drive.pci.numa_node
        for drive in topology.drives
        if drive.name in folder.drives and drive.pci is not None
    } - {None}
    near = [gpu for gpu in gpus if gpu.numa_node in nodes]
    far = [gpu for gpu in gpus if gpu not in near]
    return near[:1] + far[:1] if near else list(gpus[:1])


def _folder(session: Session, folder: FoundFolder, gpus: list[Gpu]) -> Iterator[Result]:
    try:
        with scratch(folder.path) as file:
            extent = _write(session.task, folder, file)
            for gpu in gpus:
                yield from _chain(session, folder, gpu, file_reader(file.fd, extent, BLOCK))
    except OSError as problem:
        raise CannotMeasure(f"{folder.path}: {problem.strerror}") from None


def _write(task: Task, folder: FoundFolder, file: Scratch) -> int:
    """Write the file that is read from; bytes that hold data."""
    size = chain_size(task, folder)
    stream = Stream(file.fd, "write", size, folder.path, threads=WRITERS, most=size // MIB)
    wrote = run([stream], seconds_of(task)[0])
    extent = int(min(size, wrote.streams[0].amount)) // BLOCK * BLOCK
    if extent < SMALLEST_FILE:
        raise CannotMeasure(f"only {show(float(extent), 'B')} could be written, too little to read from")
    return extent


def _chain(session: Session, folder: FoundFolder, gpu: Gpu, read: Reader) -> Iterator[Result]:
    seconds = seconds_of(session.task)[1]
    how = (
        f"{DEPTH} threads, each preadv of {size_text(BLOCK)} (O_DIRECT) into page-locked memory, then a copy"
    )
    size = session.pinned_size(1, BUFFER, SMALLEST_BUFFER)
    with lanes(gpu, DEPTH, BLOCK) as ways, lanes(gpu, 1, size) as (other,):
        alone = through(ways, read, seconds)
        yield _summed(names.chain(folder.label, gpu.index), alone, seconds, how)
        yield _beside(names.chain(folder.label, gpu.index, QUANTITIES[1]), ways, read, seconds, other, how)


def _beside(
    name: str, ways: tuple[Lane, ...], read: Reader, seconds: float, other: Lane, how: str
) -> Measured:
    copies = Beside(other)
    done = through(ways, read, seconds, copies)
    got = show(copies.rate(), "B/s")
    return _summed(name, done, seconds, f"{how}; beside copies of {size_text(other.size)}, which got {got}")


def _summed(name: str, done: Operations, seconds: float, method: str) -> Measured:
    """Rates of equal slices of the time, warmed up."""
    rates = done.rates(0.0, seconds, slices_of(seconds, SLICE, SAMPLES))
    return summary(name, "B/s", steady(rates, SAMPLES), method)
