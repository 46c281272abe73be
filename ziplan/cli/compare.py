"""`ziplan compare`: a few clusters, or changes of one, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ziplan.cli import options
from ziplan.cli.given import Given, given_options
from ziplan.cli.inputs import Request, machine_names
from ziplan.cli.output import apart, deliver, warn, width
from ziplan.errors import BadInput
from ziplan.errors import Problem as Wrong

if TYPE_CHECKING:
    from ziplan.report.comparison import Comparison
    from ziplan.study.compare import Asked

app = typer.Typer(add_completion=False, rich_markup_mode=None)

BETWEEN = ";"
"""Between several changes of one `--with`."""


@app.command()
@given_options()
def compare(
    model: options.ModelArgument,
    clusters: Annotated[
        list[str],
        typer.Argument(
            metavar="CLUSTER...",
            help="Cluster files, machine profiles, or names such as dgx-a100-80g or '4x dgx-h100'.",
            autocompletion=options.completer(machine_names),
        ),
    ],
    given: Given,
    changed: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="CHANGES",
            help="The first cluster with changes, e.g. 'tiers.dram.capacity=2 TiB; nodes=2'. Repeatable.",
            show_default=False,
        ),
    ] = None,
    tokens: Annotated[
        str,
        typer.Option(
            "--tokens",
            metavar="N",
            help="Tokens that time and cost are for, e.g. 100e9. Default: 1e9.",
            show_default=False,
        ),
    ] = "1e9",
    json: options.JsonOption = False,
    format: options.FormatOption = options.Format.TEXT,
    output: options.OutputOption = None,
) -> None:
    """Compare clusters for one model: verdict, time, cost, what binds, and whether to buy GPUs or offload."""
    from ziplan.study.compare import compared

    apart([output], [model, *clusters])
    budget = token_budget(tokens)
    found = compared(_asked(given.on(model, clusters[0]), clusters, changed or []), budget)
    _deliver(found, json or format is options.Format.JSON, output)


def token_budget(text: str) -> float:
    """Tokens as people write them: "100e9", "100 Gtoken"."""
    from ziplan.units import UnitError, parse

    try:
        tokens = parse(
            text, "token" if any(letter.isalpha() for letter in text.lower().replace("e", "")) else "1"
        )
    except UnitError as error:
        raise BadInput.of(f"--tokens: {error}", help="for example --tokens 100e9") from None
    if not tokens > 0:
        raise BadInput.of(f"--tokens {text!r:.40} is nothing to train on", help="for example --tokens 100e9")
    return tokens


def _asked(request: Request, clusters: list[str], changed: list[str]) -> list[Asked]:
    """The clusters, then the first one under each set of changes; every name and path must be right."""
    from ziplan.cli.varied import posed
    from ziplan.study.compare import Asked

    wrong: list[Wrong] = []
    asked = []
    options = [(cluster, {"cluster": cluster}) for cluster in clusters]
    for text in changed:
        changes = changes_of(text)
        options.append(
            (f"{clusters[0]} with {f'{BETWEEN} '.join(f'{k}={v}' for k, v in changes.items())}", changes)
        )
    for name, changes in options:
        try:
            problem = posed(request, changes, "--with")
        except BadInput as error:
            wrong += error.problems
            continue
        for warning in problem.cluster.warnings:
            warn(warning)
        asked.append(Asked(name, changes, problem))
    if wrong:
        raise BadInput(*wrong)
    return asked


def changes_of(text: str) -> dict[str, str]:
    """Path to value of one `--with`."""
    changes = {}
    for part in text.split(BETWEEN):
        path, equals, value = part.partition("=")
        if not equals or not path.strip() or not value.strip():
            raise BadInput.of(
                f"--with {text!r:.80} is not KEY=VALUE",
                help="for example --with 'tiers.dram.capacity=2 TiB; nodes=2'",
            )
        if path.strip() in changes:
            raise BadInput.of(
                f"--with {text!r:.80} says {path.strip()} twice",
                help="every --with is one option: give another --with for another value",
            )
        changes[path.strip()] = value.strip()
    return changes


def _deliver(found: Comparison, as_json: bool, output: Path | None) -> None:
    if as_json:
        from ziplan.report.comparison_json import compare_document
        from ziplan.report.json import dumps

        deliver(dumps(compare_document(found)), output)
        return
    from ziplan.report.comparison_text import comparison_text

    lines = comparison_text(found, width())
    deliver(lines, output)
