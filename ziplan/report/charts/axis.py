"""Headings, and axes of seconds and of bytes with ticks at whole numbers of the unit that people read."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ziplan.report.charts.chart import NARROW
from ziplan.report.phrases import shown
from ziplan.units import show

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

WIDEST_CHARACTER = 8.2
"""Pixels that a character of a heading takes, on average, in a wide font."""

DURATIONS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
"""Seconds of a unit and its name; the largest of which the axis has two is taken."""

TICKS, FEW_TICKS = 4, 2
LABEL = 16
"""Characters of a row's name on a narrow chart, where longer ones are broken."""


def heading(figure: FigureBase, text: str, width: float) -> None:
    """What a panel shows, above it from the left edge on, in as many lines as the width asks for."""
    figure.suptitle("\n".join(heading_lines(text, width)), x=0.0, ha="left", fontsize=13.0, fontweight="bold")


def heading_lines(text: str, width: float) -> list[str]:
    """The lines of a heading."""
    return textwrap.wrap(text, int(width / WIDEST_CHARACTER))


def row_names(names: Iterable[str], width: float) -> list[str]:
    """Names of rows, broken where the chart is narrow."""
    return ["\n".join(textwrap.wrap(name, LABEL)) if width <= NARROW else name for name in names]


def seconds_axis(axes: Axes, width: float, end: float, longest: float | None = None) -> None:
    """Seconds from 0 to `end`; the unit is that of `longest`, where that is what the axis is about."""
    from matplotlib.ticker import MaxNLocator

    size, word = next((each for each in DURATIONS if (longest or end) >= 2 * each[0]), DURATIONS[-1])
    ticks = [
        tick for tick in MaxNLocator(_ticks(width)).tick_values(0.0, end / size) if 0 <= tick <= end / size
    ]
    axes.set_xlim(0.0, end)
    axes.set_xticks([tick * size for tick in ticks], [f"{show(tick, '1', 3)} {word}" for tick in ticks])


def bytes_axis(axes: Axes, width: float, end: float) -> None:
    """Bytes from 0 to `end`."""
    from matplotlib.ticker import MaxNLocator

    ticks = [tick for tick in MaxNLocator(_ticks(width)).tick_values(0.0, end) if 0 <= tick <= end]
    axes.set_xlim(0.0, end)
    axes.set_xticks(ticks, [shown(tick, "B") for tick in ticks])


def _ticks(width: float) -> int:
    return TICKS if width > NARROW else FEW_TICKS
