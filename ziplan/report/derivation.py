"""How numbers came about: laws applied, and the ledger of memory, line by line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ziplan.estimate import Estimate
from ziplan.laws.law import Law, Step
from ziplan.report.figures import hidden
from ziplan.report.law_uses import WORDS, use_of
from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.phrases import buffer_words, placement_words, plan_words, saved_words, shown
from ziplan.report.table import Column, table
from ziplan.runtimes.runtime import Line as LedgerLine
from ziplan.solve.problem import Answer
from ziplan.solve.relief import Relief
from ziplan.units import Unit, counted, show, show_duration


def quantity(value: Any, unit: Unit) -> str:
    """A value of a law as text."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return show_duration(number) if unit.symbol == "s" else show(number, unit.symbol)


def step_lines(step: Step, width: int) -> list[Line]:
    """One law applied: what it stands for, symbols, numbers, value."""
    units = step.law.units
    label = f" ({step.label})" if step.label else ""
    value, source = f"  = {quantity(step.value, units['return'])}", f"[{step.law.source}]"
    last = [line(value, Span(f"   {source}", "dim"))]
    if len(value) + len(source) + 3 > width:
        last = [line(value), *_indented(source, width)]
    return [
        *_titled(step.law.name, label, width),
        *_indented(f"= {step.law.expression}", width),
        *_indented(f"= {with_numbers(step)}", width),
        *last,
    ]


def _titled(name: str, label: str, width: int) -> list[Line]:
    """A law's name in bold, and beside it what it stands for here."""
    first, *rest = wrapped(f"{name}{label}", width, indent="    ")
    text = "".join(span.text for span in first)
    return [line(Span(text[: len(name)], "bold"), text[len(name) :]), *rest]


def _indented(text: str, width: int) -> list[Line]:
    return [line("  ", *each) for each in wrapped(text, width - 2, indent="    ", keep_words=True)]


def _unit_word(unit: Unit) -> str:
    """A unit as people read it: a count or a ratio has none."""
    return "number" if unit.symbol == "1" else unit.symbol


def law_lines(law: Law, width: int) -> list[Line]:
    """A law: what it says, its formula, its units, its source."""
    units = law.units
    arguments = [name for name in units if name != "return"]
    return [
        line(Span(law.name, "bold"), f" [{_unit_word(units['return'])}]"),
        *_indented(law.summary, width),
        *_indented(f"= {law.expression}", width),
        *table(
            [
                Column("  argument", [f"  {name}" for name in arguments], right=False),
                Column("unit", [_unit_word(units[name]) for name in arguments], right=False),
            ],
            width,
        ),
        *_indented(f"source: {law.source}", width),
        *_indented(f"use: {WORDS[use_of(law)]}", width),
    ]


def law_list(laws: Mapping[str, Law], width: int) -> list[Line]:
    """Every law in a line or two, its name and what it says: those of plans first, then the others."""
    lines: list[Line] = []
    for use, words in WORDS.items():
        alike = [name for name in sorted(laws) if use_of(laws[name]) == use]
        if alike:
            lines += [line()] * bool(lines) + [line(f"{counted(len(alike), 'law')}, {words}:"), line()]
        for name in alike:
            lines += [line(Span(name, "bold")), *_indented(laws[name].summary, width)]
    return lines


def derivation_lines(steps: Sequence[Step], width: int) -> list[Line]:
    """Laws applied, in order, those that are worth telling."""
    return [part for step in worth_telling(steps) for part in step_lines(step, width)]


def worth_telling(steps: Sequence[Step]) -> list[Step]:
    """Each application once, and not at all where it gives nothing."""
    told: dict[str, Step] = {}
    for step in steps:
        if not _nothing(step):
            told.setdefault(f"{step.law.name}({step.arguments!r}){step.label}", step)
    return list(told.values())


def beside_the_ledger(estimate: Estimate) -> list[Step]:
    """The laws behind an estimate that are not told with a line of its ledger."""
    of_ledger = {id(each.step) for each in estimate.ledger.lines}
    return [step for step in estimate.derivation.steps if id(step) not in of_ledger]


def with_numbers(step: Step) -> str:
    """A law's expression with the numbers that it was applied to, each with its unit."""
    units = step.law.units
    return step.law.with_numbers(
        {name: quantity(value, units[name]) for name, value in step.arguments.items()}
    )


def _nothing(step: Step) -> bool:
    """Whether a law says only that something does not happen in this plan: no bytes, no seconds."""
    return step.law.units["return"].symbol != "1" and float(step.value) == 0


def time_lines(estimate: Estimate, width: int) -> list[Line]:
    """Each term of the step: how much of it is waited for, the longest first, and how much is hidden."""
    behind = hidden(estimate)
    names = sorted(estimate.terms, key=lambda name: -estimate.terms[name])
    names += [name for name in behind if name not in estimate.terms]
    waited = [estimate.terms.get(name, 0.0) for name in names]
    columns = [
        Column("  term", [f"  {name}" for name in names], right=False),
        Column("waited for", [shown(time, "s") if time else "-" for time in waited]),
        Column("hidden", [shown(behind[name], "s") if name in behind else "-" for name in names]),
    ]
    return [line(Span("time of a step", "bold")), *table(columns, width)]


