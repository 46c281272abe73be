"""`ziplan report`: everything about one plan on one page, with charts, to be handed on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ziplan.cli import options
from ziplan.cli.given import Given, given_options
from ziplan.cli.output import apart, deliver, save, warn, writable
from ziplan.errors import BadInput

if TYPE_CHECKING:
    from ziplan.report.charts.chart import Chart
    from ziplan.report.dossier import Dossier

app = typer.Typer(add_completion=False, rich_markup_mode=None)

PICTURES = (".svg", ".png")


@app.command()
@given_options()
def report(
    model: options.ModelArgument,
    cluster: options.ClusterArgument,
    given: Given,
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CONFIG]",
            parser=options.a_path,
            help="A config or a plan.yaml, as `check` reads it. Default: the best plan.",
            show_default=False,
        ),
    ] = None,
    trainer: Annotated[
        options.Trainer | None,
        typer.Option(
            "--trainer",
            help="Who reads a DeepSpeed config. Default: the Trainer where sizes are auto.",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        list[str] | None,
        typer.Option(
            "--plot",
            metavar="[CHART=]FILE",
            help="Write all charts, or one of memory, timeline, terms, roofline, margins, as .svg or .png. "
            "Repeatable.",
            show_default=False,
        ),
    ] = None,
    output: options.OutputOption = None,
) -> None:
    """Everything about one plan on one HTML page: charts, findings, alternatives, sources, derivation."""
    from ziplan.report.charts.canvas import require

    require()
    from ziplan.cli.report_inputs import gathered

    pictures = [_picture(text) for text in plot or ()]
    written = [output, *(path for _, path in pictures)]
    apart(written, [model, cluster, config])
    for path in written:
        writable(path)
    dossier = gathered(model, cluster, given, config, trainer.value if trainer else None)
    for charts, path in pictures:
        _draw(charts, path, dossier)
    if output is not None or not pictures:
        from ziplan.report.dossier_page import page

        deliver(page(dossier), output)


def _picture(text: str) -> tuple[list[Chart], Path]:
    """The charts and the file of `--plot`: "memory=memory.svg", or a file for all of them."""
    from ziplan.files import nearest
    from ziplan.report.charts import CHARTS

    name, equals, path = text.partition("=")
    charts = list(CHARTS.values())
    if equals and name in CHARTS:
        charts = [CHARTS[name]]
    elif equals and (not name or name.isidentifier()):
        remedy = nearest(name, CHARTS) or f"there are {', '.join(CHARTS)}"
        raise BadInput.of(f"--plot {text!r:.60}: no chart is called {name!r:.40}", help=remedy)
    else:
        path = text
    if Path(path).suffix.lower() not in PICTURES:
        raise BadInput.of(
            f"--plot {text!r:.60}: charts are written as {' or '.join(PICTURES)}",
            help="for example --plot memory=memory.svg",
        )
    return charts, options.a_path(path)


def _draw(charts: list[Chart], path: Path, dossier: Dossier) -> None:
    """Write those of the charts that can be drawn; what cannot is told on stderr."""
    from ziplan.report.charts.canvas import png, svg
    from ziplan.report.charts.chart import WIDE

    lacking = {chart.title: chart.lacks(dossier) for chart in charts if chart.lacks(dossier)}
    drawable = [chart for chart in charts if chart.title not in lacking]
    if not drawable:
        raise BadInput.of(f"is not drawn: {'; '.join(lacking.values())}", file=str(path))
    for title, reason in lacking.items():
        warn(f"{path} lacks the {title.lower()}: {reason}")
    draw = png if path.suffix.lower() == ".png" else svg
    save(path, draw(drawable, dossier, WIDE))
