"""`ziplan.validate/1`."""

from __future__ import annotations

from typing import Any

from ziplan.report.validation import Run, Score, Unpredicted, Validation

Document = dict[str, Any]

NOTES = (
    "errors are of the step time: predicted over measured, less 1",
    "a run that was timed also fitted, and its verdict counts among the outcomes",
    "calibration runs are shown and not scored",
)


def validate_document(validation: Validation) -> Document:
    """The whole answer."""
    hits, misses, abstained = (validation.with_verdict(hit) for hit in (True, False, None))
    return {
        "schema": "ziplan.validate/1",
        "records": [_run(run) for run in validation.runs],
        "scores": [_score(score) for score in validation.scores],
        "outcomes": {
            "hits": len(hits),
            "misses": len(misses),
            "abstained": len(abstained),
            "missed": [run.id for run in misses],
        },
        "unpredicted": [
            {"id": each.id, "source": _source(each), "reason": each.reason} for each in validation.unpredicted
        ],
        "notes": list(NOTES),
    }


def _source(published: Run | Unpredicted) -> Document:
    return {"title": published.source, "url": published.url, "locator": published.locator}


def _run(run: Run) -> Document:
    return {
        "id": run.id,
        "source": _source(run),
        "published": run.published,
        "runtime": run.runtime,
        "kind": run.kind,
        "quality": run.quality,
        "calibration": run.calibration,
        "scored": run.scored,
        "predicted_step_time_s": run.predicted,
        "measured_step_time_s": run.measured,
        "error": run.error,
        "binding": run.binding,
        "terms_s": dict(run.terms),
        "verdict": run.verdict,
        "outcome": run.outcome,
        "hit": run.hit,
        "assumed": list(run.assumed),
        "note": run.notes,
    }


def _score(score: Score) -> Document:
    return {
        "runtime": score.runtime,
        "kind": score.kind,
        "count": score.count,
        "median_absolute_error": score.median_error,
        "p90_absolute_error": score.p90_error,
        "bias": score.bias,
        "worst": {"id": score.worst, "error": score.worst_error},
        "measured_over_predicted_low": score.low,
        "measured_over_predicted_high": score.high,
    }
