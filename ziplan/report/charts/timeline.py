"""The step as it was played: all of it in one strip, then one round of each stage, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ziplan.report.charts.axis import heading, heading_lines, row_names, seconds_axis
from ziplan.report.charts.chart import NARROW, Chart
from ziplan.report.charts.colours import SERIES, light
from ziplan.report.dossier import Dossier
from ziplan.report.phrases import shown
from ziplan.simulate.step import Simulation, StagePlayed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

STRIP, ROW, AROUND, WORDS = 132.0, 26.0, 62.0, 17.0
"""Pixels of the strip, of a row of a stage, of a stage's title and axis, of a line of a legend."""
GRAIN = 20
"""Steps that the height of a row has: a column is worked through in twentieths."""
PIXELS_PER_COLUMN = 2.5
WORTH = 1e-3
"""Share of a stretch below which neither a row nor a wait is worth showing."""
GPU_ROW = "GPU"
WORKS = "the GPU works"
MOST_CAUSES = 5
"""Causes of waiting that have a colour of their own."""


def _simulation(dossier: Dossier) -> Simulation:
    assert dossier.played is not None
    return dossier.played.simulation


def _parts(stage: StagePlayed, causes: Sequence[str]) -> Iterator[tuple[str, float]]:
    """What the time of a stage goes into, all its rounds: work, and waiting by cause."""
    yield WORKS, stage.tally.computing
    waits = stage.tally.stalls_by_cause
    for cause in causes:
        yield cause, waits.get(cause, 0.0)
    yield "", sum(seconds for cause, seconds in waits.items() if cause not in causes)


def _causes(simulation: Simulation) -> list[str]:
    """What the GPU waits for, longest first, as far as it matters."""
    waits = simulation.tally.stalls_by_cause
    return [cause for cause, seconds in waits.items() if seconds > WORTH * simulation.makespan][:MOST_CAUSES]


def rows_of(stage: StagePlayed) -> dict[str, list[tuple[float, float]]]:
    """Row to the stretches in which it works, merged and in order: the GPU, then every term beside it."""
    watched = stage.watched
    found: dict[str, list[tuple[float, float]]] = {GPU_ROW: []}
    for work, task in zip(watched.works, watched.mine, strict=True):
        begin, end = watched.played.start[task], watched.played.finish[task]
        if work.resource and end > begin:
            name = GPU_ROW if watched.on_gpu(work) else work.term
            found.setdefault(name, []).append((begin, end))
    merged = {name: _merged(stretches) for name, stretches in found.items()}
    least = WORTH * watched.played.span
    kept = {name: each for name, each in merged.items() if sum(b - a for a, b in each) > least}
    return dict(sorted(kept.items(), key=lambda item: (item[0] != GPU_ROW, item[1][0][0], item[0])))


