"""A request under changes by path, as `--vary` and `--with` take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ziplan.cli.inputs import Request, problem_of
from ziplan.errors import BadInput
from ziplan.errors import Problem as Wrong

if TYPE_CHECKING:
    from ziplan.solve.problem import Problem

TRAINING = "training."
NAMED = ("model", "cluster", "runtime")
"""Paths that are arguments of the command line themselves."""


def posed(request: Request, changes: Mapping[str, str], option: str = "") -> Problem:
    """The problem of a request under changes: of `training.*`, `model` and the like, or of the machine.

    What is wrong with a change is said of the `option` that it was given with, where there is one.
    """
    try:
        return problem_of(_changed(request, changes))
    except BadInput as error:
        if not option:
            raise
        raise BadInput(*(_named(wrong, changes, option) for wrong in error.problems)) from None


def _changed(request: Request, changes: Mapping[str, str]) -> Request:
    names: dict[str, Any] = {path: value for path, value in changes.items() if path in NAMED}
    training = dict(request.training)
    settings = list(request.settings)
    for path, value in changes.items():
        if path.startswith(TRAINING):
            training = _with(training, path.removeprefix(TRAINING).split("."), _plain(path, value))
        elif path not in names:
            settings.append(f"{path}={value}")
    return request._replace(**names, training=training, settings=tuple(settings))


def _named(wrong: Wrong, changes: Mapping[str, str], option: str) -> Wrong:
    """A problem, named after the option and the path where it is of a change; others keep their own flag."""
    from ziplan.workload.load import flag_of

    for path in changes:
        if wrong.file == f"--set {path}":
            return wrong._replace(file=f"{option} {path}")
        keys = path.removeprefix(TRAINING).split(".") if path.startswith(TRAINING) else []
        for flag in map(flag_of, keys):
            if wrong.message.startswith(f"{flag}: "):
                said = wrong.message.removeprefix(f"{flag}: ")
                return wrong._replace(file=f"{option} {path}", message=said)
    return wrong


def _with(settings: Mapping[str, Any], keys: list[str], value: Any) -> dict[str, Any]:
    """The settings with one of them, or a part of one, replaced."""
    key, *below = keys
    if not below:
        return {**settings, key: value}
    within = settings.get(key)
    return {**settings, key: _with(within if isinstance(within, Mapping) else {}, below, value)}


def _plain(path: str, text: str) -> Any:
    """The value as a model.yaml would hold it."""
    from ziplan.files import read_text

    try:
        return read_text(text, f"--set {path}").data
    except BadInput as error:
        raise BadInput(*(wrong._replace(line=0, column=0) for wrong in error.problems)) from None
