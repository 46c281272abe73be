"""`ziplan schema`: JSON Schema of the files that ziplan reads and the documents that it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from ziplan.cli import options
from ziplan.cli.output import write
from ziplan.errors import BadInput

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def _of(model: Any, title: str) -> dict[str, Any]:
    schema: dict[str, Any] = model.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": title}


def _model_file() -> dict[str, Any]:
    from ziplan.workload.source import ModelFile

    return _of(ModelFile, "model.yaml")


def _cluster_file() -> dict[str, Any]:
    from ziplan.hardware.profiles import ClusterFile

    return _of(ClusterFile, "cluster.yaml")


def _machine_file() -> dict[str, Any]:
    from ziplan.hardware.profiles import MachineFile

    return _of(MachineFile, "machine.yaml")


def _plan_file() -> dict[str, Any]:
    from ziplan.report.plan_file import PlanFile

    return _of(PlanFile, "plan.yaml")


INPUTS: dict[str, Callable[[], dict[str, Any]]] = {
    "model.yaml": _model_file,
    "cluster.yaml": _cluster_file,
    "machine.yaml": _machine_file,
    "plan.yaml": _plan_file,
}


def schema_names() -> list[str]:
    """What `schema` takes."""
    from ziplan.report.schemas import DOCUMENTS

    return [*DOCUMENTS, *INPUTS]


def schema_text(name: str) -> str:
    """The schema called `name`, as text."""
    from ziplan.report.json import dumps
    from ziplan.report.schemas import DOCUMENTS

    if name in INPUTS:
        return dumps(INPUTS[name]())
    if name in DOCUMENTS:
        return dumps(DOCUMENTS[name])
    raise BadInput.of(f"no schema is called {name!r}", help=f"known are {', '.join(schema_names())}")


@app.command()
def schema(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A document: fit, model, limits, article. A file: model.yaml, cluster.yaml, machine.yaml, plan.yaml.",
            autocompletion=options.completer(schema_names),
        ),
    ],
) -> None:
    """Print the JSON Schema of a file that ziplan reads or of a document that it writes."""
    write(schema_text(name))
