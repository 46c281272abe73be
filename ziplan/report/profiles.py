"""A machine or a part as text: every value with its kind and its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel

from ziplan.hardware.cluster import Provenance
from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.table import Column, table
from ziplan.units import Unit, show

INDENT = "    "


def profile_text(title: str, part: BaseModel, provenance: Mapping[str, Provenance], width: int) -> list[Line]:
    """The values in the order of the record; sources once each, by number, below."""
    nowhere = Provenance("", "")
    every = [(path, text, provenance.get(path, nowhere)) for path, text in values(part)]
    rows = [row for row in every if row[2] is not nowhere or row[1] not in ("", "0")]
    sources = list(dict.fromkeys(origin.source for *_, origin in rows if origin.source))
    numbers = {source: f"[{index}]" for index, source in enumerate(sources, 1)}
    columns = [
        Column("value of", [path for path, *_ in rows], right=False),
        Column("", [text for _, text, _ in rows], right=False),
        Column("kind", [origin.kind for *_, origin in rows], right=False),
        Column("source", [numbers.get(origin.source, "") for *_, origin in rows], right=False),
    ]
    listed = [
        part
        for source, number in numbers.items()
        for part in wrapped(f"{number} {source}", width, INDENT, keep_words=True)
    ]
    return [line(Span(title, "bold")), line(), *table(columns, width), line(), *listed]


def values(part: Any, path: str = "", unit: Unit | None = None) -> Iterator[tuple[str, str]]:
    """Every value of a record with its dotted path, as text with its unit."""
    if isinstance(part, BaseModel):
        for name, field in type(part).model_fields.items():
            inner = next((mark for mark in field.metadata if isinstance(mark, Unit)), None)
            yield from values(getattr(part, name), _below(path, name), inner or _unit(field.annotation))
    elif isinstance(part, Mapping):
        for name, value in part.items():
            yield from values(value, _below(path, str(name)), unit)
    elif isinstance(part, tuple):
        yield path, ", ".join(map(str, part))
    elif part is not None:
        yield path, show(part, unit.symbol) if unit else f"{part:,}" if isinstance(part, int) else str(part)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _unit(annotation: Any) -> Unit | None:
    """The unit that an annotation names, however deep inside it."""
    for mark in getattr(annotation, "__metadata__", ()):
        if isinstance(mark, Unit):
            return mark
    return next((found for inner in get_args(annotation) if (found := _unit(inner))), None)
