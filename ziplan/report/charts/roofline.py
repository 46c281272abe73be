"""The roofline of tiers: the FLOP/s that a tier can feed at an intensity, and where this plan stands.

Article, "The FLOPs-per-byte test every tier must pass": a tier hides where intensity times the
bandwidth of all ranks that pull at once reaches what a GPU sustains.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ziplan.estimate import TierTest
from ziplan.report.charts.axis import heading
from ziplan.report.charts.chart import NARROW, Chart
from ziplan.report.charts.colours import SERIES, light
from ziplan.report.dossier import Dossier
from ziplan.report.phrases import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

HEIGHT, WORDS = 350.0, 17.0
BEYOND = 6.0
"""How far the axes go beyond what there is to see, as a factor."""


def _known(dossier: Dossier) -> dict[str, TierTest]:
    """The tiers whose bandwidth is known."""
    return {name: test for name, test in dossier.estimate.tiers.items() if math.isfinite(test.hiding_margin)}


def _ridge(test: TierTest) -> float:
    """FLOP/B from which on the tier, pulled by all ranks that share it, feeds the GPU."""
    return test.arithmetic_intensity / test.hiding_margin


def _draw(figure: FigureBase, dossier: Dossier, width: float) -> None:
    tests, axes = _known(dossier), figure.subplots()
    first = next(iter(tests.values()))
    sustained, here = first.machine_balance * first.bandwidth, first.arithmetic_intensity
    ridges = [_ridge(test) for test in tests.values()]
    low, high = min(here, *ridges) / BEYOND, max(here, *ridges) * BEYOND
    axes.set_xscale("log")
    axes.set_yscale("log")
    roof = f"what a GPU sustains: {shown(sustained, 'FLOP/s')}"
    axes.plot([min(ridges), high], [sustained] * 2, color=light("ink"), linewidth=2.2, label=roof)
    for (name, test), colour in zip(tests.items(), SERIES, strict=False):
        words = f"{name}: {shown(test.bandwidth, 'B/s')}, margin {shown(test.hiding_margin, '1')}"
        _tier(axes, test, sustained, (low, light(colour), words))
    axes.axvline(here, color=light("muted"), linewidth=1.0, linestyle=(0, (4, 3)))
    margins = [test.hiding_margin for test in tests.values()]
    axes.set_xlim(low, high)
    axes.set_ylim(sustained * min(1.0, *margins) / (10 * BEYOND), sustained * max(BEYOND, *margins) * 2)
    of_what = " of streamed parameters" if width > NARROW else ""
    axes.set_xlabel(f"FLOPs per byte{of_what} (dashed: this plan)")
    heading(figure, "FLOP/s that a tier can feed to one GPU", width)
    _ticks(axes, width)
    figure.legend(loc="outside lower left", ncols=2 if width > NARROW else 1)


def _tier(axes: Axes, test: TierTest, sustained: float, drawn: tuple[float, str, str]) -> None:
    """One tier's slope up to the roof; dotted beyond it, up to what it could feed at this intensity."""
    low, colour, words = drawn
    ridge, here, margin = _ridge(test), test.arithmetic_intensity, test.hiding_margin
    axes.plot([low, ridge], [sustained * low / ridge, sustained], color=colour, linewidth=2.2, label=words)
    if margin > 1:
        axes.plot([ridge, here], [sustained, sustained * margin], color=colour, linewidth=1.4, linestyle=":")
    axes.plot([here], [sustained * margin], "o", markersize=8, color=colour, markeredgecolor=light("paper"))


def _ticks(axes: Axes, width: float) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    for axis, unit in ((axes.xaxis, "1"), (axes.yaxis, "FLOP/s")):
        axis.set_major_locator(LogLocator(numticks=6 if width > NARROW else 4))
        axis.set_major_formatter(FuncFormatter(lambda value, _, unit=unit: shown(value, unit)))
        axis.set_minor_locator(NullLocator())
    axes.tick_params(axis="y", labelsize=11, labelcolor=light("muted"))
    axes.grid()


def _unknown(dossier: Dossier) -> str:
    missing = dossier.estimate.unknown
    return f"unknown without {' and '.join(missing)}" if missing else "no tier's bandwidth is stated"


def _says(dossier: Dossier) -> str:
    told = [
        f"{name} is {'hidden' if test.hiding_margin >= 1 else 'not hidden'} with a margin of "
        f"{shown(test.hiding_margin, '1')}"
        for name, test in _known(dossier).items()
    ]
    return "; ".join(told)


CHART = Chart(
    title="Roofline of the tiers",
    lacks=lambda dossier: "" if _known(dossier) else _unknown(dossier),
    says=_says,
    height=lambda dossier, width: HEIGHT + WORDS * (1 if width > NARROW else len(_known(dossier))),
    draw=_draw,
)
