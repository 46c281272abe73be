"""What two plans or configs differ in, on a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ziplan.report.difference import Difference, Entry, Need, Time, Value
from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.phrases import spread
from ziplan.report.table import Column, table
from ziplan.units import figure, show_duration

ABSENT = "-"
NARROWEST = 8
"""Columns that a value has at the least before it is cut."""


def difference_text(found: Difference, width: int) -> list[Line]:
    """What differs, section by section; one sentence where nothing does."""
    lines: list[Line] = []
    for name, (file, form) in zip("AB", zip(found.files, found.forms, strict=True), strict=True):
        lines += wrapped(f"{name}  {file} ({form})", width, indent="   ", keep_words=True)
    if found.same:
        lines += wrapped(f"no difference{'' if found.predicted else ' in what they say'}", width)
    for title, rows in _sections(found):
        if rows:
            lines += [line(), line(Span(title, "bold")), *_table(rows, width)]
    for note in found.notes:
        lines += [line(), *wrapped(f"note: {note}", width)]
    return lines


Row = tuple[str, str, str, str]


def _sections(found: Difference) -> Iterator[tuple[str, list[Row]]]:
    verdicts = [each for each in (found.verdict, found.binding) if each is not None]
    yield "Verdict", [_setting(each) for each in verdicts]
    yield "Placement", [_share(each) for each in found.placement]
    yield "Plan", [_setting(each) for each in found.plan]
    yield "Settings", [_setting(each) for each in found.settings]
    yield "Memory needed", [_need(each) for each in found.memory]
    yield "Time of a step", [_time(each) for each in found.time]


def _setting(entry: Entry) -> Row:
    return entry.path, _said(entry.before), _said(entry.after), ""


def _said(value: Value) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else figure(value) if isinstance(value, float) else value


def _share(entry: Entry) -> Row:
    """A fraction of a kind of state on a tier, as a share."""
    before, after = (
        f"{value:.1%}" if isinstance(value, (int, float)) else ABSENT for value in (entry.before, entry.after)
    )
    return entry.path.replace(".", " on "), before, after, ""


def _need(need: Need) -> Row:
    before, after = spread(*need.before, "B"), spread(*need.after, "B")
    return f"{need.tier} in {need.phase}", before, after, _change(need.before[1], need.after[1])


def _time(time: Time) -> Row:
    before, after = (
        "unknown" if math.isnan(value) else show_duration(value, 3) for value in (time.before, time.after)
    )
    return time.term, before, after, _change(time.before, time.after)


def _change(before: float, after: float) -> str:
    """The change as a share of what it was; empty where there was nothing."""
    if not before > 0 or not math.isfinite(before) or not math.isfinite(after):
        return ""
    return f"{after / before - 1:+.1%}"


def _table(rows: Sequence[Row], width: int) -> list[Line]:
    """The rows as columns; a value that leaves no room is cut."""
    names, befores, afters, changes = (list(column) for column in zip(*rows, strict=True))
    room = width - 2 * 2 - 2 - max(map(len, changes))
    widest = max(NARROWEST, room // 3)
    befores, afters = ([_cut(value, widest - 2) for value in column] for column in (befores, afters))
    taken = sum(max(map(len, column)) for column in (befores, afters))
    columns = [
        Column("", [_cut(name, max(widest + 2, room - taken)) for name in names], right=False),
        Column("A", befores),
        Column("B", afters),
        Column("", changes, True, 1),
    ]
    return table(columns, width)


def _cut(text: str, most: int) -> str:
    """The end of a path that is too long says more than its beginning."""
    return text if len(text) <= most else f"..{text[2 - most :]}"
