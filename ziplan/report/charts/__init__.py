"""The charts of a report, each a function that draws on a figure; the drawing library is an extra."""

from __future__ import annotations

from ziplan.report.charts import margins, memory, roofline, terms, timeline
from ziplan.report.charts.chart import Chart

CHARTS: dict[str, Chart] = {
    "memory": memory.CHART,
    "timeline": timeline.CHART,
    "terms": terms.CHART,
    "roofline": roofline.CHART,
    "margins": margins.CHART,
}
"""Charts by the name that `--plot NAME=FILE` takes, in the order of the page."""