def _merged(stretches: list[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(stretches):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged


def shares(stretches: Sequence[tuple[float, float]], span: float, columns: int) -> np.ndarray:
    """The share of each of so many columns of `span` in which a row works, by merged stretches."""
    edges = np.linspace(0.0, span, columns + 1)
    begins, ends = (np.array(each) for each in zip(*stretches, strict=True))
    # Work done up to an instant: whole stretches before it, and the part of one that it falls into.
    done = np.concatenate([[0.0], np.cumsum(ends - begins)])
    before = np.searchsorted(begins, edges, side="right")
    over = np.where(before > 0, np.maximum(0.0, ends[np.maximum(before - 1, 0)] - edges), 0.0)
    share: np.ndarray = np.diff(done[before] - over) / (span / columns)
    return share


def _height(dossier: Dossier, width: float) -> float:
    simulation = _simulation(dossier)
    legend = WORDS * (_legend_rows(simulation, width) - 1)
    return STRIP + legend + sum(_panel(stage, len(rows_of(stage)), width) for stage in simulation.stages)


def _panel(stage: StagePlayed, rows: int, width: float) -> float:
    return AROUND + ROW * rows + WORDS * (len(heading_lines(_title(stage), width)) - 1)


def _legend_rows(simulation: Simulation, width: float) -> int:
    entries = 2 + len(_causes(simulation))
    return -(-entries // _legend_columns(width))


def _legend_columns(width: float) -> int:
    return 4 if width > NARROW else 2


def _draw(figure: FigureBase, dossier: Dossier, width: float) -> None:
    simulation = _simulation(dossier)
    rows = [rows_of(stage) for stage in simulation.stages]
    strip = STRIP + WORDS * (_legend_rows(simulation, width) - 1)
    heights = [
        strip,
        *(_panel(stage, len(each), width) for stage, each in zip(simulation.stages, rows, strict=True)),
    ]
    places = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _strip(places[0], simulation, width)
    for place, stage, each in zip(places[1:], simulation.stages, rows, strict=True):
        heading(place, _title(stage), width)
        _stage(place.subplots(), stage, each, width)


def _strip(figure: FigureBase, simulation: Simulation, width: float) -> None:
    """The whole step: for each stage in turn the GPU's work and its waits."""
    from matplotlib.patches import Patch

    axes, causes, at = figure.subplots(), _causes(simulation), 0.0
    colours = {WORKS: "blue", **dict(zip(causes, SERIES[1:], strict=False)), "": "grey"}
    for stage in simulation.stages:
        begin = at
        for name, seconds in _parts(stage, causes):
            axes.barh([0], [seconds], 0.62, left=at, color=light(colours[name]))
            at += seconds
        axes.vlines(begin, -0.45, 0.45, color=light("ink"), linewidth=1.0)
    axes.vlines(at, -0.45, 0.45, color=light("ink"), linewidth=1.0)
    heading(figure, f"the whole step: {shown(simulation.makespan, 's')}", width)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    seconds_axis(axes, width, simulation.makespan)
    words = {WORKS: WORKS, **{cause: f"waits for {cause}" for cause in causes}, "": "other waits"}
    handles = [Patch(color=light(colours[name]), label=label) for name, label in words.items()]
    figure.legend(handles=handles, loc="outside lower left", ncols=_legend_columns(width))


def _title(stage: StagePlayed) -> str:
    """A stage, how many rounds of it are shown, and how often it happens."""
    shown_rounds = f", {stage.rounds:,} rounds" if stage.rounds > 1 else ""
    of_all = f" of {stage.repeats:,} alike" if stage.repeats > stage.rounds else ""
    one = ", one" if of_all and not shown_rounds else ""
    return f"{stage.name}{one}{shown_rounds}{of_all}: {shown(stage.watched.played.span, 's')}"


def _stage(
    axes: Axes, stage: StagePlayed, rows: Mapping[str, list[tuple[float, float]]], width: float
) -> None:
    """One round of a stage; how tall a row's colour stands is the share of the time that it works."""
    span, columns = stage.watched.played.span, int(width / PIXELS_PER_COLUMN)
    for place, (name, stretches) in enumerate(rows.items()):
        level = np.round(shares(stretches, span, columns) * GRAIN) / GRAIN
        turns = np.flatnonzero(np.diff(level)) + 1
        edges = np.concatenate([[0], turns, [columns]])
        axes.stairs(
            place + 0.42 - 0.84 * level[edges[:-1]],
            edges * (span / columns),
            baseline=place + 0.42,
            fill=True,
            color=light("blue" if name == GPU_ROW else "teal"),
            linewidth=0,
        )
        axes.axhline(place + 0.42, color=light("rule"), linewidth=0.8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), row_names(rows, width))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    seconds_axis(axes, width, span)


def _says(dossier: Dossier) -> str:
    simulation = _simulation(dossier)
    waits = [
        f"{cause} {shown(simulation.tally.stalls_by_cause[cause], 's')}" for cause in _causes(simulation)
    ]
    told = f"; it waits for {', '.join(waits)}" if waits else ""
    return (
        f"of {shown(simulation.makespan, 's')} the GPU works {shown(simulation.tally.computing, 's')}{told}"
    )


CHART = Chart(
    title="Timeline of the step",
    lacks=lambda dossier: "" if dossier.played else dossier.absent.get("played", "not played"),
    says=_says,
    height=_height,
    draw=_draw,
)
