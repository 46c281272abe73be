"""`ziplan calibrate`: parameters of a machine from a user's own runs on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ziplan.cli import options
from ziplan.cli.given import SETTLED_BY_A_CONFIG, Given, given_options
from ziplan.cli.output import deliver, save, warn, width
from ziplan.errors import BadInput

if TYPE_CHECKING:
    from ziplan.study.calibrate.runs import Run, Subject
    from ziplan.study.records import Record

app = typer.Typer(add_completion=False, rich_markup_mode=None)

USAGE = "ziplan calibrate RUN.log MODEL CLUSTER --config ds_config.json -o calibration.yaml"


@app.command()
@given_options(*SETTLED_BY_A_CONFIG, "calibration")
def calibrate(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUNS... [MODEL CLUSTER]",
            help="Logs of runs and the model and cluster that they are of, or files of measured runs.",
        ),
    ],
    given: Given,
    config: Annotated[
        list[Path] | None,
        typer.Option(
            "--config",
            metavar="FILE",
            parser=options.a_path,
            help="The config or plan.yaml that ran: one for all logs, or one for each in order.",
            show_default=False,
        ),
    ] = None,
    json: options.JsonOption = False,
    format: options.FormatOption = options.Format.TEXT,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            parser=options.a_path,
            help="Write the calibration to FILE, for --calibration.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Fit what a machine really delivers from runs on it, each parameter only from what shows it."""
    from ziplan.report.calibration_text import calibration_text
    from ziplan.study.calibrate.calibration import calibration
    from ziplan.study.calibrate.overlay import overlay, overlay_text

    found = calibration(_runs(inputs, config or [], given))
    if output is not None:
        save(output, overlay_text(found))
    if json or format is options.Format.JSON:
        from ziplan.hardware.calibration import plain
        from ziplan.report.json import dumps

        deliver(dumps(plain(overlay(found))), None)
        return
    deliver(calibration_text(overlay(found), width(), str(output) if output else ""), None)


def _runs(inputs: list[str], configs: list[Path], given: Given) -> list[Run]:
    """The runs of the files named first: records, and logs of what the last two name."""
    from ziplan.study.calibrate.runs import run_of_file

    paths = [options.a_path(text) for text in inputs]
    if all(_holds_records(path) for path in paths):
        if configs:
            raise BadInput.of("--config without a log", help="files of measured runs hold their plans")
        return _of_records(paths)
    if len(paths) < 3:
        raise BadInput.of("runs, a model and a cluster are needed", help=USAGE)
    model, cluster = inputs[-2:]
    records = [path for path in paths[:-2] if _holds_records(path)]
    logs = [path for path in paths[:-2] if path not in records]
    subjects = _subjects(logs, configs, given, model, cluster) if logs else []
    return [
        *(_of_records(records) if records else []),
        *(run_of_file(path, subject) for path, subject in zip(logs, subjects, strict=True)),
    ]


def _of_records(paths: list[Path]) -> list[Run]:
    """The runs of files of measured runs; those that no calibration can be made of are left out, and told."""
    from ziplan.study.records import load_records

    found = [_attempted(record) for record in load_records(paths)]
    runs = [each for each in found if not isinstance(each, BadInput)]
    wrong = [problem for each in found if isinstance(each, BadInput) for problem in each.problems]
    if not runs:
        raise BadInput(*wrong)
    for problem in wrong:
        warn(f"left out: {problem.message}")
    return runs


def _attempted(record: Record) -> Run | BadInput:
    """The run of a record, or why there is none."""
    from ziplan.study.calibrate.runs import run_of_record

    try:
        return run_of_record(record)
    except BadInput as error:
        named = (each._replace(message=f"{record.entry.id}: {each.message}") for each in error.problems)
        return BadInput(*named)


def _holds_records(path: Path) -> bool:
    """Whether a file holds measured runs; one that cannot be read is told of as what it is taken for."""
    from ziplan.files import read
    from ziplan.study.records import SCHEMA

    if path.suffix not in (".yaml", ".yml", ".json") or not path.is_file():
        return False
    try:
        data = read(path).data
    except BadInput:
        return False
    return isinstance(data, dict) and data.get("schema") == SCHEMA


def _subjects(logs: list[Path], configs: list[Path], given: Given, model: str, cluster: str) -> list[Subject]:
    """What ran, for each log."""
    if not configs:
        raise BadInput.of("--config is missing: which config did the run have?", help=USAGE)
    if len(configs) not in (1, len(logs)):
        raise BadInput.of(
            f"{len(configs)} of --config for {len(logs)} logs", help="give one for all logs, or one for each"
        )
    if len(configs) == 1:
        return [_subject(configs[0], given, model, cluster)] * len(logs)
    return [_subject(each, given, model, cluster) for each in configs]


def _subject(config: Path, given: Given, model: str, cluster: str) -> Subject:
    """What a config comes to on a cluster."""
    from ziplan.cli.check_inputs import Asked, case_of
    from ziplan.study.calibrate.runs import Subject

    case = case_of(config, Asked(given.on(model, cluster)))
    if case.plan is None:
        wrong = next((each.message for each in case.remarks if each.kind == "rejected"), "comes to no plan")
        raise BadInput.of(f"is refused: {wrong}", file=str(config), help=f"see ziplan check {config}")
    if case.other_plan is not None:
        raise BadInput.of(
            "whether the run recomputed activations is not stated", help="add --checkpointing none or full"
        )
    return Subject(case.cluster, case.workload, case.runtime, case.plan)
