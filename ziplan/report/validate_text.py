"""`ziplan validate` on a terminal: the runs that were timed, those that only fitted or not, the scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.table import Column, table
from ziplan.report.validation import Peak, Run, Score, Tally, Validation
from ziplan.units import show

BAD = 0.25
"""An error beyond this is shown in red: the target for nine runs in ten."""


def validate_text(validation: Validation, width: int) -> list[Line]:
    """The whole answer."""
    timed = [run for run in validation.runs if run.measured is not None]
    untimed = [run for run in validation.runs if run.measured is None]
    used = [run for run in validation.runs if run.peaks]
    lines = [*_section("Step times", _times(timed, width))] if timed else []
    lines += _section("Whether it fits", _outcomes(untimed, width)) if untimed else []
    lines += _section("Memory used", _peaks(used, width)) if used else []
    lines += _section("Scores", _scores(validation.scores, width)) if validation.scores else []
    lines += _section("How runs ended", _tallies(validation.tallies(), width))
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
        Column("predicted", [show(run.predicted or 0.0, "s", 3) for run in runs]),
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
        Column("where", [predicted_place(run) for run in runs], False, 1),
        Column("outcome", [run.outcome for run in runs], right=False),
        Column("where", [measured_place(run) for run in runs], False, 2),
        Column("", [judged(run.hit) for run in runs], right=False),
    ]
    return table(columns, width)


def predicted_place(run: Run) -> str:
    """The tier and phase that memory is predicted to run out in; empty where it is not."""
    return f"{run.shortage.tier}, {run.shortage.phase}" if run.shortage else ""


def measured_place(run: Run) -> str:
    """The tier and phase that memory ran out in, as far as the source tells."""
    if run.outcome != "oom":
        return ""
    return ", ".join(part for part in (run.tier or "", " or ".join(run.phases)) if part)


def _peaks(runs: Sequence[Run], width: int) -> list[Line]:
    rows = [(run, peak) for run in runs for peak in run.peaks]
    columns = [
        Column("run", [run.id for run, _ in rows], right=False),
        Column("tier", [peak.tier for _, peak in rows], right=False),
        Column("predicted", [interval(peak) for _, peak in rows]),
        Column("measured", [show(peak.measured, "B", 3) for _, peak in rows]),
        Column("", ["" if peak.inside else Span("outside", "red") for _, peak in rows], right=False),
    ]
    return table(columns, width)


def interval(peak: Peak) -> str:
    """Low and high end of what is predicted."""
    return f"{show(peak.low, 'B', 3)} to {show(peak.high, 'B', 3)}"


def _tallies(tallies: Sequence[Tally], width: int) -> list[Line]:
    columns = [
        Column("ending", [tally.ending for tally in tallies], right=False),
        Column("runs", [str(len(tally.runs)) for tally in tallies]),
        Column("hit", [str(tally.judged(True)) for tally in tallies]),
        Column("miss", [str(tally.judged(False)) for tally in tallies]),
        Column("abstained", [str(tally.judged(None)) for tally in tallies]),
        Column("same tier", [share(tally.tiers) for tally in tallies]),
        Column("same phase", [share(tally.phases) for tally in tallies]),
        Column("not predicted", [str(tally.unpredicted) for tally in tallies]),
    ]
    return table(columns, width)


def share(part: tuple[int, int]) -> str:
    """So many of so many; a dash of none."""
    return f"{part[0]} of {part[1]}" if part[1] else "-"


def _verdict(run: Run) -> Span | str:
    text = run.verdict.replace("_", " ")
    return Span(text, "red") if run.hit is False else text


def judged(hit: bool | None) -> str:
    """The verdict's verdict, in a word."""
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
