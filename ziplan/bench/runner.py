"""A whole run: which benchmarks, within what time and how many bytes, each result noted as it comes."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from typing import NamedTuple

from ziplan import __version__
from ziplan.bench.benchmark import Benchmark, Cost, Options, Task, benchmarks
from ziplan.bench.discover.environment import environment
from ziplan.bench.discover.topology import discover, shared_ways
from ziplan.bench.measurement import Measured, Result, Waived, now, summary
from ziplan.bench.process import SILENCE_FACTOR, SILENCE_SECONDS, watched
from ziplan.bench.record import PlannedEntry, Record, with_results
from ziplan.errors import BadInput
from ziplan.files import suggested

RESERVE = 0.5
"""Seconds of a budget that are kept for ending a process and writing what was measured."""


class Progress(NamedTuple):
    """How far a run is: what runs, how much of the time that all should take is over, in seconds."""

    benchmark: str
    done: float
    whole: float
    result: Result | None = None


class Planned(NamedTuple):
    """A benchmark and what it will take."""

    benchmark: Benchmark
    cost: Cost


def chosen(only: Sequence[str] = (), skip: Sequence[str] = ()) -> list[Benchmark]:
    """The benchmarks that patterns name ("storage*"); BadInput for one that names none."""
    every = benchmarks()
    for flag, patterns in (("--only", only), ("--skip", skip)):
        for pattern in patterns:
            if not any(fnmatch.fnmatchcase(each.name, pattern) for each in every):
                known = [each.name for each in every]
                message = f"no benchmark is called {pattern[:60]!r}: known are {', '.join(known)}"
                raise BadInput.of(message, file=flag, help=suggested(pattern[:60], known))
    found = [
        each
        for each in every
        if (not only or any(fnmatch.fnmatchcase(each.name, pattern) for pattern in only))
        and not any(fnmatch.fnmatchcase(each.name, pattern) for pattern in skip)
    ]
    if not found:
        raise BadInput.of("leaves no benchmark", file="--only and --skip" if only else "--skip")
    return found


def surveyed(options: Options) -> Record:
    """A record with what the node has and nothing measured yet."""
    topology = discover(options.storage)
    return Record(
        ziplan=__version__,
        started=now(),
        quick=options.quick,
        topology=topology,
        environment=environment(topology),
        contention=shared_ways(topology),
    )


def planned(record: Record, options: Options, selected: Iterable[Benchmark]) -> list[Planned]:
    """What each benchmark will take on this node."""
    found, left = [], options.max_write
    for benchmark in selected:
        cost = benchmark.cost(Task(record.topology, options, bytes_left=left))
        left -= cost.bytes_written
        # What takes no time has nothing to do on this node.
        if cost.seconds > 0:
            found.append(Planned(benchmark, cost))
    return found


def with_plan(record: Record, plan: Iterable[Planned]) -> Record:
    """The record with what is going to be run."""
    entries = [
        PlannedEntry(
            name=benchmark.name,
            what=benchmark.what,
            duration_s=cost.seconds,
            written_bytes=cost.bytes_written,
        )
        for benchmark, cost in plan
    ]
    return record.model_copy(update={"planned": tuple(entries)})


class Run:
    """One run over a node, or several; each may write what the options allow.

    `record` is what is known so far, at any moment.
    """

    def __init__(
        self,
        record: Record,
        options: Options,
        plan: Sequence[Planned],
        budget: float = float("inf"),
        repeat: int = 1,
    ) -> None:
        self.record = record
        self._options = options
        self._plan = list(plan)
        self._repeat = repeat
        self._whole = repeat * sum(each.cost.seconds for each in self._plan)
        self._done = 0.0
        self._passed = 0.0
        self._deadline = time.monotonic() + budget - RESERVE
        self._written = 0.0
        self._over: list[Benchmark] = []

    def go(self, note: Callable[[Record], None], tell: Callable[[Progress], None]) -> Record:
        """Run all, one after the other; `note` is called with the record after each result."""
        for benchmark, cost in (each for _ in range(self._repeat) for each in self._plan):
            # Closed at once however this ends: its process goes with it.
            with closing(self._one(benchmark, cost, tell)) as results:
                for result in results:
                    self.record = with_results(self.record, [result])
                    note(self.record)
                    tell(Progress(benchmark.name, self._done + self._passed, self._whole, result))
            self._done, self._passed = self._done + cost.seconds, 0.0
            self._written += cost.bytes_written
            self._over.append(benchmark)
        self.record = together(self.record).model_copy(update={"complete": True})
        note(self.record)
        return self.record

    def ended(self) -> Record:
        """The record of a run that was ended before it was over: what it had not come to is waived."""
        come_to = {benchmark.name for benchmark in self._over}
        rest = [
            Waived(name=each.benchmark.name, reason="the run was ended before this was over")
            for each in self._plan
            if each.benchmark.name not in come_to
        ]
        self.record = with_results(together(self.record), rest)
        return self.record

    def _one(
        self, benchmark: Benchmark, cost: Cost, tell: Callable[[Progress], None]
    ) -> Generator[Result, None, None]:
        left = self._deadline - time.monotonic()
        if cost.seconds > left:
            room = f"{max(0.0, left):.1f} s of the time budget, {RESERVE} s for the end taken off"
            reason = f"takes {cost.seconds:.0f} s, there were {room}"
            yield Waived(name=benchmark.name, reason=reason)
            return
        task = Task(
            self.record.topology,
            self._options,
            self.record.by_name(),
            left,
            self._repeat * self._options.max_write - self._written,
        )
        began = time.monotonic()

        def tick() -> None:
            self._passed = min(time.monotonic() - began, cost.seconds)
            tell(Progress(benchmark.name, self._done + self._passed, self._whole))

        silence = SILENCE_SECONDS + SILENCE_FACTOR * cost.seconds
        with closing(watched(benchmark, task, silence, tick)) as results:
            yield from results


def together(record: Record) -> Record:
    """The record of several runs as one: the median of each name's medians, and how they spread."""
    grouped: dict[str, list[Measured]] = {}
    for measured in record.measured:
        grouped.setdefault(measured.name, []).append(measured)
    merged = [_over_runs(runs) if len(runs) > 1 else runs[0] for runs in grouped.values()]
    waived = {one.name: one for one in record.waived}
    noted = {one.name: one for one in record.noted}
    return record.model_copy(
        update={
            "measured": tuple(merged),
            "waived": tuple(waived.values()),
            "noted": tuple(noted.values()),
        }
    )


def _over_runs(runs: Sequence[Measured]) -> Measured:
    method = f"{runs[-1].method}; median of {len(runs)} runs"
    return summary(runs[-1].name, runs[-1].unit, [run.median for run in runs], method, runs[-1].kind)
