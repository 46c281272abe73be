"""JSON Schema of `ziplan.check/1`."""

from __future__ import annotations

from ziplan.check.finding import SEVERITIES
from ziplan.report.schemas import (
    ASSUMPTION,
    COUNT,
    DOCUMENTS,
    NUMBER,
    PLAN,
    PROBLEM,
    SIMULATION,
    TEXT,
    UNKNOWABLE,
    VERDICT,
    Schema,
    document,
    record,
    some,
)


def _or_null(schema: Schema, why: str) -> Schema:
    return {"anyOf": [schema, {"type": "null"}], "description": f"null: {why}"}


_FIT = DOCUMENTS["fit"]["properties"]
_FINDING: dict[str, Schema] = {
    "code": {"type": "string", "pattern": "^ZP[1-5][0-9]{2}$"},
    "severity": {"enum": list(SEVERITIES)},
    "title": TEXT,
    "message": TEXT,
    "file": TEXT,
    "path": TEXT,
    "line": COUNT,
    "column": COUNT,
    "fix": TEXT,
    "number": _or_null(
        record(value=NUMBER, unit=TEXT, formula=TEXT, source=TEXT), "it rests on no number, or on none known"
    ),
}
CHECK = document(
    "ziplan.check/1",
    verdict=VERDICT,
    config=record(file=TEXT, form={"enum": ["deepspeed", "accelerate", "arguments", "command", "plan"]}),
    problem=PROBLEM,
    plan=_or_null(PLAN, "the config comes to none"),
    estimate=_FIT["estimate"],
    memory=_FIT["memory"],
    tiers=_FIT["tiers"],
    limits=_FIT["limits"],
    cost=_FIT["cost"],
    simulation=SIMULATION,
    baseline=_or_null(record(file=TEXT, tokens_per_s=UNKNOWABLE, max_regress=NUMBER), "none is given"),
    counts=record(**dict.fromkeys(SEVERITIES, COUNT)),
    findings=some(record(**_FINDING)),
    suppressed=some(record(**_FINDING, reason=TEXT)),
    unused_suppressions=some(record(code=TEXT, path=TEXT, reason=TEXT)),
    assumptions=some(ASSUMPTION),
    notes=some(TEXT),
)
