"""`ziplan bench merge` on a terminal: each value over the nodes, the slowest by name, and what is odd."""

from __future__ import annotations

from ziplan.bench.measurement import Measured
from ziplan.bench.merge import Merged, Spread
from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.table import Column, table
from ziplan.units import show


def merge_text(found: Merged, width: int, written: str = "") -> list[Line]:
    """The whole answer; `written` says which file holds it."""
    hosts = ", ".join(each.host for each in found.nodes)
    nodes = f"{len(found.nodes)} node{'' if len(found.nodes) == 1 else 's'} as one"
    lines = [line(Span(nodes, "bold")), *wrapped(hosts, width), line()]
    rows = list(found.spreads.items())
    columns = [
        Column("measured", [name for name, _ in rows], right=False),
        Column("least", [_value(each, each.least.median) for _, each in rows]),
        Column("middle", [_value(each, each.middle) for _, each in rows], expendable=1),
        Column("most", [_value(each, each.most) for _, each in rows]),
        Column("slowest", [_slowest(each) for _, each in rows], right=False),
    ]
    lines += table(columns, width) if rows else wrapped("nothing was measured on any of them", width)
    lines += [each for remark in found.remarks for each in wrapped(f"note: {remark}", width)]
    if written:
        lines += [line(), *wrapped(f"written: {written}", width, keep_words=True)]
    return lines


def _value(spread: Spread, value: float) -> str:
    least: Measured = spread.least
    return show(value, least.unit, 4)


def _slowest(spread: Spread) -> Span | str:
    if len(spread.values) < 2:
        return spread.slowest
    return Span(f"{spread.slowest}, straggles", "red") if spread.straggles else spread.slowest
