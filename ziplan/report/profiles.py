"""A machine or a part as text: every value with its kind and its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from ziplan.hardware.cluster import Provenance
from ziplan.report.inputs import values
from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.table import Column, table
from ziplan.units import Unit, show

INDENT = "    "


def profile_text(title: str, part: BaseModel, provenance: Mapping[str, Provenance], width: int) -> list[Line]:
    """The values in the order of the record; sources once each, by number, below."""
    nowhere = Provenance("", "")
    every = [
        (path, shown_value(value, unit), provenance.get(path, nowhere)) for path, value, unit in values(part)
    ]
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


def shown_value(value: Any, unit: Unit | None) -> str:
    """A value of a record as text."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return show(value, unit.symbol) if unit else f"{value:,}" if isinstance(value, int) else str(value)
