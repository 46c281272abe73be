"""`ziplan limits`: the ceilings on a model's size, and how long training takes."""

from __future__ import annotations

from typing import Annotated

import typer

from ziplan.cli import options
from ziplan.cli.inputs import Request, answer_to, training_settings
from ziplan.cli.output import save, show, width, write

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def limits(
    model: options.ModelArgument,
    cluster: options.ClusterArgument,
    runtime: options.RuntimeOption = "deepspeed",
    set: options.SetOption = None,
    sequence_length: options.SequenceLength = None,
    global_batch_size: options.GlobalBatchSize = None,
    precision: options.PrecisionOption = None,
    companion: options.CompanionOption = None,
    json: Annotated[bool, typer.Option("--json", help="As ziplan.limits/1.")] = False,
    output: options.OutputOption = None,
) -> None:
    """The three ceilings on a model's size (capacity, width, compute), and the training time."""
    training = training_settings(
        sequence_length=sequence_length, global_batch_size=global_batch_size, precision=precision
    )
    request = Request(model, cluster, runtime, tuple(set or ()), training, tuple(companion or ()))
    answer = answer_to(request)
    if json:
        from ziplan.report.json import dumps, limits_document

        text = dumps(limits_document(answer))
        write(text) if output is None else save(output, text)
        return
    from ziplan.report.limits import limits_text
    from ziplan.report.lines import plain

    lines = limits_text(answer, width())
    show(lines) if output is None else save(output, plain(lines))
