"""A finding, the rule that makes it, and the page that explains the rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from ziplan.laws.law import Step

if TYPE_CHECKING:
    from ziplan.check.case import Case

Severity = Literal["error", "warning", "note"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""Worst first."""


class Number(NamedTuple):
    """The number that a finding rests on, its unit, and the law that gave it, where one did."""

    value: float
    unit: str = "1"
    step: Step | None = None


class Hit(NamedTuple):
    """What a rule found: a sentence, the key it is about, what to do.

    `key` is a dotted path of a DeepSpeed config, `field` one of a plan.yaml; the form of the file
    that is judged decides which of them is the place. `file`, `line` and `column` are of a reader
    that has been there already.
    """

    message: str
    key: str = ""
    field: str = ""
    fix: str = ""
    number: Number | None = None
    file: str = ""
    line: int = 0
    column: int = 0


class Finding(NamedTuple):
    """A hit with its rule and its place; lines and columns count from 1, 0 is a file that has neither."""

    code: str
    severity: Severity
    title: str
    message: str
    file: str
    path: str
    line: int
    column: int
    fix: str = ""
    number: Number | None = None


class Rule(NamedTuple):
    """One pitfall: its code, what finds it, and the page that `ziplan explain CODE` prints.

    `what` says when it fires, `why` what happens then, `example` shows a config that it is about,
    `fix` what to do.
    """

    code: str
    title: str
    severity: Severity
    find: Callable[[Case], Iterable[Hit]]
    what: str
    why: str
    example: str
    fix: str
