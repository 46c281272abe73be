"""The judgement of a config as JSON: `ziplan.check/1`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ziplan.check.finding import SEVERITIES, Finding
from ziplan.check.run import Checked
from ziplan.report.json import (
    Document,
    Notes,
    assumption_object,
    cost_object,
    estimate_objects,
    formula,
    limits_object,
    plan_object,
    problem_of,
    stated,
)
from ziplan.report.simulation_json import simulation_object
from ziplan.solve.problem import Problem

NO_PLAN = "the config comes to no plan"
TIMES = (
    "step_time_s",
    "step_time_low_s",
    "step_time_high_s",
    "tokens_per_step_tokens",
    "tokens_per_s",
    "model_flops_per_s_per_gpu",
    "hardware_flops_per_s_per_gpu",
    "drive_lifetime_s",
)
PLAYED = ("makespan_s", "compute_s", "stall_s", "stall_fraction")
COSTS = ("step_usd", "million_tokens_usd", "node_hour_usd", "gpu_time_per_million_tokens_s")


def check_document(checked: Checked) -> Document:
    """`ziplan.check/1`: objects as those of `ziplan.fit/1`, the played step, and the findings."""
    case, notes = checked.case, Notes()
    notes.texts += [*case.cluster.warnings, *case.workload.notes]
    document = {
        "schema": "ziplan.check/1",
        "verdict": checked.verdict,
        "config": {"file": case.file, "form": case.form},
        "problem": problem_of(
            Problem(case.cluster, case.workload, case.runtime), case.estimate, case.cluster.gpu_count
        ),
        "plan": plan_object(case.plan) if case.plan is not None else None,
        **_predicted(checked, notes),
        "baseline": _baseline(checked, notes),
        "counts": {severity: checked.count(severity) for severity in SEVERITIES},
        "findings": [finding_object(each) for each in checked.findings],
        "suppressed": [
            {**finding_object(each), "reason": entry.reason} for each, entry in checked.suppressed
        ],
        "unused_suppressions": [
            {"code": entry.code, "path": entry.path, "reason": entry.reason} for entry in checked.unused
        ],
        "assumptions": [
            assumption_object(each)
            for each in (*(case.estimate.assumptions if case.estimate else ()), *stated(case.cluster))
        ],
    }
    if case.plan is None:
        notes.texts.append(f"plan: {NO_PLAN}")
    return {**document, "notes": notes.texts}


def _predicted(checked: Checked, notes: Notes) -> Document:
    """What is predicted of the plan; nulls in every object where there is none."""
    case = checked.case
    if case.estimate is None:
        return _nothing(notes)
    if case.other is not None:
        notes.texts.append("memory: needs are over both values of what nobody stated, lines of the one taken")
    played = case.simulation
    several = "a step of several models in one job is not played"
    return {
        **estimate_objects(replace(case.estimate, memory=case.memory), notes),
        "cost": cost_object(case.estimate, notes),
        "simulation": simulation_object(played, notes)
        if played is not None
        else _not_played(notes, f"the played step does not end: {case.stuck}" if case.stuck else several),
    }


def _nothing(notes: Notes) -> Document:
    def nulls(path: str, names: tuple[str, ...]) -> Document:
        return {name: notes.number(f"{path}.{name}", None, NO_PLAN) for name in names}

    return {
        "estimate": {
            **nulls("estimate", TIMES),
            "terms_s": {},
            "busy_s": {},
            "bytes_per_step": {},
            "interval_source": "",
            "unknown": [],
        },
        "memory": {},
        "tiers": {},
        "limits": limits_object(None, notes),
        "cost": {**nulls("cost", COSTS), "price_source": "", "price_date": ""},
        "simulation": _not_played(notes, NO_PLAN),
    }


def _not_played(notes: Notes, reason: str) -> Document:
    empty: dict[str, Any] = {
        "stalls_s": {},
        "waits": [],
        "busy_s": {},
        "utilisation": {},
        "bytes_per_step": {},
        "buffers": {},
        "memory": {},
        "stages": [],
    }
    return {**{key: notes.number(f"simulation.{key}", None, reason) for key in PLAYED}, **empty}


def _baseline(checked: Checked, notes: Notes) -> Document | None:
    """The plan that the config must not be slower than; null where none is given."""
    before = checked.case.baseline
    if before is None:
        notes.texts.append("baseline: none is given")
        return None
    number = notes.number("baseline.tokens_per_s", before.tokens_per_s)
    return {"file": before.file, "tokens_per_s": number, "max_regress": checked.case.max_regress}


def finding_object(finding: Finding) -> Document:
    """One finding with its place, its remedy and the number that it rests on."""
    number = finding.number
    return {
        "code": finding.code,
        "severity": finding.severity,
        "title": finding.title,
        "message": finding.message,
        "file": finding.file,
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "fix": finding.fix,
        "number": None
        if number is None or number.value != number.value
        else {
            "value": float(number.value),
            "unit": number.unit,
            "formula": formula(number.step),
            "source": number.step.law.source if number.step else "",
        },
    }
