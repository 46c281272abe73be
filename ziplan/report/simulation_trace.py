"""A played step in the Chrome trace format, which Perfetto opens: a row for a resource, a bar for its work.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (complete events,
counters, metadata). Times are microseconds. Each stage is there once, however often it happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ziplan.hardware.rates import ARITHMETIC
from ziplan.report.json import Document
from ziplan.runtimes.runtime import COLLECTIVE, PYTHON
from ziplan.simulate.step import Simulation, StagePlayed
from ziplan.simulate.trace import Watched

MICROSECONDS = 1e6
STEP, BUFFERS = 1, 2
"""Processes of the trace: the step's rows, and the buffers' curves."""

ROWS = {
    "gpu": "GPU",
    "gpu_matrix": "GPU, products with matrices",
    "gpu_attention": "GPU, attention",
    "gpu_idle": "GPU, waves that are not full",
    "python": "Python",
    "gather": "gather and reduce between ranks",
    "collective": "hops around the ring of ranks",
    "cpu_optimizer": "CPU optimizer",
    "host_thread": "one thread of the host",
}


UNITS = {
    **dict.fromkeys(ARITHMETIC, "flops"),
    PYTHON: "seconds",
    "cpu_optimizer": "params",
    COLLECTIVE: "passes",
}
"""What is counted of a resource that moves no bytes."""


class _Bar(NamedTuple):
    begin: float
    end: float
    row: str
    name: str
    module: str
    amount: float


def chrome_trace(simulation: Simulation) -> Document:
    """The whole trace; rows of what works at once beside itself have a number."""
    rows: dict[tuple[str, int], int] = {("stages", 0): 0}
    events: list[dict[str, Any]] = []
    offset = 0.0
    for stage in simulation.stages:
        span = stage.watched.played.span
        name = stage.name if stage.repeats == stage.rounds else f"{stage.name} (stands for {stage.repeats:,})"
        events.append(
            _event(name, 0, offset, offset + span, {"repeats": stage.repeats, "played": stage.rounds})
        )
        events += _bars(stage, offset, rows)
        events += _curves(simulation, stage, offset)
        offset += span
    return {"traceEvents": [*_names(rows), *events], "displayTimeUnit": "ms"}


def _names(rows: dict[tuple[str, int], int]) -> Iterator[dict[str, Any]]:
    for process, name in ((STEP, "one rank's step"), (BUFFERS, "buffers and memory")):
        yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
    for (row, lane), number in rows.items():
        title = ROWS.get(row, row) if not lane else f"{ROWS.get(row, row)} ({lane + 1})"
        yield {"ph": "M", "pid": STEP, "tid": number, "name": "thread_name", "args": {"name": title}}
        yield {
            "ph": "M",
            "pid": STEP,
            "tid": number,
            "name": "thread_sort_index",
            "args": {"sort_index": number},
        }


def _bars(stage: StagePlayed, offset: float, rows: dict[tuple[str, int], int]) -> Iterator[dict[str, Any]]:
    ends: dict[tuple[str, int], float] = {}
    for bar in sorted(_worked(stage.watched)):
        lane = 0
        while ends.get((bar.row, lane), 0.0) > bar.begin:
            lane += 1
        ends[bar.row, lane] = bar.end
        number = rows.setdefault((bar.row, lane), len(rows))
        unit = UNITS.get(bar.row, "bytes")
        yield _event(
            bar.name, number, offset + bar.begin, offset + bar.end, {"for": bar.module, unit: bar.amount}
        )


def _worked(watched: Watched) -> Iterable[_Bar]:
    for work, task in zip(watched.works, watched.mine, strict=True):
        begin, end = watched.played.start[task], watched.played.finish[task]
        if work.resource and end > begin:
            name = work.module if work.term == "compute" else f"{work.term}: {work.module}"
            yield _Bar(begin, end, work.resource, name, work.module, work.amount)


def _curves(simulation: Simulation, stage: StagePlayed, offset: float) -> Iterator[dict[str, Any]]:
    for buffers, levels in zip(simulation.buffers, stage.watched.levels, strict=True):
        key = "bytes" if buffers.unit == "B" else "in use"
        for time, level in dict(levels).items():
            yield {
                "ph": "C",
                "pid": BUFFERS,
                "name": buffers.name,
                "ts": (offset + time) * MICROSECONDS,
                "args": {key: level + buffers.held},
            }


def _event(name: str, row: int, begin: float, end: float, told: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": STEP,
        "tid": row,
        "name": name,
        "ts": begin * MICROSECONDS,
        "dur": (end - begin) * MICROSECONDS,
        "args": told,
    }
