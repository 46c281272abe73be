"""The open GPUs of one benchmark, and how rates are taken on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from ziplan.bench.benchmark import Task
from ziplan.bench.cuda.device import Gpu, open_gpus
from ziplan.bench.cuda.driver import Driver
from ziplan.bench.cuda.stopwatch import Work, stopwatch, together
from ziplan.bench.measurement import CannotMeasure, Measured, Result, Waived, sampled

SHARE = 1 / 8
"""Of the memory that is there, what buffers of one measurement take at the most."""
MIB = 2**20


@dataclass(frozen=True)
class Session:
    """The driver, every GPU that it shows, and the task; `largest` bounds every buffer, in bytes."""

    driver: Driver
    gpus: tuple[Gpu, ...]
    task: Task
    largest: int = 2**40

    @classmethod
    def of(cls, task: Task) -> Session:
        """CannotMeasure with the reason where there is no driver or GPU."""
        driver = Driver()
        return cls(driver, open_gpus(driver, task.topology), task)

    def rate(self, name: str, made: AbstractContextManager[Work], method: str) -> Measured:
        """The rate of one piece of work alone, its outcome checked."""
        with made as work, stopwatch(self.driver, [work]) as watch:
            sampling = self.task.options.sampling
            found = sampled(name, "B/s", lambda: watch.windows()[0], _held(method), sampling)
            work.check()
        return found

    def rates(
        self, names: Sequence[str], total: str, made: Iterable[AbstractContextManager[Work]], method: str
    ) -> tuple[Measured, tuple[Measured, ...]]:
        """The rate of several pieces of work at once, all together (`total`) and each; outcomes checked."""
        with ExitStack() as stack:
            works = [stack.enter_context(one) for one in made]
            watch = stack.enter_context(stopwatch(self.driver, works))
            sampling = self.task.options.sampling
            found = together(names, total, watch.windows, _held(method), sampling)
            for work in works:
                work.check()
        return found

    def pinned_size(self, buffers: int, wanted: int, least: int) -> int:
        """Bytes of each of so many buffers of page-locked memory."""
        topology = self.task.topology
        limit = topology.memory_limit_bytes or topology.memory_bytes or float("inf")
        return self._size(buffers, limit, wanted, least, "the host's memory")

    def device_size(self, gpu: Gpu, buffers: int, wanted: int, least: int) -> int:
        """Bytes of each of so many buffers in a GPU's memory."""
        return self._size(buffers, gpu.free_bytes(), wanted, least, f"the free memory of GPU {gpu.index}")

    def _size(self, buffers: int, available: float, wanted: int, least: int, of: str) -> int:
        size = min(wanted, self.largest)
        while size * buffers > available * SHARE:
            size //= 2
        if size < min(least, self.largest):
            raise CannotMeasure(
                f"buffers of {buffers} x {least // MIB} MiB are more than an eighth of {of},"
                f" {available / MIB:.0f} MiB"
            )
        return size


def _held(method: str) -> str:
    return f"{method}; streams held until all is queued, CUDA events, pattern verified"


def each(wanted: Sequence[str], results: Iterable[Result]) -> Iterator[Result]:
    """Results as they come; what of `wanted` does not come is waived with the reason."""
    missing = dict.fromkeys(wanted)
    try:
        for result in results:
            missing.pop(result.name, None)
            yield result
    except CannotMeasure as problem:
        yield from (Waived(name=name, reason=str(problem)) for name in missing)


def size_text(size: int) -> str:
    """A buffer's size as a method tells it."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size} B"
