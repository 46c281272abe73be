"""`ziplan calibrate` on a terminal: what was fitted, what no run shows, and each run before and after."""

from __future__ import annotations

from collections.abc import Sequence

from ziplan.hardware.calibration import CalibrationFile
from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.phrases import spread
from ziplan.report.table import Column, table
from ziplan.units import show, show_duration

BAD = 0.1
"""An error after the fit beyond this is shown in red."""

ANOTHER_RUN = 0.25
"""An error after the fit beyond this asks whether the run is the one that is asked about."""

NOT_SHOWN = "not shown by these runs, and left as it is"


def calibration_text(file: CalibrationFile, width: int, written: str = "") -> list[Line]:
    """The whole answer; `written` names the file that it was saved to."""
    title = f"Calibration of {file.machine} with {file.gpu} under {file.runtime}"
    lines = [line(Span(title, "bold")), line(), *_values(file, width)]
    for name, reasons in file.not_identified.items():
        lines += wrapped(f"{name}: {NOT_SHOWN}", width)
        lines += [each for reason in reasons for each in wrapped(f"  - {reason}", width, "    ")]
    lines += [line(), line(Span("Seconds per step", "bold")), *_runs(file, width), *_remarks(file, width)]
    lines += [*_peaks(file, width), *_others(file, width)]
    if written:
        lines += [
            line(),
            *wrapped(
                f"written to {written}: give it to fit, check and so on as --calibration",
                width,
                keep_words=True,
            ),
        ]
    return lines


def _values(file: CalibrationFile, width: int) -> list[Line]:
    """What was fitted, a row each."""
    rows = [
        (path, each.before, each.value, _span(each.low, each.high), ", ".join(each.runs))
        for path, each in file.values.items()
    ]
    for name, overlap in (("overlap", file.overlap), ("overlap between nodes", file.overlap_between_nodes)):
        if overlap is not None:
            ends = _span(f"{overlap.low:.2f}", f"{overlap.high:.2f}")
            rows.append((name, "1", f"{overlap.value:.2f}", ends, ", ".join(overlap.runs)))
    if not rows:
        return [line("nothing: no run shows any of the parameters")]
    columns = [
        Column("parameter", [row[0] for row in rows], right=False),
        Column("before", [row[1] for row in rows]),
        Column("fitted", [row[2] for row in rows]),
        Column("runs show", [row[3] for row in rows], expendable=1),
        Column("from", [row[4] for row in rows], right=False, expendable=2),
    ]
    return table(columns, width)


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _runs(file: CalibrationFile, width: int) -> list[Line]:
    rows = [
        (name, phase, each.measured_s, each.before_s, each.after_s)
        for name, run in file.runs.items()
        for phase, each in run.phases.items()
    ]
    columns = [
        Column("run", [row[0] for row in rows], right=False),
        Column("phase", [row[1] for row in rows], right=False),
        Column("measured", [_s(row[2]) for row in rows]),
        Column("before", [_s(row[3]) for row in rows], expendable=2),
        Column("error", [error(row[3], row[2]) for row in rows], expendable=1),
        Column("after", [_s(row[4]) for row in rows]),
        Column("error", [_coloured(row[4], row[2]) for row in rows]),
    ]
    return table(columns, width)


def _s(seconds: float) -> str:
    return show_duration(seconds, 3)


def error(predicted: float, measured: float) -> str:
    """Predicted over measured, less one, in whole per cent."""
    return f"{predicted / measured - 1:+.0%}" if measured > 0 else "-"


def _coloured(predicted: float, measured: float) -> Span | str:
    text = error(predicted, measured)
    return Span(text, "red") if measured > 0 and abs(predicted / measured - 1) > BAD else text


def _remarks(file: CalibrationFile, width: int) -> list[Line]:
    said = [f"{name}: {remark}" for name, run in file.runs.items() for remark in run.remarks]
    for name, run in file.runs.items():
        whole = run.phases["whole step"]
        if whole.measured_s > 0 and abs(whole.after_s / whole.measured_s - 1) > ANOTHER_RUN:
            off = error(whole.after_s, whole.measured_s)
            said.append(f"{name}: still {off} off: is it a run of this model, config and sequence length?")
    return [each for text in said for each in wrapped(text, width)]


def _peaks(file: CalibrationFile, width: int) -> list[Line]:
    """Memory that logs tell of beside what is predicted; nothing of it is fitted."""
    rows = [
        (name, tier, show(each.measured_bytes, "B", 3), each)
        for name, run in file.runs.items()
        for tier, each in run.peaks.items()
    ]
    if not rows:
        return []
    columns = [
        Column("run", [row[0] for row in rows], right=False),
        Column("tier", [row[1] for row in rows], right=False),
        Column("most seen", [row[2] for row in rows]),
        Column(
            "predicted",
            [spread(row[3].predicted_low_bytes, row[3].predicted_high_bytes, "B") for row in rows],
        ),
    ]
    said = "GPU: what PyTorch allocated; host: all that is in use on the node, whoever uses it"
    return [line(), line(Span("Memory", "bold")), *table(columns, width), *wrapped(said, width)]


def _others(file: CalibrationFile, width: int) -> list[Line]:
    """Each run predicted from the other runs: what a run that is not here may come to."""
    told = {name: run for name, run in file.runs.items() if run.from_others_s is not None}
    if not told:
        return [line(), *wrapped("one run: how far off another one would be, it does not tell", width)]
    errors: Sequence[str] = [
        error(run.from_others_s or 0.0, run.phases["whole step"].measured_s) for run in told.values()
    ]
    columns = [
        Column("run", list(told), right=False),
        Column("kind", [run.kind for run in told.values()], right=False, expendable=1),
        Column("from the other runs", [_s(run.from_others_s or 0.0) for run in told.values()]),
        Column("error", errors),
    ]
    return [line(), line(Span("Each run predicted from the others", "bold")), *table(columns, width)]
