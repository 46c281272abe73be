"""`ziplan validate`: predictions held against measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ziplan.cli import options
from ziplan.cli.output import deliver, width

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def validate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILES",
            parser=options.a_path,
            help="Files of measured runs (ziplan.measurement/1). Default: the shipped published runs.",
            show_default=False,
        ),
    ] = None,
    json: options.JsonOption = False,
    format: options.FormatOption = options.Format.TEXT,
    output: options.OutputOption = None,
) -> None:
    """Predict runs that were measured and show how far off each prediction is, and by kind of run."""
    from ziplan.study.validate import validation

    answer = validation(files or ())
    if json or format is options.Format.JSON:
        from ziplan.report.json import dumps
        from ziplan.report.validate_json import validate_document

        deliver(dumps(validate_document(answer)), output)
        return
    from ziplan.report.validate_text import validate_text

    lines = validate_text(answer, width())
    deliver(lines, output)
