"""A dossier as one HTML page: no script, nothing fetched, in both colour schemes, on a phone and on paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ziplan import __version__
from ziplan.report import dossier_words as words
from ziplan.report.charts import CHARTS
from ziplan.report.charts.canvas import inline
from ziplan.report.charts.chart import NARROW, WIDE
from ziplan.report.charts.colours import variables
from ziplan.report.check_sources import excerpt
from ziplan.report.dossier import Dossier
from ziplan.report.lines import GLUE

TEMPLATES = Path(__file__).parent / "templates"


class Figure(NamedTuple):
    """A chart as it stands in the page: for a wide one and for a narrow one, or why it is not there."""

    title: str
    says: str = ""
    wide: str = ""
    narrow: str = ""
    lacks: str = ""


class Told(NamedTuple):
    """A finding as it stands in the page."""

    severity: str
    code: str
    title: str
    message: str
    place: str
    source: str
    fix: str


def page(dossier: Dossier) -> str:
    """The whole page; the same dossier gives the same text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def finalized(value: Any) -> Any:
        return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = Markup(variables() + (TEMPLATES / "report.css").read_text(encoding="utf-8"))  # noqa: S704 - our own
    figures = {
        name: each._replace(wide=Markup(each.wide), narrow=Markup(each.narrow))  # noqa: S704 - drawn and escaped
        for name, each in drawn(dossier).items()
    }
    text = environment.get_template("report.html.j2").render(
        dossier=dossier,
        words=words,
        style=style,
        figures=figures,
        findings=list(findings(dossier)),
        version=__version__,
    )
    # Whatever the stream or the server takes the page for, it reads the same.
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii") + "\n"


def printable(text: str) -> str:
    """Text whose control characters are seen as such; lines stay lines."""
    return "".join(c if c.isprintable() or c in (GLUE, "\n") else "\ufffd" for c in text)


def drawn(dossier: Dossier) -> Mapping[str, Figure]:
    """Every chart at both widths, or why it is not there."""
    figures = {}
    for name, chart in CHARTS.items():
        lacks = chart.lacks(dossier)
        if lacks:
            figures[name] = Figure(chart.title, lacks=lacks)
            continue
        figures[name] = Figure(
            chart.title,
            chart.says(dossier),
            inline(f"{name}-wide-", chart, dossier, WIDE),
            inline(f"{name}-narrow-", chart, dossier, NARROW),
        )
    return figures


def findings(dossier: Dossier) -> Iterator[Told]:
    """What `check` finds, worst first."""
    if dossier.checked is None:
        return
    for each in dossier.checked.findings:
        place = f"{each.file}:{each.line}:{each.column}" if each.line else each.file
        yield Told(
            each.severity,
            each.code,
            each.title,
            each.message,
            f"{place} {each.path}".strip(),
            "\n".join(excerpt(each, dossier.checked.case)),
            each.fix,
        )
