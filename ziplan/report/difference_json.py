"""What two plans or configs differ in as JSON: `ziplan.diff/1`."""

from __future__ import annotations

import math

from ziplan.report.difference import Difference, Entry
from ziplan.report.json import Document

WHY = (
    "plan, settings: null is a key that one side does not have, or that is null there",
    "time: null is a time that nobody can tell, as a rate is not stated",
)


def diff_document(found: Difference) -> Document:
    """`ziplan.diff/1`."""
    return {
        "schema": "ziplan.diff/1",
        "same": found.same,
        "a": {"file": found.files[0], "form": found.forms[0]},
        "b": {"file": found.files[1], "form": found.forms[1]},
        "predicted": found.predicted,
        "verdict": _pair(found.verdict),
        "binding": _pair(found.binding),
        "placement": [each._asdict() for each in found.placement],
        "plan": [each._asdict() for each in found.plan],
        "settings": [each._asdict() for each in found.settings],
        "memory": [
            {
                "tier": need.tier,
                "phase": need.phase,
                "before_low_bytes": need.before[0],
                "before_high_bytes": need.before[1],
                "after_low_bytes": need.after[0],
                "after_high_bytes": need.after[1],
            }
            for need in found.memory
        ],
        "time": [
            {"term": time.term, "before_s": _known(time.before), "after_s": _known(time.after)}
            for time in found.time
        ],
        "notes": [*WHY, *found.notes],
    }


def _pair(entry: Entry | None) -> Document | None:
    return None if entry is None else {"before": entry.before, "after": entry.after}


def _known(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None
