"""`ziplan models`: shipped model shapes."""

from __future__ import annotations

import typer

from ziplan.cli import options
from ziplan.cli.output import show, width, write
from ziplan.cli.showing import Showing

app = typer.Typer(
    cls=Showing,
    add_completion=False,
    rich_markup_mode=None,
    help="Shipped model shapes, operator by operator: all names, or one with `ziplan models NAME`.",
)


@app.callback(invoke_without_command=True)
def models(context: typer.Context) -> None:
    """Shipped model shapes, operator by operator. Alone it lists them, `ziplan models NAME` shows one."""
    if context.invoked_subcommand is None:
        list_all()


@app.command("list")
def list_all() -> None:
    """Names of the shipped shapes, one a line."""
    from ziplan.cli.inputs import model_names

    write("".join(f"{name}\n" for name in model_names()))


@app.command("show")
def show_one(
    model: options.ModelArgument,
    json: options.JsonOption = False,
    format: options.FormatOption = options.Format.TEXT,
) -> None:
    """One model: its parameters and every operator."""
    from ziplan.workload.load import load_model

    shape = load_model(model)
    if json or format is options.Format.JSON:
        from ziplan.report.json import dumps, model_document

        write(dumps(model_document(shape)))
        return
    from ziplan.report.models import model_text

    show(model_text(shape, width()))
