"""A GPU's own memory: copied, read and written by kernels that do nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from ziplan.bench import names
from ziplan.bench.cuda.device import Gpu
from ziplan.bench.cuda.session import Session, each, size_text
from ziplan.bench.cuda.stopwatch import Work
from ziplan.bench.cuda.transfers import check_pattern
from ziplan.bench.measurement import Result

BUFFER = 2**32
"""Bytes: a kernel over them takes half a millisecond at 8 TB/s, beside which its start is nothing."""
SMALLEST_BUFFER = 256 * 2**20
"""Twice the largest cache of a GPU (B200: 126 MB of L2)."""


@contextmanager
def copied(gpu: Gpu, size: int) -> Iterator[Work]:
    """Copies of a pattern within a GPU; each byte is read and written, and counts as two."""
    with gpu.memory(size) as origin, gpu.memory(size) as target:
        gpu.fill(origin, size)
        gpu.poison(target, size)
        work = partial(gpu.run, "copy")
        yield Work(
            gpu,
            lambda stream: work(stream, target, origin, size),
            2.0 * size,
            lambda: check_pattern(gpu, target, size),
        )


@contextmanager
def read(gpu: Gpu, size: int) -> Iterator[Work]:
    """Reads of a pattern."""
    with gpu.memory(size) as origin, gpu.memory(16) as sink:
        gpu.fill(origin, size)
        work = partial(gpu.run, "read")
        yield Work(
            gpu,
            lambda stream: work(stream, origin, sink, size),
            size,
            lambda: check_pattern(gpu, origin, size),
        )


@contextmanager
def written(gpu: Gpu, size: int) -> Iterator[Work]:
    """Writes of a pattern, worked out on the way."""
    with gpu.memory(size) as target:
        gpu.poison(target, size)
        work = partial(gpu.run, "fill")
        yield Work(
            gpu,
            lambda stream: work(stream, target, target, size),
            size,
            lambda: check_pattern(gpu, target, size),
        )


Way = Callable[[Gpu, int], AbstractContextManager[Work]]
WAYS: dict[str, Way] = {
    "hbm.copy_bandwidth": copied,
    "hbm.read_bandwidth": read,
    "hbm.write_bandwidth": written,
}
"""Quantity to what measures it."""


def memory_rates(session: Session) -> Iterator[Result]:
    """Each GPU's memory, of all GPUs at once: they share none of it, and in training all are busy."""
    for quantity, make in WAYS.items():
        wanted = [names.gpu(gpu.index, quantity) for gpu in session.gpus]
        yield from each(wanted, _rates(session, wanted, make))


def _rates(session: Session, wanted: list[str], make: Way) -> Iterator[Result]:
    size = min(session.device_size(gpu, 2, BUFFER, SMALLEST_BUFFER) for gpu in session.gpus)
    busy = ", all GPUs at once" if len(wanted) > 1 else ""
    made = [make(gpu, size) for gpu in session.gpus]
    yield from session.rates(wanted, "all", made, f"kernel over {size_text(size)}{busy}")[1]
