"""A failed allocation on a terminal: what in the plan has its size."""

from __future__ import annotations

from collections.abc import Sequence

from ziplan.check.allocations import Cause, Failed
from ziplan.check.case import Case
from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.phrases import plan_words
from ziplan.units import show

MOST = 8
"""Causes that are listed; ledger lines come first."""


def allocation_text(case: Case, asked: Failed, found: Sequence[Cause], width: int) -> list[Line]:
    """The size that was asked for, and everything of that size."""
    unit = "elements" if asked.elements else "B"
    amount = f"{asked.amount:,.0f} elements" if asked.elements else show(asked.amount, unit, 4)
    assert case.estimate is not None
    lines = [*wrapped(f"{amount} asked for, under {plan_words(case.estimate)}:", width), line()]
    if not found:
        return [*lines, *wrapped(_nothing(case), width)]
    for cause in found[:MOST]:
        where = f" on {cause.where}" if cause.where else ""
        lines.append(line(Span(f"{cause.name}{where}", "bold")))
        lines += _indented(f"= {cause.formula}" if cause.formula else "", width)
        lines += _indented(f"changed by {cause.knob}" if cause.knob else "", width)
    if len(found) > MOST:
        lines.append(line(f"and {len(found) - MOST} more of the same size"))
    return lines


def _indented(text: str, width: int) -> list[Line]:
    return [line("  ", *each) for each in wrapped(text, width - 2)] if text else []


def _nothing(case: Case) -> str:
    words = "nothing in this plan has that size"
    if case.off_gpu(["optimizer"]):
        words += "; a pinned allocation on the host, rounded up to a power of two, also ends in"
        words += " `CUDA out of memory`"
    return f"{words}. Is it the config, the model and the number of ranks that ran?"
