"""The margin map: ranks by tokens, each cell solved, coloured by whether the tier hides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ziplan.report.charts.axis import heading
from ziplan.report.charts.chart import NARROW, Chart
from ziplan.report.charts.colours import light
from ziplan.report.dossier import Dossier
from ziplan.report.margin_map import NO_FIT, REFUSED, UNKNOWN, Cell, MarginMap
from ziplan.units import show

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

ROW, AROUND = 26.0, 96.0

GROUNDS = (
    (4.0, "good_ground", "hidden, 4 times over"),
    (1.0, "fair_good_ground", "hidden"),
    (0.25, "fair_bad_ground", "stalls"),
    (0.0, "bad_ground", "stalls, below 1/4"),
)
"""Least margin, its colour and what it means, best first: the steps of the map on a terminal."""


def _ground(cell: Cell) -> str:
    if not cell.fits or not math.isfinite(cell.margin):
        return "empty_ground"
    return next(colour for least, colour, _ in GROUNDS if cell.margin >= least)


def _words(cell: Cell) -> str:
    if cell.verdict == "refused":
        return REFUSED
    if not cell.fits:
        return NO_FIT
    return show(cell.margin, "1", 2) if math.isfinite(cell.margin) else UNKNOWN


def _draw(figure: FigureBase, dossier: Dossier, width: float) -> None:
    from matplotlib.patches import Patch, Rectangle

    found, axes = dossier.margins, figure.subplots()
    assert found is not None
    size = 11.0 if width > NARROW else 9.0
    for row, cells in enumerate(found.cells):
        for place, cell in enumerate(cells):
            axes.add_patch(
                Rectangle(
                    (place, row), 1, 1, facecolor=light(_ground(cell)), edgecolor=light("paper"), linewidth=2
                )
            )
            axes.text(place + 0.5, row + 0.5, _words(cell), ha="center", va="center", fontsize=size)
    if found.here is not None:
        row, place = found.here
        axes.add_patch(Rectangle((place, row), 1, 1, fill=False, edgecolor=light("ink"), linewidth=2.5))
    axes.set_xlim(0, len(found.dp_degrees))
    axes.set_ylim(0, len(found.tokens))
    axes.set_xticks(
        [place + 0.5 for place in range(len(found.dp_degrees))], [f"{dp:,}" for dp in found.dp_degrees]
    )
    axes.set_yticks([row + 0.5 for row in range(len(found.tokens))], [f"{each:,}" for each in found.tokens])
    axes.tick_params(length=0, labelsize=size, labelcolor=light("muted"))
    axes.set_xlabel("ranks (GPUs)")
    heading(figure, "tokens per rank and micro-step", width)
    for spine in axes.spines.values():
        spine.set_visible(False)
    handles = [
        Patch(facecolor=light(colour), edgecolor=light("rule"), label=words) for _, colour, words in GROUNDS
    ]
    handles.append(Patch(facecolor=light("empty_ground"), edgecolor=light("rule"), label=_other(found)))
    figure.legend(handles=handles, loc="outside lower left", ncols=5 if width > NARROW else 2)


def _other(found: MarginMap) -> str:
    """What the cells without a margin are."""
    signs = {_words(cell) for row in found.cells for cell in row}
    words = {NO_FIT: "does not fit", REFUSED: "contradictory", UNKNOWN: "unknown"}
    told = [f"{sign} {meaning}" for sign, meaning in words.items() if sign in signs]
    return ", ".join(told) or "no plan"


def _says(dossier: Dossier) -> str:
    found = dossier.margins
    assert found is not None
    cells = [cell for row in found.cells for cell in row]
    hidden = sum(cell.fits and cell.margin >= 1 for cell in cells)
    return f"of {len(cells)} combinations of ranks and tokens {hidden} hide {found.tier}"


CHART = Chart(
    title="Margin map",
    lacks=lambda dossier: "" if dossier.margins else dossier.absent.get("margins", "not asked for"),
    says=_says,
    height=lambda dossier, width: (
        AROUND + ROW * len(dossier.margins.tokens if dossier.margins else ()) + (0 if width > NARROW else 40)
    ),
    draw=_draw,
)
