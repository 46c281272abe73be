"""Axes of seconds and of bytes, with ticks at whole numbers of the unit that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ziplan.report.phrases import shown
from ziplan.units import show

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DURATIONS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
"""Seconds of a unit and its name; the largest of which the axis has two is taken."""

TICKS = 4


def seconds_axis(axes: Axes, end: float, longest: float | None = None) -> None:
    """Seconds from 0 to `end`; the unit is that of `longest`, where that is what the axis is about."""
    from matplotlib.ticker import MaxNLocator

    size, word = next((each for each in DURATIONS if (longest or end) >= 2 * each[0]), DURATIONS[-1])
    ticks = [tick for tick in MaxNLocator(TICKS).tick_values(0.0, end / size) if 0 <= tick <= end / size]
    axes.set_xlim(0.0, end)
    axes.set_xticks([tick * size for tick in ticks], [f"{show(tick, '1', 3)} {word}" for tick in ticks])


def bytes_axis(axes: Axes, end: float) -> None:
    """Bytes from 0 to `end`."""
    from matplotlib.ticker import MaxNLocator

    ticks = [tick for tick in MaxNLocator(TICKS).tick_values(0.0, end) if 0 <= tick <= end]
    axes.set_xlim(0.0, end)
    axes.set_xticks(ticks, [shown(tick, "B") for tick in ticks])
