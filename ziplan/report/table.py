"""Tables of fixed columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ziplan.report.lines import Line, Span, line

GAP = "  "


class Column(NamedTuple):
    """A column: its title, its cells, which side they lean to, and whether it may go (0: never)."""

    title: str
    cells: Sequence[Span | str]
    right: bool = True
    expendable: int = 0

    @property
    def texts(self) -> list[str]:
        """The cells as plain text."""
        return [cell.text if isinstance(cell, Span) else cell for cell in self.cells]

    @property
    def width(self) -> int:
        """Columns of the terminal that it takes."""
        return max(len(text) for text in (self.title, *self.texts))

    def padded(self) -> list[Span]:
        """Its title and its cells, each at the width of the column."""
        width = self.width
        cells = [each if isinstance(each, Span) else Span(each, "") for each in self.cells]
        spans = [Span(self.title, "bold"), *cells]
        return [Span(f"{text:>{width}}" if self.right else f"{text:<{width}}", own) for text, own in spans]


def table(columns: Sequence[Column], width: int) -> list[Line]:
    """Columns side by side; expendable ones go, the most expendable first, until it is narrow enough."""
    kept = list(columns)
    while sum(column.width + len(GAP) for column in kept) - len(GAP) > width:
        goes = max(kept, key=lambda column: column.expendable)
        if not goes.expendable:
            break
        kept.remove(goes)
    return [_joined(cells) for cells in zip(*(column.padded() for column in kept), strict=True)]


def _joined(cells: Sequence[Span]) -> Line:
    spans = [piece for cell in cells for piece in (Span(GAP), cell)]
    return line(*spans[1:])
