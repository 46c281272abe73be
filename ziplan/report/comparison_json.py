"""A comparison as JSON: `ziplan.compare/1`."""

from __future__ import annotations

from math import isinf

from ziplan.report.comparison import Budget, Comparison, Option
from ziplan.report.comparison_text import advice
from ziplan.report.json import Document
from ziplan.report.sweep_json import WHY_NULL, outcome_object
from ziplan.solve.problem import Baseline
from ziplan.solve.relief import Relief

WHY = (
    WHY_NULL.replace("points:", "options:").replace("the point", "it"),
    "options: usd is null where no price is stated; gpu_time_s stands in for it",
    "options: without_offload.gpu_count is null where no number of these GPUs is enough; its time where it "
    "cannot be told",
    "fastest, cheapest: places among the options, null where none is known to fit",
)


def compare_document(found: Comparison) -> Document:
    """`ziplan.compare/1`."""
    return {
        "schema": "ziplan.compare/1",
        "model": found.model,
        "budget_tokens": found.tokens,
        "options": [_option(option, found) for option in found.options],
        "fastest": found.fastest,
        "cheapest": found.cheapest,
        "cheapest_by": "usd" if found.priced else "gpu_time_s",
        "notes": list(WHY),
    }


def _option(option: Option, found: Comparison) -> Document:
    price = option.price
    return {
        "name": option.name,
        "changes": dict(option.changes),
        "verdict": option.verdict,
        "refused": list(option.refused),
        **outcome_object(option.outcome),
        "budget": _budget(option.budget),
        "price": None
        if price is None
        else {"node_hour_usd": price.per_node_hour_usd, "source": price.source, "date": price.date},
        "offloads": option.offloads,
        "without_offload": _without(option.baseline, option.plain),
        "frees": [_relief(each) for each in option.reliefs],
        "changes_that_help": [each._asdict() for each in option.fixes],
        "advice": advice(option, found),
    }


def _relief(relief: Relief) -> Document:
    """A purchase and what it saves of a step, its own time in seconds and as a share."""
    return {
        "what": relief.what,
        "path": relief.path,
        "before": relief.before,
        "after": relief.after,
        "saved_s": relief.saved,
        "saved_share": relief.share,
    }


def _budget(budget: Budget | None) -> Document:
    time, gpu_time, dollars = budget or (None, None, None)
    return {"time_s": time, "gpu_time_s": gpu_time, "usd": dollars}


def _without(base: Baseline | None, plain: Budget | None) -> Document:
    """Plain stage 3 with all state in GPU memory."""
    known = base is not None and not isinf(base.gpus)
    return {
        "gpu_count": int(base.gpus) if base is not None and known else None,
        "fits_here": bool(base.fits_here) if base is not None else False,
        "timed_gpu_count": base.step_gpus if base is not None else None,
        "budget": _budget(plain),
    }
