"""Models of files validated over located data: each thing wrong becomes a problem at its place."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Union, get_args, get_origin

from ziplan.errors import BadInput, Problem
from ziplan.files.document import Path, dotted, is_index, nearest
from ziplan.units import Unit, UnitError, figure

if TYPE_CHECKING:
    from pydantic import BaseModel

M = TypeVar("M", bound="BaseModel")
_UNIONS = (Union, types.UnionType)

WRONG_VALUE, WRONG_UNIT, UNKNOWN_KEY, MISSING_KEY = "ZP010", "ZP011", "ZP012", "ZP013"


class Located(Protocol):
    """What `validate` needs of a document: its data, and problems at a place of it."""

    data: Any

    def problem(
        self, path: Path, code: str, message: str, help: str = "", hint: str = "", key: bool = False
    ) -> Problem:
        """A problem with the value at `path`, or with its key."""


def validate(document: Located, model: type[M], path: Path = (), data: Any = None) -> M:
    """`model` made from the document's data at `path` (or from `data`, which stands there).

    Everything wrong is raised at once, each problem at its place.
    """
    from pydantic import ValidationError

    if data is None:
        data = document.data
        for step in path:
            data = data[step]
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = _told(document, model, path, data, error.errors(include_url=False))
        raise BadInput(*problems) from None


def _told(
    document: Located, model: type[BaseModel], path: Path, data: Any, errors: Sequence[Any]
) -> Iterator[Problem]:
    """Each of pydantic's errors as a problem; of the branches of a union the one that was meant."""
    reached = [_reach(data, error["loc"]) for error in errors]
    for error, (at, value) in zip(errors, reached, strict=True):
        deeper = any(len(other) > len(at) and other[: len(at)] == at for other, _ in reached)
        asks_keys = error["type"] in ("missing", "extra_forbidden") or error["loc"][-1:] == ("[key]",)
        if isinstance(value, dict) and deeper and not asks_keys:
            continue
        yield _problem_of(document, model, (*path, *at), error, value)


def _reach(data: Any, loc: Sequence[str | int]) -> tuple[Path, Any]:
    """The part of pydantic's location that is in the data (names of union branches are not)."""
    at: Path = ()
    for step in loc:
        if (isinstance(data, dict) and step in data) or is_index(step, data):
            at, data = (*at, step), data[step]
    return at, data


def _problem_of(document: Located, model: type[BaseModel], at: Path, error: Any, value: Any) -> Problem:
    kind, loc, context = error["type"], error["loc"], error.get("ctx", {})
    name = str(loc[-1]) if loc else ""
    where = f" in {dotted(at[:-1])}" if at[:-1] else ""
    if kind == "extra_forbidden":
        known = known_keys(model, loc[:-1])
        hint = nearest(name, known) or f"known here: {', '.join(known)}"
        message = f"unknown key `{name}`{where}"
        return document.problem(at, UNKNOWN_KEY, message, _example(known, hint), hint, key=True)
    if kind == "missing":
        message = f"{f'{dotted(at)}: ' if at else ''}missing key `{name}`"
        example = getattr(_unit(known_keys(model, loc[:-1]).get(name)), "example", "...")
        return document.problem(at, MISSING_KEY, message, f"add `{name}: {example}`", key=bool(at))
    if name == "[key]":
        expected = re.findall(r"'([^']+)'", str(context.get("expected", "")))
        hint = nearest(str(at[-1]), expected) or f"known here: {', '.join(expected)}"
        return document.problem(at, UNKNOWN_KEY, f"unknown key `{at[-1]}`{where}", "", hint, key=True)
    cause = context.get("error")
    code = WRONG_UNIT if isinstance(cause, UnitError) else WRONG_VALUE
    hint = nearest(value, re.findall(r"'([^']+)'", context["expected"])) if _misspelt(kind, value) else ""
    message = f"{dotted(at)}: " if at else ""
    return document.problem(at, code, message + _sentence(error, value), "", hint)


