"""`ziplan bench import`: what nvbandwidth, fio and nccl-tests measured, as a record and a machine file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ziplan.cli import options
from ziplan.cli.bench_files import ExtendsOption, check_output, save_record, told
from ziplan.cli.output import deliver, save, width
from ziplan.errors import ExitCode


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES...",
            parser=options.a_path,
            help="JSON of nvbandwidth, fio or nccl-tests, all of one node.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            parser=options.a_path,
            help="Write the machine file, and its record beside it (FILE.bench.json).",
            show_default=False,
        ),
    ] = None,
    extends: ExtendsOption = "",
    host: Annotated[str, typer.Option("--host", metavar="NAME", help="The node that the files are of.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the record (ziplan.bench/1).")] = False,
) -> int:
    """Import what other programs measured on a node, so that it counts as if `ziplan bench` had."""
    from ziplan.bench.imported import record_of
    from ziplan.bench.profile import profile_text
    from ziplan.bench.record import dumps
    from ziplan.hardware.profiles import load_node

    if extends:
        load_node(extends)
    check_output(output, files)
    record = record_of(files, host)
    written = []
    if output is not None:
        save_record(output, dumps(record))
        save(output, profile_text(record, extends))
        written = [told(output, "a machine file")]
    if json:
        deliver(dumps(record), None)
        return ExitCode.OK
    from ziplan.report.bench_text import bench_text

    deliver(bench_text(record, width(), written), None)
    return ExitCode.OK
