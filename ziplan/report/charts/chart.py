"""What a chart is: its words, when it can be drawn, how tall it is, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ziplan.report.dossier import Dossier

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

WIDE, NARROW = 820.0, 340.0
"""Widths that a chart is drawn for, in pixels: a page or a sheet of paper, and a phone."""

Draw: TypeAlias = "Callable[[FigureBase, Dossier, float], None]"


class Chart(NamedTuple):
    """One chart of a report.

    `lacks` says why there is nothing to draw (empty: there is), `says` what the chart shows in one
    sentence for those who do not see it. `height` and the last argument of `draw` are in pixels.
    """

    title: str
    lacks: Callable[[Dossier], str]
    says: Callable[[Dossier], str]
    height: Callable[[Dossier, float], float]
    draw: Draw
