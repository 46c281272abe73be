"""`ziplan diff`: what two plans or configs differ in, and what that changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ziplan.cli import options
from ziplan.cli.given import SETTLED_BY_A_CONFIG, Given, given_options
from ziplan.cli.output import apart, deliver, width
from ziplan.errors import BadInput, ExitCode

if TYPE_CHECKING:
    from ziplan.report.difference import Difference

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="A B [MODEL CLUSTER]",
        help="Two plans or configs; with a model and a cluster, what is predicted of them is compared too.",
        show_default=False,
    ),
]


@app.command()
@given_options(*SETTLED_BY_A_CONFIG)
def diff(
    inputs: Inputs,
    given: Given,
    trainer: Annotated[
        options.Trainer | None,
        typer.Option(
            "--trainer",
            help="Who reads a DeepSpeed config. Default: the Trainer where sizes are auto.",
            show_default=False,
        ),
    ] = None,
    json: options.JsonOption = False,
    format: options.FormatOption = options.Format.TEXT,
    output: options.OutputOption = None,
) -> int:
    """Tell what differs between two plans (plan.yaml) or configs: exit 0 nothing, 1 something."""
    from ziplan.cli.diff_inputs import sides, sides_on
    from ziplan.study.diff import difference

    apart([output], inputs)
    files = [options.a_path(text) for text in inputs[:2]]
    if len(inputs) == 4:
        request = given.on(*inputs[2:])
        one, other = sides_on(files, request, trainer.value if trainer else None)
    elif len(inputs) == 2:
        if given != Given() or trainer:
            raise BadInput.of(
                "flags about the training or the machine say nothing without MODEL and CLUSTER",
                help="for example `ziplan diff a/plan.yaml b/plan.yaml llama-3.1-8b dgx-a100-80g`",
            )
        one, other = sides(files)
    else:
        raise BadInput.of(
            f"expected A B or A B MODEL CLUSTER, not {len(inputs)} argument{'s' * (len(inputs) != 1)}",
            help="for example `ziplan diff a/plan.yaml b/plan.yaml llama-3.1-8b dgx-a100-80g`",
        )
    found = difference(one, other)
    _deliver(found, json or format is options.Format.JSON, output)
    return ExitCode.OK if found.same else ExitCode.DOES_NOT_FIT


def _deliver(found: Difference, as_json: bool, output: Path | None) -> None:
    if as_json:
        from ziplan.report.difference_json import diff_document
        from ziplan.report.json import dumps

        deliver(dumps(diff_document(found)), output)
        return
    from ziplan.report.difference_text import difference_text

    lines = difference_text(found, width())
    deliver(lines, output)
