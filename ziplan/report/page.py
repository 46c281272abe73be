"""A page of labelled paragraphs and tables that must not grow beyond so many lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ziplan.report.lines import Line, Span, line, wrapped

LABEL = 10
"""Columns that labels take."""
MOST = 3
"""Lines that a paragraph takes at most."""
MORE = "more with --explain or --json"


class Paragraph(NamedTuple):
    """Text under a label; `droppable` where the page may do without it, `minor` where without its end."""

    label: str
    text: str
    style: str = ""
    droppable: bool = False
    minor: bool = False

    def lines(self, width: int, most: int) -> list[Line]:
        """The text wrapped beside its label, cut after so many lines."""
        parts = wrapped(self.text, width - LABEL, indent="", most=most)
        labels = [self.label, *[""] * len(parts)]
        return [
            (Span(f"{label:<{LABEL}}", "bold"), *(Span(span.text, self.style) for span in part))
            for label, part in zip(labels, parts, strict=False)
        ]


Block = Paragraph | Sequence[Line]
"""A paragraph, or lines that stay as they are; no lines at all stand for a blank one."""


def laid_out(blocks: Sequence[Block], width: int, longest: int) -> list[Line]:
    """The blocks as lines. Where they are too many, blank ones go, long paragraphs are cut, notes dropped.

    Minor paragraphs and notes are cut to a line, and notes dropped, before any other is cut.
    """
    blocks = list(blocks)
    lines = _lines(blocks, width, {})
    if len(lines) > longest:
        blocks = [block for block in blocks if block]
    most: dict[int, int] = {}
    while len(lines := _lines(blocks, width, most)) > longest:
        cut = _cut(blocks, width, most, minor=True) or _drop(blocks) or _cut(blocks, width, most, minor=False)
        if not cut:
            break
    return lines


def _cut(blocks: Sequence[Block], width: int, most: dict[int, int], minor: bool) -> bool:
    """Take a line off the tallest paragraph, the last of those as tall, unless all have one line."""
    heights = {
        index: len(block.lines(width, most.get(index, MOST)))
        for index, block in enumerate(blocks)
        if isinstance(block, Paragraph) and (not minor or block.minor or block.droppable)
    }
    tallest = max(reversed(heights), key=lambda index: heights[index], default=-1)
    if tallest < 0 or heights[tallest] <= 1:
        return False
    most[tallest] = heights[tallest] - 1
    return True


def _lines(blocks: Sequence[Block], width: int, most: dict[int, int]) -> list[Line]:
    lines: list[Line] = []
    for index, block in enumerate(blocks):
        if isinstance(block, Paragraph):
            lines += block.lines(width, most.get(index, MOST))
        else:
            lines += block or [line()]
    return lines


def _drop(blocks: list[Block]) -> bool:
    """Take one droppable paragraph away, the last first, and say how many are gone."""
    droppable = [i for i, block in enumerate(blocks) if isinstance(block, Paragraph) and block.droppable]
    if len(droppable) < 2:
        return False
    *_, before, last = droppable
    said = blocks[last]
    assert isinstance(said, Paragraph)
    gone = int(said.text.split()[0]) if said.text.endswith(MORE) else 1
    blocks[before] = Paragraph(said.label, f"{gone + 1} {MORE}", droppable=True)
    del blocks[last]
    return True