def _misspelt(kind: str, value: Any) -> bool:
    return kind == "literal_error" and isinstance(value, str)


def _example(known: dict[str, Any], hint: str) -> str:
    """How to write the key that was probably meant, where it takes a quantity."""
    meant = re.fullmatch(r"did you mean `(.*)`\?", hint)
    unit = _unit(known[meant[1]]) if meant else None
    return f"write it with its unit, for example `{meant[1]}: {unit.example}`" if meant and unit else ""


def _unit(annotation: Any) -> Unit | None:
    """The unit that a field's annotation names, if it takes a quantity."""
    members = get_args(annotation) if get_origin(annotation) in _UNIONS else ()
    for part in (annotation, *members):
        for mark in getattr(part, "__metadata__", ()):
            if isinstance(mark, Unit):
                return mark
    return None


_SENTENCES = {
    "int": "expected a whole number",
    "float": "expected a number",
    "finite": "expected a finite number",
    "bool": "expected true or false",
    "string": "expected text",
    "dict": "expected a mapping of keys to values",
    "mapping": "expected a mapping of keys to values",
    "model": "expected a mapping of keys to values",
    "list": "expected a list",
    "tuple": "expected a list",
}
_BOUNDS = {
    "greater_than": "gt",
    "greater_than_equal": "ge",
    "less_than": "lt",
    "less_than_equal": "le",
}
_BOUND_WORDS = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}


def _sentence(error: Any, value: Any) -> str:
    """What is wrong, said plainly."""
    kind, context = error["type"], error.get("ctx", {})
    if isinstance(context.get("error"), Exception):
        return str(context["error"])
    written = "nothing" if value is None else repr(value)
    written = ", not " + (written if len(written) <= 60 else f"{written[:60]}...")
    if kind in _BOUNDS:
        bound = _BOUNDS[kind]
        return f"must be {_BOUND_WORDS[bound]} {figure(context[bound])}{written}"
    if kind == "literal_error":
        return f"expected {context['expected']}{written}"
    sentence = _SENTENCES.get(kind.partition("_")[0])
    if sentence:
        return sentence + written
    message = str(error["msg"])
    return message[:1].lower() + message[1:]


def known_keys(model: Any, loc: Sequence[str | int]) -> dict[str, Any]:
    """Keys known at a location inside a model, each with its annotation."""
    types = list(_alternatives(model))
    for step in loc:
        types = [t for found in types for part in _parts(found, step) for t in _alternatives(part)] or types
    return {name: annotation for found in types for name, annotation in _own_keys(found).items()}


def _own_keys(found: Any) -> dict[str, Any]:
    """A model's keys as files spell them, each with its annotation (units included)."""
    fields: dict[str, Any] = {}
    for name, info in getattr(found, "model_fields", {}).items():
        unit = next((mark for mark in info.metadata if isinstance(mark, Unit)), None)
        annotation = info.annotation
        fields[info.alias or name] = _Quantity(unit) if unit else annotation
    return fields


class _Quantity:
    """A field that takes a quantity (pydantic keeps its unit apart from its type)."""

    def __init__(self, unit: Unit) -> None:
        self.__metadata__ = (unit,)


def _parts(found: Any, step: str | int) -> list[Any]:
    """The annotations of what stands under `step` in a value of a type."""
    if step in (own := _own_keys(found)):
        return [own[str(step)]]
    arguments = get_args(found)
    if get_origin(found) is dict:
        return [arguments[1]]
    if get_origin(found) in (list, tuple) and isinstance(step, int):
        return [arguments[0]]
    return []


def _alternatives(annotation: Any) -> Iterator[Any]:
    """A type's alternatives: the members of a union, without what annotates them."""
    if hasattr(annotation, "__metadata__") and hasattr(annotation, "__origin__"):
        yield from _alternatives(annotation.__origin__)
    elif get_origin(annotation) in _UNIONS:
        for member in get_args(annotation):
            yield from _alternatives(member)
    else:
        yield annotation
