"""`ziplan.validate/1`."""

from __future__ import annotations

from typing import Any

from ziplan.report.validation import Peak, Place, Run, Score, Tally, Unpredicted, Validation

Document = dict[str, Any]

NOTES = (
    "errors are of the step time: predicted over measured, less 1",
    "a run that was timed also fitted, and its verdict counts among the outcomes",
    "calibration runs are shown and not scored",
    "verdicts are those on memory; a step time is null where nobody states a rate that it depends on",
    "same_tier and same_phase are of hits whose source says where memory ran out",
    "peaks are of one GPU, or of one node's host memory",
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
        "endings": [_tally(tally) for tally in validation.tallies()],
        "unpredicted": [_unpredicted(each) for each in validation.unpredicted],
        "notes": list(NOTES),
    }


def _source(published: Run | Unpredicted) -> Document:
    url = published.own_url or published.url
    return {"title": published.source, "url": url, "locator": published.locator}


def _unpredicted(each: Unpredicted) -> Document:
    return {
        "id": each.id,
        "source": _source(each),
        "outcome": each.outcome,
        "tier": each.tier,
        "reason": each.reason,
    }


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
        "ran_out": {"tier": run.tier, "phases": list(run.phases)},
        "runs_out": _place(run.shortage),
        "same_tier": run.same_tier,
        "same_phase": run.same_phase,
        "peaks": [_peak(peak) for peak in run.peaks],
        "assumed": list(run.assumed),
        "note": run.notes,
    }


def _place(place: Place | None) -> Document:
    return {"tier": place.tier if place else None, "phase": place.phase if place else None}


def _peak(peak: Peak) -> Document:
    return {
        "tier": peak.tier,
        "measured_bytes": peak.measured,
        "predicted_low_bytes": peak.low,
        "predicted_high_bytes": peak.high,
        "inside": peak.inside,
    }


def _tally(tally: Tally) -> Document:
    return {
        "ending": tally.ending,
        "runs": len(tally.runs),
        "hits": tally.judged(True),
        "misses": tally.judged(False),
        "abstained": tally.judged(None),
        "same_tier": _of(tally.tiers),
        "same_phase": _of(tally.phases),
        "unpredicted": tally.unpredicted,
    }


def _of(part: tuple[int, int]) -> Document:
    return {"count": part[0], "of": part[1]}


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
