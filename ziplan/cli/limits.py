"""`ziplan limits`: the ceilings on a model's size, and how long training takes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ziplan.cli import options
from ziplan.cli.given import Given, given_options
from ziplan.cli.inputs import Request, answer_to
from ziplan.cli.output import apart, deliver, width

if TYPE_CHECKING:
    from ziplan.report.margin_map import MarginMap
    from ziplan.solve.problem import Answer

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
@given_options()
def limits(
    model: options.ModelArgument,
    cluster: options.ClusterArgument,
    given: Given,
    map: Annotated[
        bool,
        typer.Option("--map", help="Where the tier that binds is hidden, over ranks and tokens per rank."),
    ] = False,
    json: options.JsonOption = False,
    format: options.FormatOption = options.Format.TEXT,
    output: options.OutputOption = None,
) -> None:
    """The three ceilings on a model's size (capacity, width, compute), and the training time."""
    apart([output], [model, cluster])
    request = given.on(model, cluster)
    answer = answer_to(request)
    found = _map(request, answer) if map else None
    if json or format is options.Format.JSON:
        from ziplan.report.json import dumps, limits_document

        document = limits_document(answer)
        if found is not None:
            from ziplan.report.margin_map import map_object

            document["map"] = map_object(found)
        deliver(dumps(document), output)
        return
    from ziplan.report.limits import limits_text

    lines = limits_text(answer, width())
    if found is not None:
        from ziplan.report.margin_map import map_text

        lines += map_text(found, width())
    deliver(lines, output)


def _map(request: Request, answer: Answer) -> MarginMap:
    from ziplan.cli.varied import posed
    from ziplan.study.margin_map import margin_map

    return margin_map(partial(posed, request), answer.problem, answer.best)
