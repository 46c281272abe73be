"""A played step on a terminal: how long, what the GPU waited for, how busy each link, a few layers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ziplan.estimate import Estimate
from ziplan.hardware.rates import GPU
from ziplan.report.figures import lacking
from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.page import Block, Paragraph, laid_out
from ziplan.report.phrases import how_tight, job_words, shown
from ziplan.report.table import Column, table
from ziplan.simulate.step import OTHERS, Simulation, StagePlayed
from ziplan.simulate.trace import Watched

LONGEST_WAITS = 5
"""Modules whose waits are listed."""

SHOWN_SHARE = 0.0005
"""Waits shorter than this share of the step are not worth a word."""

TIMELINE_LAYERS = 3
NAME_WIDTH = 18
LAYER = re.compile(r"layer ([0-9]+) ")
FULL, USED, IDLE = "#", "-", " "
"""A column of a timeline: the link holds somebody back, is in use, is not."""


_Cells = Callable[[float, float], range]


class Told(NamedTuple):
    """A simulation with what stands beside it: the estimate, and the same step with nothing slowed down."""

    simulation: Simulation
    estimate: Estimate
    undisturbed: Simulation | None = None


def simulation_text(told: Told, width: int) -> list[Line]:
    """The answer of `simulate`, every line no wider than `width`."""
    simulation = told.simulation
    if simulation.unknown:
        missing = ", ".join(simulation.unknown)
        blocks: list[Block] = [_headline(told), Paragraph("step", f"unknown: needs {missing}", "yellow")]
        return laid_out(blocks, width, len(blocks) * 4)
    blocks = [
        _headline(told),
        *_times(told),
        *_memory(told),
        [],
        _stages(simulation, width),
        [],
        _links(simulation, width),
        *([[], _buffers(simulation, width)] if simulation.buffers else []),
        *_longest(simulation, width),
        *timeline(simulation, width),
        [],
        *(
            Paragraph("taken as" if not place else "", said)
            for place, said in enumerate(simulation.conventions)
        ),
    ]
    return laid_out(blocks, width, 1000)


def _headline(told: Told) -> Paragraph:
    simulation = told.simulation
    runtime = f"{simulation.runtime.NAME} {simulation.runtime.VERSION}"
    where = f"{job_words(simulation.workload)} on {simulation.cluster.label}, {runtime}"
    return Paragraph("one step", where, "bold")


def _times(told: Told) -> Iterable[Block]:
    simulation, sums = told.simulation, told.simulation.tally
    step = f"{shown(simulation.makespan, 's')} from first event to last"
    estimated = float(told.estimate.step_time)
    if estimated > 0:
        step += f"; the estimate says {shown(estimated, 's')} ({simulation.makespan / estimated - 1:+.1%})"
    yield Paragraph("step", step)
    if told.undisturbed is not None and told.undisturbed.makespan:
        slowed = ", ".join(f"{part} at {factor:.0%}" for part, factor in simulation.slow.items())
        before = told.undisturbed.makespan
        yield Paragraph(
            "slow",
            f"one node with {slowed}: {simulation.makespan / before - 1:+.1%} over the "
            f"{shown(before, 's')} of a step with nothing slow; its ranks are the ones shown",
        )
    computing = sums.computing / simulation.makespan if simulation.makespan else 0.0
    yield Paragraph(
        "GPU", f"works {shown(sums.computing, 's')} ({computing:.1%}), waits {shown(sums.stalled, 's')}"
    )
    causes = [
        f"{cause} {shown(s, 's')}" for cause, s in sums.stalls_by_cause.items() if s > _worth(simulation)
    ]
    if causes:
        yield Paragraph("waits for", ", ".join(causes))


def _memory(told: Told) -> Iterable[Block]:
    """A warning where the plan would run out of memory, which a played step does not mind."""
    if told.estimate.verdict == "does_not_fit":
        tiers = ", ".join(lacking(told.estimate))
        yield Paragraph("memory", f"this plan does not fit ({tiers}): played as if it did", "red")
    elif told.estimate.verdict == "tight":
        yield Paragraph("memory", how_tight(told.estimate), "yellow")


def _worth(simulation: Simulation) -> float:
    return SHOWN_SHARE * simulation.makespan


def _stages(simulation: Simulation, width: int) -> list[Line]:
    stages = simulation.stages
    columns = [
        Column("stage", [stage.name for stage in stages], right=False),
        Column("times", [f"{stage.repeats:,}" for stage in stages], expendable=1),
        Column("played", [f"{stage.rounds:,}" for stage in stages], expendable=2),
        Column("each", [shown(stage.tally.span / stage.repeats, "s") for stage in stages], expendable=3),
        Column("all", [shown(stage.tally.span, "s") for stage in stages]),
        Column("GPU waits", [shown(stage.tally.stalled, "s") for stage in stages]),
    ]
    return table(columns, width)


def _links(simulation: Simulation, width: int) -> list[Line]:
    span = simulation.makespan
    busy = {
        link: seconds
        for link, seconds in sorted(simulation.tally.busy.items(), key=lambda each: -each[1])
        if seconds > 0 and not link.startswith(OTHERS)
    }
    waited = simulation.tally.stalls_by_cause
    columns = [
        Column("link", list(busy), right=False),
        Column("busy", [shown(seconds, "s") for seconds in busy.values()], expendable=2),
        Column("of the step", [f"{seconds / span:.1%}" for seconds in busy.values()], expendable=1),
        Column("GPU waits", [shown(waited.get(link, 0.0), "s") for link in busy]),
    ]
    return table(columns, width)


def _buffers(simulation: Simulation, width: int) -> list[Line]:
    rows = [buffers for buffers in simulation.buffers if buffers.capacity > 0]
    most = [simulation.tally.high_water.get(buffers.name, 0.0) + buffers.held for buffers in rows]
    if not rows:
        return []

    def amount(value: float, unit: str) -> str:
        return shown(value, unit) if unit == "B" else f"{value:,.0f}"

    over = [
        Span("beyond it", "red") if value > buffers.capacity * (1 + 1e-9) else Span("")
        for value, buffers in zip(most, rows, strict=True)
    ]
    columns = [
        Column("buffers", [buffers.name for buffers in rows], right=False),
        Column("at most", [amount(value, b.unit) for value, b in zip(most, rows, strict=True)]),
        Column("of", [amount(buffers.capacity, buffers.unit) for buffers in rows]),
        *([Column("", over, right=False)] if any(span.text for span in over) else []),
    ]
    return table(columns, width)


def _longest(simulation: Simulation, width: int) -> list[Block]:
    """The modules that waited longest."""
    waits = sorted(simulation.tally.stalls.items(), key=lambda each: (-each[1], each[0]))
    rows = [(who, cause, s) for (who, cause), s in waits[:LONGEST_WAITS] if s > _worth(simulation)]
    if not rows:
        return []
    columns = [
        Column("longest waits", [who for who, _, _ in rows], right=False),
        Column("for", [cause for _, cause, _ in rows], right=False, expendable=1),
        Column("in all", [shown(seconds, "s") for _, _, seconds in rows]),
    ]
    return [[], table(columns, width)]


def timeline(simulation: Simulation, width: int) -> list[Block]:
    """A few layers in the middle of forward and of backward, one row a link."""
    stage = max(simulation.stages, key=lambda each: each.tally.span)
    blocks: list[Block] = []
    for sweep in ("forward", "backward"):
        window = _window(stage, sweep)
        if window is None:
            continue
        begin, end, first, last = window
        column = (end - begin) / max(1, width - NAME_WIDTH - 2)
        title = f"{stage.name}, {sweep}, layers {first} to {last}: {shown(end - begin, 's')}"
        heading = f"{title}, a column is {shown(column, 's')}"
        blocks += [[], wrapped(heading, width)]
        blocks.append(_rows(stage.watched, begin, end, max(1, width - NAME_WIDTH - 2)))
    if blocks:
        key = f"{FULL} holds somebody back, {USED} in use, digits: the layer that computes"
        blocks.append(wrapped(key, width))
    return blocks


def _window(stage: StagePlayed, sweep: str) -> tuple[float, float, int, int] | None:
    """From when to when a few layers in the middle of a sweep compute, and which layers they are."""
    watched = stage.watched
    spans: dict[int, tuple[float, float]] = {}
    for work, task in zip(watched.works, watched.mine, strict=True):
        layer = LAYER.match(f"{work.module} ")
        if not layer or not watched.on_gpu(work) or work.module.endswith(" forward") != (sweep == "forward"):
            continue
        begin, end = watched.played.start[task], watched.played.finish[task]
        known = spans.get(int(layer[1]), (begin, begin))
        # Of several repetitions that were played the first is shown.
        if begin <= known[1] * (1 + 1e-12) or int(layer[1]) not in spans:
            spans[int(layer[1])] = min(known[0], begin), max(known[1], end)
    if not spans:
        return None
    numbers = sorted(spans)
    first = max(0, len(numbers) // 2 - TIMELINE_LAYERS // 2)
    chosen = numbers[first : first + TIMELINE_LAYERS]
    begin = min(spans[number][0] for number in chosen)
    return begin, max(spans[number][1] for number in chosen), chosen[0], chosen[-1]


def _rows(watched: Watched, begin: float, end: float, columns: int) -> list[Line]:
    """The GPU's row, then one for each link that is in use between two instants."""
    rows = {GPU: [IDLE] * columns}
    scale = columns / (end - begin) if end > begin else 0.0

    def cells(since: float, until: float) -> range:
        first = max(0, round((since - begin) * scale))
        return range(first, min(columns, max(first + 1, round((until - begin) * scale))))

    for work, task in zip(watched.works, watched.mine, strict=True):
        since, until = watched.played.start[task], watched.played.finish[task]
        if until <= begin or since >= end or until <= since:
            continue
        if watched.on_gpu(work):
            layer = LAYER.match(f"{work.module} ")
            for cell in cells(since, until):
                rows[GPU][cell] = layer[1][-1] if layer else "="
            continue
        for link in _own_links(watched, task):
            row = rows.setdefault(link, [IDLE] * columns)
            for cell in cells(since, until):
                row[cell] = FULL if row[cell] == FULL else USED
        _fill(watched, task, rows, cells, until)
    return [line(f"{name[:NAME_WIDTH]:<{NAME_WIDTH}}|{''.join(row)}|") for name, row in rows.items()]


def _fill(watched: Watched, task: int, rows: dict[str, list[str]], cells: _Cells, until: float) -> None:
    """Mark where each link held a task back."""
    limits = watched.played.limits[task]
    for place, (since, link) in enumerate(limits):
        ends = limits[place + 1][0] if place + 1 < len(limits) else until
        # What other ranks' links hold back, this rank's hold back too, or nobody sees why.
        name = watched.links[link].removeprefix(OTHERS)
        for cell in cells(since, ends) if name in rows else ():
            rows[name][cell] = FULL


def _own_links(watched: Watched, task: int) -> list[str]:
    """The links of the watched rank that a task crosses."""
    names = [watched.links[link] for link, _ in watched.tasks[task].uses]
    return [name for name in names if not name.startswith(OTHERS)]
