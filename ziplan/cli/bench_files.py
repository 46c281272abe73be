"""Files that `ziplan bench`, its import and its merge write: whether they can be, and what they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ziplan.cli import options
from ziplan.cli.inputs import machine_names
from ziplan.cli.output import save, writable
from ziplan.errors import BadInput

ExtendsOption = Annotated[
    str,
    typer.Option(
        "--extends",
        metavar="MACHINE",
        help="The machine whose values hold where nothing was measured.",
        autocompletion=options.completer(machine_names),
        show_default=False,
    ),
]


def record_beside(output: Path) -> Path | None:
    """The record beside a machine file; None where the machine file goes to a pipe or a device."""
    if output.exists() and not output.is_file() and not output.is_dir():
        return None
    return output.with_name(f"{output.name}.bench.json")


def check_output(output: Path | None, read: Sequence[Path] = (), record: bool = True) -> None:
    """BadInput where the files could not be written in the end, or would replace one that is read.

    `record` says whether the record is written beside: told before anything is measured.
    """
    files = [] if output is None else [output, record_beside(output)] if record else [output]
    for file in files:
        writable(file)
        if file is not None and any(each.exists() and file.exists() and each.samefile(file) for each in read):
            raise BadInput.of("is read: it would be replaced", file=str(file), help="write to another file")


def is_there(output: Path | None) -> bool:
    """Whether a machine file or its record was written before."""
    files = [] if output is None else [output, record_beside(output)]
    return any(file is not None and file.is_file() for file in files)


def save_record(output: Path | None, text: str) -> None:
    """Write the record beside the machine file."""
    if output is not None and (beside := record_beside(output)) is not None:
        save(beside, text)


def told(output: Path, what: str) -> str:
    """That a file of a machine or a cluster was written, and what it lacks where no plan takes it."""
    from ziplan.hardware.profiles import load_cluster

    if not output.is_file():
        return f"{output}, {what}"
    try:
        load_cluster(str(output))
    except BadInput as error:
        problem = error.problems[0]
        help = f" ({problem.help})" if problem.help else ""
        return f"{output}, {what} that no plan takes yet: {problem.message}{help}"
    return f"{output}, {what}: ziplan fit MODEL {output}"
