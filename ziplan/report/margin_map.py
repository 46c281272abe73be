"""Where a tier can be hidden: ranks by tokens, as data, as characters on a terminal, and as JSON."""

from __future__ import annotations

import math
from typing import NamedTuple

from ziplan.report.json import Document
from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.units import show


class Cell(NamedTuple):
    """The best plan of so many ranks and tokens: its verdict, and the tier's hiding margin under it.

    The verdict is "refused" where the settings contradict each other; the margin is NaN where it is unknown.
    """

    verdict: str
    margin: float = math.nan

    @property
    def fits(self) -> bool:
        """Whether some plan may fit."""
        return self.verdict in ("fits", "tight", "unknown")


class MarginMap(NamedTuple):
    """`cells[row][column]` is of `tokens[row]` per rank and micro-step on `dp_degrees[column]` ranks.

    `here` is the (row, column) of the plan that was asked about, None where it is not among them.
    """

    tier: str
    dp_degrees: tuple[int, ...]
    tokens: tuple[int, ...]
    cells: tuple[tuple[Cell, ...], ...]
    here: tuple[int, int] | None


SHADES = (
    (4.0, "#", "green", "hidden, at least 4 times over"),
    (1.0, "+", "green", "hidden"),
    (0.25, "-", "yellow", "stalls"),
    (0.0, ".", "red", "stalls, a margin below 1/4"),
)
"""Least margin, its character, its colour and what it means, best first."""

NO_FIT, REFUSED, UNKNOWN = "x", "!", "?"


def map_text(found: MarginMap, width: int) -> list[Line]:
    """The map with its axes, most tokens on top, and what the characters mean."""
    title = f"margin of {found.tier}: tokens per rank and micro-step (down) by ranks (across)"
    label = max(len(f"{tokens:,}") for tokens in found.tokens)
    column = max(4, max(len(f"{dp:,}") for dp in found.dp_degrees) + 2)
    lines = [line(), *wrapped(title, width)]
    for row in reversed(range(len(found.tokens))):
        spans = [_character(found, row, place, column) for place in range(len(found.dp_degrees))]
        lines.append(line(f"{found.tokens[row]:>{label},} ", *spans))
    heads = "".join(f"{dp:>{column - 1},} " for dp in found.dp_degrees)
    lines.append(line(" " * (label + 1) + heads.rstrip()))
    for text in _legend(found):
        lines += wrapped(text, width)
    return lines


def _character(found: MarginMap, row: int, place: int, column: int) -> Span:
    sign, style = sign_of(found.cells[row][place])
    mine = found.here == (row, place)
    text = f"[{sign}]" if mine else f"{sign} "
    return Span(f"{text:>{column}}", style)


def sign_of(cell: Cell) -> tuple[str, str]:
    """A cell's character and colour."""
    if cell.verdict == "refused":
        return REFUSED, ""
    if not cell.fits:
        return NO_FIT, "red"
    shade = next(((sign, style) for least, sign, style, _ in SHADES if cell.margin >= least), None)
    return shade or (UNKNOWN, "")


def _legend(found: MarginMap) -> list[str]:
    signs = {sign_of(cell)[0] for row in found.cells for cell in row}
    words = [f"{sign} {meaning}" for _, sign, _, meaning in SHADES if sign in signs]
    words += [f"{NO_FIT} does not fit"] * (NO_FIT in signs)
    words += [f"{REFUSED} settings that contradict each other"] * (REFUSED in signs)
    words += [f"{UNKNOWN} a rate is not stated"] * (UNKNOWN in signs)
    here = ["in brackets the plan above"] * (found.here is not None)
    told = [", ".join([*words, *here])]
    told.append(
        f"The margin is the article's: what a micro-step computes while {found.tier} streams the parameters "
        "once for forward and once for backward, if everything overlaps. Half the tokens halve it, "
        "and so do half the ranks, as far as each brings bandwidth of its own."
    )
    mine = found.cells[found.here[0]][found.here[1]] if found.here else None
    if mine is not None and math.isfinite(mine.margin):
        told[-1] += f" Here it is {show(mine.margin, '1', 3)}."
    return told


def map_object(found: MarginMap) -> Document:
    """The map within `ziplan.limits/1`."""
    return {
        "tier": found.tier,
        "dp_degrees": list(found.dp_degrees),
        "tokens_per_rank_tokens": list(found.tokens),
        "cells": [
            [{"verdict": cell.verdict, "hiding_margin": _known(cell.margin)} for cell in row]
            for row in found.cells
        ],
    }


def _known(margin: float) -> float | None:
    return margin if math.isfinite(margin) else None
