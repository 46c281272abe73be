"""`ziplan sweep`: every point of a grid of inputs, and which of them no other one beats."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ziplan.cli import options
from ziplan.cli.given import Given, given_options
from ziplan.cli.options import SweepFormat
from ziplan.cli.output import apart, complain, deliver, width, writable
from ziplan.errors import ExitCode

if TYPE_CHECKING:
    from ziplan.report.sweep import Sweep

app = typer.Typer(add_completion=False, rich_markup_mode=None)

BETWEEN = 0.2
"""Seconds between two words about progress."""


class Workers(str, Enum):
    """Who solves the points of a sweep."""

    PROCESSES = "processes"
    RAY = "ray"


@app.command()
@given_options()
def sweep(
    model: options.ModelArgument,
    cluster: options.ClusterArgument,
    vary: Annotated[
        list[str],
        typer.Option(
            "--vary",
            metavar="PATH=VALUES",
            help="A field and its values: nodes=1,2,4, training.micro_batch_size=1..64 (doubling), "
            "tiers.nvme.drive_count=1..8:1. Repeatable.",
            show_default=False,
        ),
    ],
    given: Given,
    front: Annotated[bool, typer.Option("--front", help="List the points on the front only.")] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", min=1, max=1024, metavar="N", help="Processes. Default: by cores.", show_default=False
        ),
    ] = None,
    on: Annotated[
        Workers,
        typer.Option(
            "--on",
            help="Who solves: processes of this machine, or a Ray cluster (RAY_ADDRESS names it).",
            show_default=False,
        ),
    ] = Workers.PROCESSES,
    json: options.JsonOption = False,
    format: Annotated[SweepFormat, options.format_option(SweepFormat)] = SweepFormat.TEXT,
    output: options.OutputOption = None,
) -> int:
    """Solve every point of a grid of inputs, and mark those that no other one beats."""
    from ziplan.cli.varied import posed
    from ziplan.study.axes import axes_of
    from ziplan.study.sweep import swept

    axes = axes_of(vary)
    apart([output], [model, cluster])
    writable(output)
    found = swept(
        partial(posed, given.on(model, cluster), option="--vary"),
        axes,
        jobs,
        progress_on_terminal(),
        on is Workers.RAY,
    )
    _deliver(found, SweepFormat.JSON if json else format, output, front)
    if found.complete:
        return ExitCode.OK
    complain(f"ziplan: interrupted: {len(found.rows):,} of {found.asked:,} points were solved")
    return ExitCode.INTERRUPTED


def progress_on_terminal() -> Callable[[int, int], None]:
    """What tells how far it is, its rate and the time left, on stderr where that is a terminal."""
    if not (sys.stderr and sys.stderr.isatty()):
        return lambda done, points: None
    began = said = time.monotonic()

    def tell(done: int, points: int) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said < BETWEEN and done < points:
            return
        said = now
        rate = done / max(now - began, 1e-9)
        words = f"{done:,} of {points:,} points, {rate:,.0f} a second, {(points - done) / rate:,.0f} s left"
        sys.stderr.write(f"\r{words:<70}" if done < points else f"\r{'':<70}\r")
        sys.stderr.flush()

    return tell


def _deliver(found: Sweep, form: SweepFormat, output: Path | None, only_front: bool) -> None:
    if form is not SweepFormat.TEXT:
        from ziplan.report.json import dumps
        from ziplan.report.sweep_json import sweep_csv, sweep_document

        deliver(dumps(sweep_document(found)) if form is SweepFormat.JSON else sweep_csv(found), output)
        return
    from ziplan.report.sweep_text import sweep_text

    lines = sweep_text(found, width(), only_front)
    deliver(lines, output)
