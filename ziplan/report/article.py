"""The article's worked example as text: every figure, as printed and exactly, with its derivation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ziplan.laws.law import Step
from ziplan.report.derivation import step_lines
from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.units import show

EXACT = 7
"""Significant digits of the exact values, more than the article prints."""


class Figure(Protocol):
    """One figure of the article, or of what the article leaves out."""

    @property
    def key(self) -> str:
        """Its row, or its name."""

    @property
    def quantity(self) -> str:
        """What it is."""

    @property
    def printed(self) -> str:
        """What the article says."""

    @property
    def value(self) -> float:
        """The exact number."""

    @property
    def unit(self) -> str:
        """The number's unit."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The laws applied for it."""

    @property
    def note(self) -> str:
        """What to know about it."""

    @property
    def in_article(self) -> bool:
        """Whether the article prints it."""


def article_text(figures: Sequence[Figure], width: int) -> list[Line]:
    """Every figure: a headline with both values, the laws behind it, the note."""
    lines: list[Line] = [line(Span("The article's worked example", "bold"))]
    beside = False
    for figure in figures:
        if not figure.in_article and not beside:
            beside = True
            lines += [line(), line(Span("What the article leaves out", "bold"))]
        lines += _figure(figure, width)
    return lines


def _figure(figure: Figure, width: int) -> list[Line]:
    number = f"{figure.key:>2}  " if figure.in_article else ""
    lines = [line(), *wrapped(f"{number}{figure.quantity}", width, "    ")]
    printed = f"article: {figure.printed}; " if figure.printed else ""
    exact = show(figure.value, figure.unit, EXACT)
    lines += _under(f"{printed}exact: {exact}", width, "bold")
    for step in figure.steps:
        lines += [line("    ", *each) for each in step_lines(step, width - 4)]
    return lines + (_under(f"note: {figure.note}", width, "") if figure.note else [])


def _under(text: str, width: int, style: str) -> list[Line]:
    return [
        line("    ", *(Span(span.text, style) for span in each))
        for each in wrapped(text, width - 4, indent="")
    ]
