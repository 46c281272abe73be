"""The values of a machine as a flat list: path, value, unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel

from ziplan.units import Unit


def values(part: Any, path: str = "", unit: Unit | None = None) -> Iterator[tuple[str, Any, Unit | None]]:
    """Every value of a record that is stated, with its dotted path and its unit."""
    if isinstance(part, BaseModel):
        for name, field in type(part).model_fields.items():
            inner = next((mark for mark in field.metadata if isinstance(mark, Unit)), None)
            yield from values(getattr(part, name), _below(path, name), inner or _unit(field.annotation))
    elif isinstance(part, Mapping):
        for name, value in part.items():
            yield from values(value, _below(path, str(name)), unit)
    elif part is not None:
        yield path, part, unit


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _unit(annotation: Any) -> Unit | None:
    """The unit that an annotation names, however deep inside it."""
    for mark in getattr(annotation, "__metadata__", ()):
        if isinstance(mark, Unit):
            return mark
    return next((found for inner in get_args(annotation) if (found := _unit(inner))), None)