def ledger_lines(estimate: Estimate, width: int) -> list[Line]:
    """The whole ledger: for each tier and phase what it needs, for each line its formula and its knob."""
    lines: list[Line] = []
    for tier, memory in estimate.memory.items():
        reserve = f", {show(memory.reserve, 'B', 3)} kept in reserve" if memory.reserve else ""
        lines += [line(), line(Span(f"{tier}: {show(memory.available, 'B')} available{reserve}", "bold"))]
        owned = [each for each in estimate.ledger.lines if each.tier == tier and each.high > 0]
        for phase, (low, high) in memory.phases.items():
            inside = [each for each in owned if phase in each.phases]
            if inside:
                lines += [line(f"  {phase}: {_range(low, high)}"), *_phase_table(inside, width)]
    return [*lines, line(), *_formulas(estimate, width)]


def _phase_table(lines: Sequence[LedgerLine], width: int) -> list[Line]:
    columns = [
        Column("    line", [f"    {each.name}" for each in lines], right=False),
        Column("bytes", [_range(each.low, each.high) for each in lines]),
        Column("", ["pinned" if each.pinned else "" for each in lines], False, 2),
        Column("changed by", [each.knob for each in lines], False, 1),
    ]
    return table(columns, width)


def _range(low: float, high: float) -> str:
    return show(high, "B") if low == high else f"{show(low, 'B')} to {show(high, 'B')}"


def _formulas(estimate: Estimate, width: int) -> list[Line]:
    lines: list[Line] = [line(Span("formulas of the ledger's lines", "bold"))]
    told: set[tuple[str, str]] = set()
    for each in estimate.ledger.lines:
        if each.step is not None and each.high > 0 and (each.tier, each.name) not in told:
            told.add((each.tier, each.name))
            lines += [
                line(f"{each.tier}, {each.name}:"),
                *(line("  ", *part) for part in step_lines(each.step, width - 2)),
            ]
    return lines


def assumption_lines(estimate: Estimate, width: int) -> list[Line]:
    """Every number that nobody measured here, and where it comes from."""
    lines = [line(Span("assumptions", "bold"))]
    for each in estimate.assumptions:
        ends = ""
        if each.low is not None and each.high is not None:
            ends = f" ({show(each.low, each.unit)} to {show(each.high, each.unit)})"
        text = f"{each.name} = {show(each.value, each.unit)}{ends}, {each.kind}: {each.source}"
        lines += _indented(text, width)
    for path, origin in estimate.cluster.provenance.items():
        lines += _indented(f"{path}, {origin.kind}: {origin.source}", width)
    return lines


def alternative_lines(answer: Answer, width: int) -> list[Line]:
    """The best plans of other placements, and what was searched."""
    within = "the least wear" if answer.problem.objective == "wear" else "the fastest"
    said = f"other placements: what surely fits, then what may; {within} first in each"
    lines = [line(*(Span(span.text, "bold") for span in part)) for part in wrapped(said, width)]
    for other in answer.alternatives:
        time = f", {shown(other.tokens_per_s, 'token/s')}, {shown(other.step_time, 's')} a step"
        pace = ", step time unknown" if math.isnan(other.step_time) else time
        verdict = other.verdict.replace("_", " ")
        lines += _indented(f"{verdict}{pace}: {placement_words(other.plan)};", width)
        lines += [
            line("  ", *each) for each in _indented(plan_words(other) + buffer_words(other.plan), width - 2)
        ]
    if not answer.alternatives:
        lines += _indented("none that may fit", width)
    return [*lines, *_indented(f"searched: {answer.space}", width)]


def relief_lines(reliefs: Sequence[Relief], width: int) -> list[Line]:
    """What one more of each thing that can be bought saves of a step, each solved again, most saved first."""
    if not reliefs:
        return []
    columns = [
        Column("  one purchase", [f"  {each.what}" for each in reliefs], right=False),
        Column("from", [each.before for each in reliefs], expendable=1),
        Column("to", [each.after for each in reliefs], expendable=1),
        Column("saves a step", [saved_words(each) for each in reliefs]),
        Column("of it", [f"{each.share:.1%}" for each in reliefs]),
    ]
    return [line(), line(Span("what a little more would save", "bold")), *table(columns, width)]


def explained(answer: Answer, width: int, reliefs: Sequence[Relief] = ()) -> list[Line]:
    """Everything behind an answer: laws, ledger, purchases, other plans, assumptions, notes."""
    best = answer.best
    return [
        line(),
        *time_lines(best, width),
        *relief_lines(reliefs, width),
        line(),
        line(Span("derivation", "bold")),
        *derivation_lines(beside_the_ledger(best), width),
        *ledger_lines(best, width),
        line(),
        *alternative_lines(answer, width),
        line(),
        *assumption_lines(best, width),
        *(part for note in answer.notes for part in wrapped(f"note: {note}", width)),
    ]
