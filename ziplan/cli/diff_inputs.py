"""From the two files of `ziplan diff` to what is known of each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ziplan.errors import BadInput
from ziplan.study.diff import Side

if TYPE_CHECKING:
    from ziplan.check.case import Case
    from ziplan.cli.inputs import Request
    from ziplan.runtimes.deepspeed.reading.forms import Opened
    from ziplan.runtimes.deepspeed.reading.read import Trainer
    from ziplan.runtimes.deepspeed.reading.remarks import Notes, Remark

WITH_BOTH = "name the model and the cluster too: `ziplan diff A B MODEL CLUSTER`"


def sides(files: Sequence[Path]) -> tuple[Side, Side]:
    """Two files by what they say alone: plans by their fields, configs of one form by their keys."""
    from ziplan.runtimes.deepspeed.reading.forms import open_config

    one, other = (open_config(file) for file in files)
    if one.form != other.form:
        names = f"{one.document.name} is {one.form}, {other.document.name} is {other.form}"
        raise BadInput.of(
            f"{names}: their keys are not the same",
            help=WITH_BOTH,
        )
    return _alone(one), _alone(other)


def _alone(opened: Opened) -> Side:
    """What a file says without a model and a machine."""
    document, form = opened.document, opened.form
    if form == "plan":
        from ziplan.report.plan_file import load_plan

        runtime = document.data.get("runtime") or ""
        return Side(document.name, form, load_plan(document), {"runtime": runtime})
    from ziplan.runtimes.deepspeed.reading.remarks import Notes

    notes = Notes(document)
    settings = _as_deepspeed_takes_it(document.data, notes) if form == "deepspeed" else document.data
    remarks = [*notes.remarks, *_of_trainers(opened)]
    return Side(document.name, form, settings=settings, remarks=_told(remarks))


def _told(remarks: Iterable[Remark]) -> tuple[str, ...]:
    """The remarks on what does not hold as it is written."""
    return tuple(str(remark) for remark in remarks if remark.kind in ("rejected", "ignored"))


def _of_trainers(opened: Opened) -> list[Remark]:
    """Remarks on the keys of accelerate's config, and of the Trainer's arguments."""
    from ziplan.runtimes.deepspeed.reading.accelerate import plugin_of
    from ziplan.runtimes.deepspeed.reading.huggingface import trainer_arguments
    from ziplan.runtimes.deepspeed.reading.remarks import Notes
    from ziplan.runtimes.fsdp.reading import read_fsdp

    notes = Notes(opened.document)
    fsdp = opened.form == "accelerate" and "fsdp_config" in opened.document.data
    if fsdp:
        with contextlib.suppress(BadInput):  # an FSDP that is not planned can be compared all the same
            return list(read_fsdp(opened.document).remarks)
    elif opened.form == "accelerate":
        plugin_of(opened.document, notes)
    elif opened.form in ("arguments", "command"):
        trainer_arguments(opened.document, notes)
    return notes.remarks


def _as_deepspeed_takes_it(data: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    """Every key with its default, so that a default that is written is none that is left out.

    What the file states and DeepSpeed does not know, or a trainer replaces ("auto"), stays as it is.
    """
    from ziplan.runtimes.deepspeed.reading.raw import read_mapping

    values = read_mapping(data, 1.0, notes, batch_known=False).values
    return _over(values, data, "")


def _over(values: Mapping[str, Any], stated: Mapping[str, Any], section: str | None) -> dict[str, Any]:
    """`auto`, and keys that DeepSpeed does not know, laid over the values of those that it does."""
    from ziplan.runtimes.deepspeed.reading.kinds import AUTO
    from ziplan.runtimes.deepspeed.reading.walk import SECTIONS

    names = SECTIONS[section].names if section is not None and section in SECTIONS else {}
    merged = dict(values)
    for written, value in stated.items():
        key = names.get(written)
        name = key.name if key else written
        if isinstance(value, Mapping):
            below = merged.get(name)
            merged[name] = _over(
                below if isinstance(below, Mapping) else {}, value, (key.section or None) if key else None
            )
        elif key is None or value == AUTO:
            merged[name] = value
    return merged


def sides_on(files: Sequence[Path], request: Request, trainer: Trainer | None) -> tuple[Side, Side]:
    """Two files as plans of one model on one machine, with what is predicted of each."""
    from ziplan.cli.check_inputs import Asked, case_of

    cases = [case_of(file, Asked(request, trainer)) for file in files]
    return _predicted(cases[0]), _predicted(cases[1])


def _predicted(case: Case) -> Side:
    if case.plan is None or case.estimate is None:
        wrong = next((remark for remark in case.remarks if remark.kind in ("rejected", "unknown")), None)
        raise BadInput.of(
            f"comes to no plan{f': {wrong.message}' if wrong else ''}",
            file=case.file,
            help="`ziplan check` says what is wrong with it",
        )
    settings: dict[str, Any] = {"runtime": case.runtime.NAME, **(case.values or {})}
    return Side(case.file, case.form, case.plan, settings, case.estimate, _told(case.remarks))
