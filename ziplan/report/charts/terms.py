"""The step's terms: what it waits for, and what runs hidden behind that."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ziplan.report.charts.axis import row_names, seconds_axis
from ziplan.report.charts.chart import NARROW, Chart
from ziplan.report.charts.colours import light
from ziplan.report.dossier import Dossier
from ziplan.report.figures import hidden
from ziplan.report.phrases import shown

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

ROW, AROUND = 26.0, 74.0
WORTH = 1e-3
"""Share of the step from which on a term has a bar."""
ROOM = 1.22
"""How much wider than the longest bar the axis is, for the words at its end."""


def _rows(dossier: Dossier) -> list[tuple[str, float, float]]:
    """(term, seconds waited for, seconds hidden), most waited for first."""
    estimate, behind = dossier.estimate, hidden(dossier.estimate)
    names = dict.fromkeys((*estimate.terms, *behind))
    rows = [(name, float(estimate.terms.get(name, 0.0)), float(behind.get(name, 0.0))) for name in names]
    least = WORTH * float(estimate.step_time)
    return sorted((row for row in rows if max(row[1:]) > least), key=lambda row: (-row[1], -row[2]))


def _draw(figure: FigureBase, dossier: Dossier, width: float) -> None:
    rows, axes = _rows(dossier), figure.subplots()
    names = row_names((name for name, _, _ in rows), width)
    axes.barh(names, [row[1] for row in rows], 0.7, color=light("blue"), label="the step waits for it")
    axes.barh(
        names,
        [row[2] for row in rows],
        0.7,
        left=[row[1] for row in rows],
        facecolor=light("empty_ground"),
        edgecolor=light("grey"),
        hatch="////",
        linewidth=0.8,
        label="hidden behind other work",
    )
    longest = max(waited + behind for _, waited, behind in rows)
    for place, (_, waited, behind) in enumerate(rows):
        words = shown(waited, "s") if waited else f"{shown(behind, 's')} hidden"
        axes.text(waited + behind + 0.01 * longest, place, words, va="center", fontsize=11)
    seconds_axis(axes, width, (ROOM if width > NARROW else 1.5) * longest, longest)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    figure.legend(loc="outside upper left", ncols=2 if width > NARROW else 1)


def _says(dossier: Dossier) -> str:
    return ", ".join(f"{name} {shown(waited, 's')}" for name, waited, _ in _rows(dossier) if waited)


CHART = Chart(
    title="Terms of the step",
    lacks=lambda dossier: (
        f"the time of a step is unknown without {' and '.join(dossier.estimate.unknown)}"
        if math.isnan(dossier.estimate.step_time)
        else ""
    ),
    says=_says,
    height=lambda dossier, width: AROUND + ROW * len(_rows(dossier)) + (0 if width > NARROW else 18),
    draw=_draw,
)
