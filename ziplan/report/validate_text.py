"""`ziplan validate` on a terminal: the runs that were timed, those that only fitted or not, the scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.table import Column, table
from ziplan.report.validation import Run, Score, Validation
from ziplan.units import show

BAD = 0.25
"""An error beyond this is shown in red: the target for nine runs in ten."""


def validate_text(validation: Validation, width: int) -> list[Line]:
    """The whole answer."""
    timed = [run for run in validation.runs if run.measured is not None]
    untimed = [run for run in validation.runs if run.measured is None]
    lines = [*_section("Step times", _times(timed, width))] if timed else []
    lines += _section("Whether it fits", _outcomes(untimed, width)) if untimed else []
    lines += _section("Scores", _scores(validation.scores, width)) if validation.scores else []
    lines += _verdicts(validation, width)
    if validation.unpredicted:
        lines += [line(), line(Span("Not predicted", "bold"))]
        for each in validation.unpredicted:
            lines += wrapped(f"{each.id}: {each.reason}", width)
    return lines[1:] if lines and not lines[0] else lines


def _section(title: str, rows: Sequence[Line]) -> list[Line]:
    return [line(), line(Span(title, "bold")), *rows]


def percent(error: float | None) -> str:
    """An error with its sign, in whole per cent."""
    return "-" if error is None else f"{error:+.0%}"


def _times(runs: Sequence[Run], width: int) -> list[Line]:
    columns = [
        Column("run", [run.id for run in runs], right=False),
        Column("predicted", [show(run.predicted, "s", 3) for run in runs]),
        Column("measured", [show(run.measured or 0.0, "s", 3) for run in runs]),
        Column("error", [_error(run) for run in runs]),
        Column("binds", [run.binding for run in runs], False, 1),
        Column("verdict", [_verdict(run) for run in runs], False, 2),
        Column("", ["calibration" if run.calibration else "" for run in runs], False, 3),
    ]
    return table(columns, width)


def _error(run: Run) -> Span | str:
    text = percent(run.error) + ("*" if run.calibration else "")
    return Span(text, "red") if run.scored and abs(run.error or 0.0) > BAD else text


def _outcomes(runs: Sequence[Run], width: int) -> list[Line]:
    columns = [
        Column("run", [run.id for run in runs], right=False),
        Column("predicted", [_verdict(run) for run in runs], right=False),
        Column("outcome", [run.outcome for run in runs], right=False),
        Column("", [_judged(run.hit) for run in runs], right=False),
    ]
    return table(columns, width)


def _verdict(run: Run) -> Span | str:
    text = run.verdict.replace("_", " ")
    return Span(text, "red") if run.hit is False else text


def _judged(hit: bool | None) -> str:
    return "abstained" if hit is None else "hit" if hit else "miss"


def _scores(scores: Sequence[Score], width: int) -> list[Line]:
    columns = [
        Column("runtime", [score.runtime for score in scores], False, 2),
        Column("kind", [score.kind for score in scores], right=False),
        Column("runs", [str(score.count) for score in scores]),
        Column("median |error|", [f"{score.median_error:.0%}" for score in scores]),
        Column("90 %", [f"{score.p90_error:.0%}" for score in scores]),
        Column("bias", [percent(score.bias) for score in scores]),
    ]
    worst = [f"worst {score.kind}: {percent(score.worst_error)}, {score.worst}" for score in scores]
    return [*table(columns, width), *(piece for text in worst for piece in wrapped(text, width))]


def _verdicts(validation: Validation, width: int) -> list[Line]:
    hits, misses, abstained = (validation.with_verdict(hit) for hit in (True, False, None))
    said = (
        f"fits or not: {len(hits)} right, {len(misses)} wrong, {len(abstained)} abstained (tight), "
        f"of {len(validation.runs)} runs; a run that was timed fitted"
    )
    lines = [line(), *wrapped(said, width)]
    if misses:
        lines += wrapped(f"wrong: {', '.join(_names(misses))}", width)
    starred = [run.id for run in validation.runs if run.calibration and run.measured is not None]
    if starred:
        lines += wrapped(f"* not scored, a parameter comes from it: {', '.join(starred)}", width)
    return lines


def _names(runs: Iterable[Run]) -> list[str]:
    return [run.id for run in runs]
