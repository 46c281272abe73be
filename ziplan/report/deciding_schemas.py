"""JSON Schema of what helps to decide between several: sweeps, comparisons, differences."""

from __future__ import annotations

from ziplan.report.schemas import (
    COUNT,
    NUMBER,
    PLAN,
    TEXT,
    TRUTH,
    UNKNOWABLE,
    VERDICT,
    Schema,
    document,
    each,
    record,
    some,
)

POINT_NUMBERS = (
    "step_time_s",
    "step_time_low_s",
    "step_time_high_s",
    "tokens_per_step_tokens",
    "tokens_per_s",
    "gpu_time_per_million_tokens_s",
    "usd_per_million_tokens",
    "flash_writes_per_million_tokens_bytes",
    "drive_lifetime_s",
    "share_of_peak",
)
"""Numbers of a point, the same in JSON and CSV."""


def or_null(schema: Schema) -> Schema:
    """A value that may be missing, with its reason in the notes."""
    return {"anyOf": [schema, {"type": "null"}], "description": "null: see notes"}


BINDING = record(kind={"enum": ["capacity", "time"]}, where=TEXT, what=TEXT)
OUTCOME: dict[str, Schema] = {
    "model": or_null(TEXT),
    "cluster": or_null(TEXT),
    "runtime": or_null(TEXT),
    "gpu_count": or_null(COUNT),
    "likely_fits": or_null(TRUTH),
    "plan": or_null(PLAN),
    **dict.fromkeys(POINT_NUMBERS, UNKNOWABLE),
    "binding": or_null(BINDING),
}

SWEEP = document(
    "ziplan.sweep/1",
    axes=some(record(path=TEXT, values=some(TEXT))),
    points_asked=COUNT,
    complete=TRUTH,
    front_cost={"enum": ["usd_per_million_tokens", "gpu_time_per_million_tokens_s"]},
    points=some(
        record(
            values=each(TEXT),
            verdict={"enum": [*VERDICT["enum"], "refused"]},
            refused=some(TEXT),
            on_front=TRUTH,
            **OUTCOME,
        )
    ),
    notes=some(TEXT),
)

BUDGET = record(time_s=UNKNOWABLE, gpu_time_s=UNKNOWABLE, usd=UNKNOWABLE)
PLACE = or_null(COUNT)
COMPARE = document(
    "ziplan.compare/1",
    model=TEXT,
    budget_tokens=NUMBER,
    options=some(
        record(
            name=TEXT,
            changes=each(TEXT),
            verdict={"enum": [*VERDICT["enum"], "refused"]},
            refused=some(TEXT),
            **OUTCOME,
            budget=BUDGET,
            price={
                "anyOf": [record(node_hour_usd=NUMBER, source=TEXT, date=TEXT), {"type": "null"}],
                "description": "null: none is stated",
            },
            offloads=TRUTH,
            without_offload=record(gpu_count=PLACE, fits_here=TRUTH, timed_gpu_count=PLACE, budget=BUDGET),
            frees=some(
                record(what=TEXT, path=TEXT, before=TEXT, after=TEXT, saved_s=NUMBER, saved_share=NUMBER)
            ),
            changes_that_help=some(record(path=TEXT, before=TEXT, after=TEXT, effect=TEXT)),
            advice=TEXT,
        )
    ),
    fastest=PLACE,
    cheapest=PLACE,
    cheapest_by={"enum": ["usd", "gpu_time_s"]},
    notes=some(TEXT),
)

VALUE: Schema = {"type": ["string", "number", "boolean", "null"], "description": "null: see notes"}
PAIR: Schema = {
    "anyOf": [record(before=TEXT, after=TEXT), {"type": "null"}],
    "description": "null: the same, or not predicted",
}
ENTRY = record(path=TEXT, before=VALUE, after=VALUE)
FILE = record(file=TEXT, form={"enum": ["deepspeed", "accelerate", "arguments", "command", "plan"]})
DIFF = document(
    "ziplan.diff/1",
    same=TRUTH,
    a=FILE,
    b=FILE,
    predicted=TRUTH,
    verdict=PAIR,
    binding=PAIR,
    placement=some(ENTRY),
    plan=some(ENTRY),
    settings=some(ENTRY),
    memory=some(
        record(
            tier=TEXT,
            phase=TEXT,
            before_low_bytes=NUMBER,
            before_high_bytes=NUMBER,
            after_low_bytes=NUMBER,
            after_high_bytes=NUMBER,
        )
    ),
    time=some(record(term=TEXT, before_s=UNKNOWABLE, after_s=UNKNOWABLE)),
    notes=some(TEXT),
)

DECIDING: dict[str, Schema] = {"sweep": SWEEP, "compare": COMPARE, "diff": DIFF}
"""Name on the command line to the schema of the document."""
