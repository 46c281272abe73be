"""A sweep on a terminal: a table of its points, those on the front marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from string import ascii_uppercase

from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.phrases import binding_words, shown
from ziplan.report.sweep import Outcome, Row, Sweep
from ziplan.report.table import Column, table
from ziplan.report.text import VERDICTS
from ziplan.units import counted, show

MARK = "*"
DOUBT = "?"
"""Marks the verdict on a point that may fit and more likely does not."""
MOST_REASONS = 6
"""Reasons of refused points that are told."""
MILLION = 1e6
DAY = 86_400.0


def sweep_text(sweep: Sweep, width: int, only_front: bool = False) -> list[Line]:
    """What was varied, a row for each point (or for each on the front), and what the mark means."""
    places = sweep.front if only_front else range(len(sweep.rows))
    lines = wrapped(_headline(sweep), width)
    if places:
        lines += [line(), *_table(sweep, places, width)]
    lines += [line(), *wrapped(_meaning(sweep), width)]
    for reason in _refusals(sweep):
        lines += wrapped(reason, width)
    return lines


def _headline(sweep: Sweep) -> str:
    points = f"{len(sweep.rows):,} of {sweep.asked:,} points" if not sweep.complete else ""
    points = f"{points}, then interrupted" if points else counted(len(sweep.rows), "point")
    every = sweep.outcomes
    if not every:
        return points
    told = [_one({getattr(each, name) for each in every}) for name in ("model", "machine", "runtime")]
    words = [f"{told[0]} on {told[1] or 'several machines'}" if told[0] else "several models", told[2]]
    return f"{', '.join(word for word in words if word)}: {points}"


def _one(names: set[str]) -> str:
    """The name that all points have; empty where they differ."""
    return names.pop() if len(names) == 1 else ""


def _table(sweep: Sweep, places: Sequence[int], width: int) -> list[Line]:
    rows = [sweep.rows[place] for place in places]
    marks = [MARK if place in set(sweep.front) else "" for place in places]
    titles, legend = _titles(sweep, width)
    axes = [Column(title, [row.values[number] for row in rows]) for number, title in enumerate(titles)]
    cost = ("USD/Mtoken", _dollars, 3) if sweep.priced else ("GPU-h/Mtoken", _gpu_hours, 3)
    figures: list[tuple[str, Callable[[Outcome], str], int]] = [
        ("GPUs", lambda each: f"{each.gpus:,}", 2),
        ("step", lambda each: shown(each.step_time, "s"), 5),
        ("token/day", lambda each: show(each.tokens_per_s * DAY, "token", 3).replace("token", "").strip(), 0),
        cost,
        ("flash/Mtoken", lambda each: _written(each), 6),
        ("binds", lambda each: binding_words(each.binding), 7),
    ]
    columns = [
        Column("", marks, right=False),
        *axes,
        Column("verdict", [_verdict(row) for row in rows], False),
    ]
    for title, figure, expendable in figures:
        cells = [_cell(row, title, figure) for row in rows]
        columns.append(Column(title, cells, title != "binds", expendable))
    return [*legend, *table(columns, width)]


def _cell(row: Row, title: str, figure: Callable[[Outcome], str]) -> str:
    outcome = row.outcome
    if outcome is None:
        return "-"
    untold = outcome.verdict == "does_not_fit" or not math.isfinite(outcome.step_time)
    return "-" if untold and title not in ("GPUs", "binds") else figure(outcome)


def _titles(sweep: Sweep, width: int) -> tuple[list[str], list[Line]]:
    """Titles of the axes: the last word of the path, or a letter with its meaning where that is too wide."""
    paths = [axis.path for axis in sweep.axes]
    ends = [path.rpartition(".")[2] for path in paths]
    titles = [end if ends.count(end) == 1 else path for path, end in zip(paths, ends, strict=True)]
    if sum(map(len, titles)) <= width // 3:
        return titles, []
    letters = list(ascii_uppercase[: len(paths)])
    pairs = ", ".join(f"{letter} = {path}" for letter, path in zip(letters, paths, strict=True))
    return letters, wrapped(pairs, width)


def _verdict(row: Row) -> Span:
    doubt = DOUBT if _doubtful(row) else ""
    return Span(row.verdict.replace("_", " ") + doubt, VERDICTS.get(row.verdict, "red"))


def _doubtful(row: Row) -> bool:
    """Whether a point that may fit more likely does not."""
    return row.verdict == "tight" and row.outcome is not None and not row.outcome.likely_fits


def _dollars(outcome: Outcome) -> str:
    return "-" if outcome.dollars_per_token is None else show(outcome.dollars_per_token * MILLION, "1", 3)


def _gpu_hours(outcome: Outcome) -> str:
    return show(outcome.gpu_hours_per_million_tokens, "1", 3)


def _written(outcome: Outcome) -> str:
    return show(outcome.flash_writes_per_token * MILLION, "B", 3)


def _meaning(sweep: Sweep) -> str:
    if not sweep.rows:
        return "no point was solved"
    if not sweep.front:
        return "no point fits"
    cost = "dollars per token" if sweep.priced else "GPU-hours per token (no price is stated)"
    tight = all(sweep.rows[place].verdict == "tight" for place in sweep.front)
    among = " Among tight points: none surely fits." if tight else ""
    if any(_doubtful(row) for row in sweep.rows):
        among += f" tight{DOUBT}: may fit, and more likely does not."
    return (
        f"{MARK} {len(sweep.front):,} on the front: no other point is as good in time per token, {cost}, "
        f"GPUs and bytes written to flash per token, and better in one; "
        f"of equal points the first is marked.{among}"
    )


def _refusals(sweep: Sweep) -> Iterator[str]:
    """Why points were refused, each reason once, with how many points it stopped."""
    found: dict[str, list[Row]] = {}
    for row in sweep.rows:
        if row.refused:
            found.setdefault("; ".join(row.refused), []).append(row)
    for reason, rows in list(found.items())[:MOST_REASONS]:
        where = ", ".join(
            f"{axis.path}={value}" for axis, value in zip(sweep.axes, rows[0].values, strict=True)
        )
        others = f" and {counted(len(rows) - 1, 'more point')}" if len(rows) > 1 else ""
        yield f"refused at {where}{others}: {reason}"
    if len(found) > MOST_REASONS:
        yield f"{len(found) - MOST_REASONS:,} more reasons with --format json"
