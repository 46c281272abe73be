"""A request under changes by path, as `--vary` and `--with` take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ziplan.cli.inputs import Request, problem_of
from ziplan.errors import BadInput

if TYPE_CHECKING:
    from ziplan.solve.problem import Problem

TRAINING = "training."
NAMED = ("model", "cluster", "runtime")
"""Paths that are arguments of the command line themselves."""


def posed(request: Request, changes: Mapping[str, str]) -> Problem:
    """The problem of a request under changes: of `training.*`, `model` and the like, or of the machine."""
    names: dict[str, Any] = {path: value for path, value in changes.items() if path in NAMED}
    training = dict(request.training)
    settings = list(request.settings)
    for path, value in changes.items():
        if path.startswith(TRAINING):
            training = _with(training, path.removeprefix(TRAINING).split("."), _plain(path, value))
        elif path not in names:
            settings.append(f"{path}={value}")
    return problem_of(request._replace(**names, training=training, settings=tuple(settings)))


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
