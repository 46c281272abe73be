"""From a chart to SVG or PNG, by matplotlib: static vector drawings whose text stays text.

matplotlib is taken over Vega-Altair with vl-convert, which carries a JavaScript engine of 30 MB, and over
plotly, which needs a browser to make a static picture: it draws SVG and PNG itself, offline, from NumPy
arrays that are there already.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ziplan.errors import BadInput
from ziplan.report.charts.chart import Chart
from ziplan.report.charts.colours import as_variables, light, variables
from ziplan.report.charts.lean import lean
from ziplan.report.dossier import Dossier

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIXELS_PER_INCH = 72.0
"""matplotlib's SVG has 72 units to the inch; with it a unit is a pixel of the page, a font of 12 has 12."""

SHARP = 2.0
"""Pixels of a PNG to one of the page."""

NEEDED = ("jinja2", "matplotlib")
"""What the extra `report` brings."""

BETWEEN = 18.0
"""Pixels between charts on one sheet."""


def require() -> None:
    """BadInput with the line that installs what is missing, where charts cannot be drawn."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise BadInput.of(
            f"reports need {' and '.join(missing)}, not installed here",
            help="pip install 'ziplan[report]'",
        )


@contextmanager
def _style() -> Iterator[None]:
    # A first run builds a list of fonts, or looks for a place to keep it, and says so: nothing to tell.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    import matplotlib as mpl

    ink, muted = light("ink"), light("muted")
    with mpl.rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "ziplan",
            "font.family": "sans-serif",
            "font.size": 12.0,
            "axes.titlesize": 13.0,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.titlecolor": ink,
            "axes.labelcolor": muted,
            "axes.edgecolor": light("rule"),
            "axes.facecolor": light("paper"),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "figure.facecolor": light("paper"),
            "grid.color": light("rule"),
            "grid.linewidth": 0.8,
            "xtick.color": light("rule"),
            "ytick.color": light("rule"),
            "xtick.labelcolor": muted,
            "ytick.labelcolor": ink,
            "xtick.labelsize": 11.0,
            "ytick.labelsize": 12.0,
            "text.color": ink,
            "legend.frameon": False,
            "legend.fontsize": 11.0,
            "legend.handlelength": 1.0,
            "legend.handleheight": 1.0,
            "legend.borderaxespad": 0.0,
            "hatch.linewidth": 1.0,
        }
    ):
        yield


def _sheet(charts: Sequence[Chart], dossier: Dossier, width: float) -> Figure:
    """The charts under each other on one figure."""
    from matplotlib.figure import Figure

    heights = [chart.height(dossier, width) for chart in charts]
    height = sum(heights) + BETWEEN * (len(charts) - 1)
    sheet = Figure(figsize=(width / PIXELS_PER_INCH, height / PIXELS_PER_INCH), layout="constrained")
    if len(charts) == 1:
        charts[0].draw(sheet, dossier, width)
        return sheet
    places = sheet.subfigures(len(charts), 1, height_ratios=heights, hspace=0.0, squeeze=False)
    for place, chart in zip(places[:, 0], charts, strict=True):
        chart.draw(place, dossier, width)
    return sheet


def png(charts: Sequence[Chart], dossier: Dossier, width: float) -> bytes:
    """The charts as a PNG in the colours of daylight."""
    with _style():
        drawn = io.BytesIO()
        sheet = _sheet(charts, dossier, width)
        sheet.savefig(drawn, format="png", dpi=SHARP * PIXELS_PER_INCH, metadata={"Software": None})
        return drawn.getvalue()


def svg(charts: Sequence[Chart], dossier: Dossier, width: float) -> str:
    """The charts as an SVG file of its own, with both colour schemes in it."""
    drawn = _drawn(charts, dossier, width, "")
    style = f"\n<style>\n{variables()}</style>\n"
    return drawn.replace(">", f">{style}", 1) + "\n"


def inline(name: str, chart: Chart, dossier: Dossier, width: float) -> str:
    """One chart as SVG within a page that has the colours; `name` keeps its identifiers its own."""
    return _drawn([chart], dossier, width, name)


def _drawn(charts: Sequence[Chart], dossier: Dossier, width: float, prefix: str) -> str:
    with _style():
        drawn = io.StringIO()
        _sheet(charts, dossier, width).savefig(drawn, format="svg", metadata={"Date": None})
    said = ". ".join(f"{chart.title}: {chart.says(dossier)}" for chart in charts)
    return as_variables(lean(drawn.getvalue(), prefix, said))
