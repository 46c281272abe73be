"""From what a model.yaml or `--companion` says of the other models of a job to those models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ziplan.errors import BadInput, Problem
from ziplan.files import dotted, validate
from ziplan.files.document import Path as Keys
from ziplan.files.validation import WRONG_VALUE
from ziplan.units import Precision
from ziplan.workload.companions import Companion, companion, names_of
from ziplan.workload.model import Model
from ziplan.workload.model_file import CompanionEntry
from ziplan.workload.source import Source, open_source, referred
from ziplan.workload.training import Training

T = TypeVar("T")

TRAINED = ("none", "all")
"""What may follow the model in a flag."""

EXAMPLE = "for example --companion reference=llama-2-7b or --companion critic=./critic/config.json:all"


class Asked(NamedTuple):
    """A companion that was asked for: its model, and how to tell what is wrong with a part of it."""

    entry: CompanionEntry
    model: Callable[[], Model]
    problem: Callable[[str, str], Problem]


def load_companions(
    source: Source, flags: Sequence[str], training: Training, precision: Precision
) -> tuple[Companion, ...]:
    """The companions that flags ask for, else those of the model.yaml; all problems are raised together."""
    problems: list[Problem] = []
    flagged = (_attempt(problems, partial(_of_flag, text)) for text in flags)
    asked = [each for each in flagged if each is not None]
    if not flags:
        asked = [_of_file(source, entry, place) for entry, place in source.companions()]
    names = names_of(each.entry.role for each in asked)
    found = [
        _attempt(problems, partial(_loaded, each, name, training, precision))
        for each, name in zip(asked, names, strict=True)
    ]
    if problems:
        raise BadInput(*problems)
    return tuple(each for each in found if each is not None)


def _attempt(problems: list[Problem], call: Callable[[], T]) -> T | None:
    """What `call` answers, or None and its problems noted."""
    try:
        return call()
    except BadInput as error:
        problems += error.problems
        return None


def _loaded(asked: Asked, name: str, training: Training, precision: Precision) -> Companion:
    model, length = asked.model(), training.longest
    limit = model.max_sequence_length
    if limit and length > limit:
        raise BadInput(
            asked.problem("model", f"{model.name} takes sequences of up to {limit:,} tokens, not {length:,}")
        )
    try:
        return companion(name, asked.entry, model, training, precision)
    except ValueError as error:
        wrong = "model" if asked.entry.trainable in (None, *TRAINED) else "trainable"
        raise BadInput(asked.problem(wrong, str(error))) from None


def _of_file(source: Source, entry: CompanionEntry, place: Keys) -> Asked:
    document = source.document
    assert document is not None

    def problem(key: str, message: str) -> Problem:
        at = (*place, key)
        return document.problem(at, WRONG_VALUE, f"{dotted(at)}: {message}")

    return Asked(entry, partial(referred, document, entry.model, (*place, "model")), problem)


class _Flag:
    """`--companion ROLE=MODEL` as a place of problems."""

    def __init__(self, text: str, data: dict[str, Any]) -> None:
        self.text, self.data = text, data

    def problem(
        self, path: Keys, code: str, message: str, help: str = "", hint: str = "", key: bool = False
    ) -> Problem:
        """A problem with a part of the flag."""
        said = f"--companion {self.text!r:.80}: {message.removeprefix('model: ')}"
        return Problem("", 0, 0, code, said, help=help or EXAMPLE, hint=hint)


def _of_flag(text: str) -> Asked:
    """ROLE=MODEL, ROLE=MODEL:none or ROLE=MODEL:all; the model as MODEL names it."""
    role, equals, named = text.partition("=")
    if not equals or not named.strip():
        raise BadInput.of(f"--companion {text!r:.80} is not ROLE=MODEL", help=EXAMPLE)
    model, _, trained = named.rpartition(":")
    data: dict[str, Any] = {"role": role.strip(), "model": named}
    if trained in TRAINED and model:
        data |= {"model": model, "trainable": trained}
    flag = _Flag(text, data)
    entry = validate(flag, CompanionEntry)

    def load() -> Model:
        try:
            return open_source(entry.model).model()
        except BadInput as error:
            told = [
                each
                if each.line or each.file
                else flag.problem((), each.code, each.message, each.help, each.hint)
                for each in error.problems
            ]
            raise BadInput(*told) from None

    return Asked(entry, load, lambda key, message: flag.problem((key,), WRONG_VALUE, message))
