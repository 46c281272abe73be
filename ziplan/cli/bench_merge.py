"""`ziplan bench merge`: the records of a cluster's nodes as one cluster file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ziplan.cli import options
from ziplan.cli.bench_files import ExtendsOption, check_output, told
from ziplan.cli.output import deliver, save, width
from ziplan.errors import ExitCode


def merge(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES...",
            parser=options.a_path,
            help="A record or machine file of each node, as `ziplan bench -o FILE` writes them.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            parser=options.a_path,
            help="Write the cluster file.",
            show_default=False,
        ),
    ] = None,
    extends: ExtendsOption = "",
    unequal: Annotated[
        bool, typer.Option("--unequal", help="Merge nodes whose memory differs in size, to the least.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the merged record (ziplan.bench/1).")] = False,
) -> int:
    """Merge the nodes of a cluster: of each value the least, since all wait for the slowest."""
    from ziplan.bench.merge import cluster_text, load_nodes, merged
    from ziplan.hardware.profiles import load_node

    if extends:
        load_node(extends)
    check_output(output, files, record=False)
    found = merged(load_nodes(files), unequal)
    if output is not None:
        save(output, cluster_text(found, extends))
    code = ExitCode.OK if found.record.measured else ExitCode.BAD_INPUT
    if json:
        from ziplan.bench.record import dumps

        deliver(dumps(found.record), None)
        return code
    from ziplan.report.merge_text import merge_text

    deliver(merge_text(found, width(), told(output, "a cluster file") if output else ""), None)
    return code
