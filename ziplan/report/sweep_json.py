"""A sweep as JSON (`ziplan.sweep/1`) and as CSV: one point a row, keys with their units."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

from ziplan.report.deciding_schemas import POINT_NUMBERS
from ziplan.report.json import Document
from ziplan.report.sweep import Outcome, Row, Sweep

WHY_NULL = (
    "points: a number is null where the point is refused or does not fit, where an input that decides it is "
    "not stated, or, of lifetimes, where nothing is written"
)
UNSOLVED = "unsolved"
"""What stands for the verdict of a point that was not reached."""
BINDING = ("binding_kind", "binding_where", "binding_what")


def sweep_document(sweep: Sweep) -> Document:
    """`ziplan.sweep/1`."""
    notes = [WHY_NULL]
    if not sweep.complete:
        notes.append(f"interrupted: {len(sweep.rows)} of {sweep.asked} points were solved")
    return {
        "schema": "ziplan.sweep/1",
        "axes": [{"path": axis.path, "values": list(axis.values)} for axis in sweep.axes],
        "points_asked": sweep.asked,
        "complete": sweep.complete,
        "front_cost": front_cost(sweep),
        "points": [_point(sweep, place, row) for place, row in enumerate(sweep.rows)],
        "notes": notes,
    }


def front_cost(sweep: Sweep) -> str:
    """What the front counts as cost."""
    return "usd_per_million_tokens" if sweep.priced else "gpu_time_per_million_tokens_s"


def _point(sweep: Sweep, place: int, row: Row) -> Document:
    outcome = row.outcome
    return {
        "values": dict(zip((axis.path for axis in sweep.axes), row.values, strict=True)),
        "verdict": row.verdict,
        "refused": list(row.refused),
        "on_front": place in sweep.front,
        **outcome_object(outcome),
    }


def outcome_object(outcome: Outcome | None) -> Document:
    """The numbers of one outcome, all null where there is none."""
    if outcome is None:
        return {
            "model": None,
            "cluster": None,
            "runtime": None,
            "gpu_count": None,
            "likely_fits": None,
            "plan": None,
            **dict.fromkeys(POINT_NUMBERS),
            "binding": None,
        }
    return {
        "model": outcome.model,
        "cluster": outcome.cluster,
        "runtime": outcome.runtime,
        "gpu_count": outcome.gpus,
        "likely_fits": outcome.likely_fits,
        "plan": dict(outcome.plan),
        **{key: _plain(value) for key, value in numbers(outcome).items()},
        "binding": outcome.binding._asdict(),
    }


def numbers(outcome: Outcome) -> dict[str, float | None]:
    """What is known of a point; no time of one that does not fit, which nobody can wait for."""
    million = 1e6
    known: dict[str, float | None] = {
        "step_time_s": outcome.step_time,
        "step_time_low_s": outcome.step_low,
        "step_time_high_s": outcome.step_high,
        "tokens_per_step_tokens": outcome.tokens_per_step,
        "tokens_per_s": outcome.tokens_per_s,
        "gpu_time_per_million_tokens_s": outcome.gpu_time_per_token * million,
        "usd_per_million_tokens": None
        if outcome.dollars_per_token is None
        else outcome.dollars_per_token * million,
        "flash_writes_per_million_tokens_bytes": outcome.flash_writes_per_token * million,
        "drive_lifetime_s": outcome.drive_lifetime,
        "share_of_peak": outcome.share_of_peak,
    }
    assert tuple(known) == POINT_NUMBERS
    return dict.fromkeys(known) if outcome.verdict == "does_not_fit" else known


def _plain(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def sweep_csv(sweep: Sweep) -> str:
    """One row a point, the values of the axes first; a missing number is an empty cell.

    Points that an interrupt left unsolved are rows too, so that a part is not taken for the whole.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    paths = [axis.path for axis in sweep.axes]
    table.writerow(
        [*paths, "verdict", "on_front", "gpu_count", "likely_fits", *POINT_NUMBERS, *BINDING, "refused"]
    )
    for place, row in enumerate(sweep.rows):
        table.writerow([*row.values, row.verdict, int(place in sweep.front), *_cells(row)])
    for values in sweep.unsolved:
        table.writerow([*values, UNSOLVED, 0, *_cells(Row(values, None))])
    return text.getvalue()


def _cells(row: Row) -> list[Any]:
    outcome = row.outcome
    if outcome is None:
        return ["", "", *[""] * len(POINT_NUMBERS), *[""] * len(BINDING), "; ".join(row.refused)]
    figures = (_plain(value) for value in numbers(outcome).values())
    cells = ["" if value is None else repr(value) for value in figures]
    return [outcome.gpus, int(outcome.likely_fits), *cells, *outcome.binding, ""]
