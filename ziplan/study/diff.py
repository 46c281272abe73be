"""What two plans or configs differ in: settings, placement, and what is predicted of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ziplan.estimate import Estimate
from ziplan.plan import Plan
from ziplan.report.difference import Difference, Entry, Need, Time, Value
from ziplan.report.figures import MILLION
from ziplan.report.json import plan_object
from ziplan.report.phrases import binding_words
from ziplan.solve.binding import binding

ROUNDING = 1e-9
"""Share by which numbers may differ and be the same: sums taken in another order are."""

STEP, MILLION_TOKENS = "step", "a million tokens"
"""What the whole step and its time per token are called among its terms."""


class Side(NamedTuple):
    """One of the two: its file, what kind it is, and what is known of it (None: not known)."""

    file: str
    form: str
    plan: Plan | None = None
    settings: Mapping[str, Any] | None = None
    estimate: Estimate | None = None
    remarks: tuple[str, ...] = ()
    """What the runtime refuses or ignores of the file, each with its place."""


def difference(one: Side, other: Side) -> Difference:
    """Everything that differs between two sides, as far as both know it."""
    before, after = (plan_object(side.plan) if side.plan is not None else None for side in (one, other))
    both = before is not None and after is not None
    placements = tuple(dict(each.pop("placement")) for each in (before, after) if each) if both else ({}, {})
    settings = _entries(one.settings, other.settings)
    first, second = one.estimate, other.estimate
    compared = first is not None and second is not None
    return Difference(
        files=(one.file, other.file),
        forms=(one.form, other.form),
        placement=tuple(_entries(*placements)),
        plan=tuple(_entries(before, after)),
        settings=tuple(settings),
        memory=tuple(_memory(first, second)) if first and second else (),
        time=tuple(_time(first, second)) if first and second else (),
        verdict=_entry("verdict", first.verdict, second.verdict) if first and second else None,
        binding=_entry("binding", _binds(first), _binds(second)) if first and second else None,
        predicted=compared,
        notes=tuple(dict.fromkeys((*one.remarks, *other.remarks))),
    )


def flat(data: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Value]]:
    """Every value that is no mapping, by its dotted path; lists are written out."""
    for key, value in data.items():
        path = f"{within}.{key}" if within else str(key)
        if isinstance(value, Mapping) and value:
            yield from flat(value, path)
        elif isinstance(value, Mapping):
            yield path, "{}"
        else:
            yield path, value if value is None or isinstance(value, (str, bool, int, float)) else repr(value)


def _entries(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Iterator[Entry]:
    """Paths whose values differ, in their order; one that only one side has is None on the other."""
    if before is None or after is None:
        return
    one, other = dict(flat(before)), dict(flat(after))
    for path in dict.fromkeys((*one, *other)):
        entry = _entry(path, one.get(path), other.get(path))
        if entry is not None:
            yield entry


def _entry(path: str, before: Value, after: Value) -> Entry | None:
    return None if alike(before, after) else Entry(path, before, after)


def alike(before: Value, after: Value) -> bool:
    """Whether two values are the same: numbers within rounding, true and 1 not."""
    if isinstance(before, bool) or isinstance(after, bool):
        return before is after
    if isinstance(before, (int, float)) and isinstance(after, (int, float)):
        both_unknown = math.isnan(before) and math.isnan(after)
        return both_unknown or math.isclose(before, after, rel_tol=ROUNDING, abs_tol=0.0)
    return before == after


def _memory(one: Estimate, other: Estimate) -> Iterator[Need]:
    for tier in dict.fromkeys((*one.memory, *other.memory)):
        phases = [each.memory[tier].phases if tier in each.memory else {} for each in (one, other)]
        for phase in dict.fromkeys((*phases[0], *phases[1])):
            before, after = (_pair(each.get(phase, (0.0, 0.0))) for each in phases)
            if not all(alike(a, b) for a, b in zip(before, after, strict=True)):
                yield Need(tier, phase, before, after)


def _pair(ends: tuple[float, float]) -> tuple[float, float]:
    return float(ends[0]), float(ends[1])


def _time(one: Estimate, other: Estimate) -> Iterator[Time]:
    tokens = MILLION * float(one.time_per_token), MILLION * float(other.time_per_token)
    terms = dict.fromkeys((*one.terms, *other.terms))
    rows: Iterable[tuple[str, float, float]] = (
        (STEP, float(one.step_time), float(other.step_time)),
        (MILLION_TOKENS, *tokens),
        *((term, float(one.terms.get(term, 0.0)), float(other.terms.get(term, 0.0))) for term in terms),
    )
    for term, before, after in rows:
        if not alike(before, after):
            yield Time(term, before, after)


def _binds(estimate: Estimate) -> str:
    return binding_words(binding(estimate))
