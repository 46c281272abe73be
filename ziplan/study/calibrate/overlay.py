"""A calibration as the file that `--calibration` takes."""

from __future__ import annotations

from ziplan.hardware.calibration import (
    CalibrationFile,
    Overlap,
    PeakBytes,
    PhaseSeconds,
    ResidualEntry,
    RunEntry,
    Value,
    plain,
)
from ziplan.study.calibrate.calibration import Calibration, Held
from ziplan.study.calibrate.fit import Fitted
from ziplan.study.calibrate.parameters import OVERLAPS
from ziplan.units import show

HEAD = """\
# Fitted by `ziplan calibrate` from the runs named below: `fit`, `check` and the other planning commands take
# it with `--calibration`. Seconds are per step.
"""


def overlay(found: Calibration) -> CalibrationFile:
    """The file of a calibration; values carry the digits that they have."""
    fitted = found.fit.fitted
    overlaps = {each.path: _overlap(each) for each in fitted if each.path in OVERLAPS}
    return CalibrationFile(
        schema="ziplan.calibration/1",
        machine=found.machine,
        gpu=found.gpu,
        runtime=found.runtime,
        values={each.path: _value(each) for each in fitted if each.path not in OVERLAPS},
        **overlaps,
        not_identified={each.parameter.name: each.reasons for each in found.fit.not_shown},
        runs={each.run.name: _run(each) for each in found.held},
        residuals={
            kind: ResidualEntry(runs=each.runs, low=_digits(each.low), high=_digits(each.high))
            for kind, each in found.residuals.items()
        },
    )


def overlay_text(found: Calibration) -> str:
    """The file's text, YAML."""
    import yaml

    text: str = yaml.safe_dump(plain(overlay(found)), sort_keys=False, allow_unicode=True, width=100)
    return HEAD + text


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def _value(each: Fitted) -> Value:
    unit = each.parameter.unit
    return Value(
        value=show(each.value, unit),
        before=show(each.before, unit),
        low=show(each.low, unit),
        high=show(each.high, unit),
        runs=_names(each),
    )


def _overlap(each: Fitted) -> Overlap:
    return Overlap(
        value=_digits(each.value), low=_digits(each.low), high=_digits(each.high), runs=_names(each)
    )


def _names(each: Fitted) -> tuple[str, ...]:
    return tuple(f"{shown.run} ({shown.phase})" for shown in each.shown)


def _run(each: Held) -> RunEntry:
    seconds = {
        phase.phase: PhaseSeconds(
            measured_s=_digits(phase.measured), before_s=_digits(phase.before), after_s=_digits(phase.after)
        )
        for phase in each.phases
    }
    return RunEntry(
        kind=each.kind,
        steps=each.run.steps,
        phases=seconds,
        from_others_s=None if each.from_others is None else _digits(each.from_others),
        peaks={
            peak.tier: PeakBytes(
                measured_bytes=_digits(peak.measured),
                predicted_low_bytes=_digits(peak.low),
                predicted_high_bytes=_digits(peak.high),
            )
            for peak in each.peaks
        },
        remarks=each.run.remarks,
    )
