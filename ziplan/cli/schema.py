"""`ziplan schema`: JSON Schema of the files that ziplan reads and the documents that it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from ziplan.cli import options
from ziplan.cli.output import write
from ziplan.errors import BadInput

app = typer.Typer(add_completion=False, rich_markup_mode=None)


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _model_file() -> dict[str, Any]:
    from ziplan.workload.model_file import ModelFile

    return ModelFile.model_json_schema()


def _cluster_file() -> dict[str, Any]:
    from ziplan.hardware.cluster_file import ClusterFile

    return ClusterFile.model_json_schema()


def _machine_file() -> dict[str, Any]:
    from ziplan.report.machine_schema import machine_schema

    return machine_schema()


def _plan_file() -> dict[str, Any]:
    from ziplan.report.plan_record import PlanFile

    return PlanFile.model_json_schema()


def _measurement_file() -> dict[str, Any]:
    from ziplan.study.records import RecordFile

    return RecordFile.model_json_schema()


def _calibration_file() -> dict[str, Any]:
    from ziplan.hardware.calibration import CalibrationFile

    return CalibrationFile.model_json_schema()


def _policy_file() -> dict[str, Any]:
    from ziplan.check.policy import PolicyFile

    return PolicyFile.model_json_schema()


def _gates_file() -> dict[str, Any]:
    from ziplan.check.policy import Gates

    return Gates.model_json_schema()


INPUTS: dict[str, Callable[[], dict[str, Any]]] = {
    "model.yaml": _model_file,
    "cluster.yaml": _cluster_file,
    "machine.yaml": _machine_file,
    "plan.yaml": _plan_file,
    "measurement.yaml": _measurement_file,
    "calibration.yaml": _calibration_file,
    ".ziplan.yaml": _policy_file,
    "gates.yaml": _gates_file,
}


def _documents() -> dict[str, dict[str, Any]]:
    """The documents by name; what a rule's finding is like is known to `check` alone."""
    from ziplan.report.check_schema import CHECK
    from ziplan.report.deciding_schemas import DECIDING
    from ziplan.report.schemas import DOCUMENTS

    return {**DOCUMENTS, "check": CHECK, **DECIDING, "bench": _bench()}


def _bench() -> dict[str, Any]:
    """The record of a bench, which is read as well as written."""
    from ziplan.bench.record import SCHEMA, Record

    return {"$schema": DIALECT, **Record.model_json_schema(), "title": SCHEMA}


def schema_names() -> list[str]:
    """What `schema` takes."""
    return [*_documents(), *INPUTS]


def schema_text(name: str) -> str:
    """The schema called `name`, as text."""
    from ziplan.report.json import dumps

    documents = _documents()
    if name in INPUTS:
        return dumps({"$schema": DIALECT, **INPUTS[name](), "title": name})
    if name in documents:
        return dumps(documents[name])
    raise BadInput.of(f"no schema is called {name!r}", help=f"known are {', '.join(schema_names())}")


@app.command()
def schema(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A document (fit, simulate and so on) or a file (model.yaml and so on).",
            autocompletion=options.completer(schema_names),
        ),
    ],
) -> None:
    """Print the JSON Schema of a file that ziplan reads or of a document that it writes."""
    write(schema_text(name))
