"""JSON Schema of what helps to decide between several: `ziplan.sweep/1`."""

from __future__ import annotations

from ziplan.report.schemas import (
    COUNT,
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

DECIDING: dict[str, Schema] = {"sweep": SWEEP}
"""Name on the command line to the schema of the document."""
