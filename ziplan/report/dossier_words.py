"""The words and the rows of a report: what a dossier says, as text that a page only has to lay out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ziplan.estimate import Estimate
from ziplan.laws.law import Step
from ziplan.report.derivation import beside_the_ledger, quantity, with_numbers, worth_telling
from ziplan.report.dossier import Dossier
from ziplan.report.figures import (
    cost_per_million_tokens,
    flash_writes_per_node,
    gpu_hours_per_million_tokens,
    hidden,
    interval,
    kinds_of_inputs,
    tokens_per_rank,
)
from ziplan.report.json import stated
from ziplan.report.phrases import (
    binding_words,
    buffer_words,
    fewer_words,
    job_words,
    margin_words,
    money,
    placement_words,
    plan_words,
    relief_words,
    saved_words,
    shown,
    spread,
)
from ziplan.solve.changes import WORTH_SAYING
from ziplan.solve.enumerate import WORTH_OFFLOADING
from ziplan.units import counted, show

Rows = Sequence[Sequence[str]]

ALIKE = 5e-4
"""Share by which the played and the estimated step may differ and read the same."""


class Tile(NamedTuple):
    """A figure that stands on its own: what it is, the number, and what belongs to it."""

    name: str
    value: str
    note: str = ""


class Formula(NamedTuple):
    """A law applied: what for, its expression, the same with numbers, its value and its source."""

    name: str
    label: str
    expression: str
    numbers: str
    value: str
    source: str


def title(dossier: Dossier) -> str:
    """The model and the machine."""
    return f"{job_words(dossier.estimate.workload)} on {dossier.estimate.cluster.label}"


def in_short(dossier: Dossier) -> Iterator[str]:
    """The answer in a few sentences."""
    estimate, answer = dossier.estimate, dossier.answer
    yield f"{_whose(dossier)}: {margin_words(estimate)}."
    if dossier.verdict != estimate.verdict:
        yield "Whether it fits hangs on an input that nobody stated, as the findings say."
    if not math.isnan(estimate.step_time) and dossier.verdict != "does_not_fit":
        terms = sorted(estimate.terms.items(), key=lambda term: -term[1])
        name, seconds = terms[0]
        yield f"Most of a step is {name}: {shown(seconds, 's')} of {shown(estimate.step_time, 's')}."
    best = "" if not dossier.config else " in the best plan for the same batch"
    yield f"What binds{best}: {binding_words(answer.binding)}."
    worth = [each for each in dossier.reliefs if each.share >= WORTH_SAYING]
    if worth:
        yield f"What helps most: {relief_words(worth[0])}."
    elif answer.changes and dossier.verdict == "does_not_fit":
        first = answer.changes[0]
        yield f"What makes it fit: {first.path} from {first.before} to {first.after} ({first.effect})."
    fewer = answer.faster_on_fewer
    if fewer is not None:
        yield f"Fewer GPUs are faster than the best plan on all: {fewer_words(fewer, answer.best)}."
    yield without_offload(dossier)


def _whose(dossier: Dossier) -> str:
    if not dossier.config:
        return "The best plan"
    if dossier.checked is not None and dossier.checked.case.estimate is None:
        return f"{dossier.config} comes to no plan, so figures are those of the best one"
    return f"The plan of {dossier.config}"


def without_offload(dossier: Dossier) -> str:
    """What the same takes where nothing is offloaded."""
    answer, base = dossier.answer, dossier.answer.baseline
    if answer.do_not_offload:
        more = f"{WORTH_OFFLOADING - 1:.0%}"
        return (
            "Everything fits in GPU memory, and nothing offloaded that surely fits is more than "
            f"{more} faster: do not offload."
        )
    if math.isinf(base.gpus):
        return "Without offload (plain stage 3) no number of these GPUs holds it."
    told = f"Without offload (plain stage 3) it needs {counted(base.gpus, 'GPU')}"
    if base.step_time is None or not math.isfinite(base.step_time):
        return f"{told}."
    on = counted(base.step_gpus or base.gpus, "GPU")
    return f"{told}; the same tokens then take {shown(base.step_time, 's')} on {on}."


def tiles(dossier: Dossier) -> Iterator[Tile]:
    """The figures that people ask for first."""
    estimate = dossier.estimate
    yield Tile("GPUs", f"{estimate.gpus:,.0f}", estimate.cluster.label)
    if math.isnan(estimate.step_time):
        yield Tile("step", "unknown", f"not stated: {', '.join(estimate.unknown)}")
        return
    aside = "if it fitted" if dossier.verdict == "does_not_fit" else ""
    low, high = interval(estimate)
    yield Tile("step", shown(estimate.step_time, "s"), aside or spread(low, high, "s"))
    yield Tile(
        "tokens a second",
        show(estimate.tokens_per_s, "1", 3),
        f"{shown(estimate.tokens_per_step, 'token')} a step",
    )
    rate, computed = estimate.model_flops_per_s_per_gpu, estimate.hardware_flops_per_s_per_gpu
    yield Tile("per GPU", shown(rate, "FLOP/s"), f"model FLOPs; {shown(computed, 'FLOP/s')} computed")
    hours = f"{show(gpu_hours_per_million_tokens(estimate), '1', 3)} GPU-h"
    million = cost_per_million_tokens(estimate)
    if million is None:
        yield Tile("a million tokens", hours, "no price is stated")
    else:
        yield Tile("a million tokens", money(million), hours)


def facts(dossier: Dossier) -> Iterator[tuple[str, str]]:
    """(label, sentence) of the plan."""
    estimate = dossier.estimate
    yield "placement", placement_words(estimate.plan)
    yield "plan", plan_words(estimate) + buffer_words(estimate.plan)
    written = flash_writes_per_node(estimate)
    if written > 0:
        yield "drives", f"{shown(written, 'B')} written to flash on each node in a step; {_worn(estimate)}"
    price = estimate.cluster.price
    if price is not None:
        source = ", ".join(filter(None, (price.source, price.date))) or "source not stated"
        yield "price", f"{money(price.per_node_hour_usd)} per node and hour ({source})"
    words = [f"{count} {kind}" for kind, count in kinds_of_inputs(estimate).items()]
    yield "inputs", ", ".join(words) or "none listed"
    if estimate.interval_source and not math.isnan(estimate.step_time):
        yield "interval", estimate.interval_source
    for note in dossier.answer.notes:
        yield "note", note


def _worn(estimate: Estimate) -> str:
    lifetime = estimate.drive_lifetime
    if lifetime is None or not math.isfinite(lifetime):
        return "how long the drives take it is unknown: nobody stated their endurance"
    return f"that uses up the drives' rated endurance in {shown(lifetime, 's')} of training"


def tier_rows(estimate: Estimate) -> Rows:
    """Tier, need, what there is, link, tokens that hide it, tokens here, margin."""
    rows = []
    for name in dict.fromkeys((*estimate.memory, *estimate.tiers)):
        memory, test = estimate.memory.get(name), estimate.tiers.get(name)
        known = test is not None and math.isfinite(test.hiding_margin)
        rows.append(
            (
                name,
                spread(memory.low, memory.high, "B") if memory else "-",
                shown(memory.available, "B") if memory else "-",
                f"{memory.high / memory.available:.0%}" if memory and memory.available else "-",
                shown(test.bandwidth, "B/s") if test and math.isfinite(test.bandwidth) else "unknown",
                f"{test.required_tokens:,.0f}" if test is not None and known else "unknown",
                f"{_ranks(estimate, name)}{tokens_per_rank(estimate):,.0f}",
                f"{show(test.hiding_margin, '1', 3)}x" if test is not None and known else "unknown",
            )
        )
    return rows


def _ranks(estimate: Estimate, tier: str) -> str:
    known, ranks = estimate.cluster.node.tiers.get(tier), float(estimate.plan.dp_degree)
    return f"{ranks:,.0f} x " if known is not None and known.scope == "node" and ranks > 1 else ""


def term_rows(estimate: Estimate) -> Rows:
    """Term, seconds that the step waits for it, their share, seconds that run hidden."""
    behind = hidden(estimate)
    names = list(dict.fromkeys((*estimate.terms, *behind)))
    waited = {name: float(estimate.terms.get(name, 0.0)) for name in names}
    return [
        (
            name,
            shown(waited[name], "s") if waited[name] else "-",
            f"{waited[name] / float(estimate.step_time):.1%}" if waited[name] else "-",
            shown(behind[name], "s") if name in behind else "-",
        )
        for name in sorted(names, key=lambda each: -waited[each])
    ]


def relief_rows(dossier: Dossier) -> Rows:
    """Purchase, path, from, to, seconds of a step that it saves, share of the step."""
    return [
        (
            each.what,
            each.path,
            each.before,
            each.after,
            saved_words(each),
            f"{each.share:.1%}",
        )
        for each in dossier.reliefs
    ]


def change_rows(dossier: Dossier) -> Rows:
    """Input, from, to, effect."""
    return [(each.path, each.before, each.after, each.effect) for each in dossier.answer.changes]


def plan_rows(dossier: Dossier) -> Rows:
    """Plan, verdict, step, tokens a second, what it is: the one told of, then others, best first."""
    answer = dossier.answer
    told = [("this one", dossier.verdict, dossier.estimate)]
    if dossier.config and dossier.estimate is not answer.best:
        told = [("the config", dossier.verdict, dossier.estimate), ("best", answer.best.verdict, answer.best)]
    told += [(f"other {place}", each.verdict, each) for place, each in enumerate(answer.alternatives, 1)]
    if answer.faster_if_it_fits is not None:
        told.append(("faster, if it fits", answer.faster_if_it_fits.verdict, answer.faster_if_it_fits))
    fewer = answer.faster_on_fewer
    if fewer is not None:
        told.append((f"faster, on {counted(int(fewer.gpus), 'GPU')}", fewer.verdict, fewer))
    return [
        (
            name,
            verdict.replace("_", " "),
            "unknown" if math.isnan(each.step_time) else shown(each.step_time, "s"),
            "unknown" if math.isnan(each.step_time) else show(each.tokens_per_s, "1", 3),
            f"{placement_words(each.plan)}; {plan_words(each)}{buffer_words(each.plan)}",
        )
        for name, verdict, each in told
    ]


def assumption_rows(estimate: Estimate) -> Rows:
    """What, its value, its ends, its kind, its source."""
    return [
        (
            each.name,
            show(each.value, each.unit),
            "" if each.low is None or each.high is None else spread(each.low, each.high, each.unit),
            each.kind,
            each.source,
        )
        for each in (*estimate.assumptions, *stated(estimate.cluster))
    ]


def ledger_rows(estimate: Estimate, tier: str) -> Rows:
    """Line, phases, bytes, whether page-locked, what changes it, of one tier."""
    return [
        (
            each.name,
            ", ".join(each.phases),
            spread(each.low, each.high, "B"),
            "pinned" if each.pinned else "",
            each.knob,
        )
        for each in estimate.ledger.lines
        if each.tier == tier and each.high > 0
    ]


def ledger_formulas(estimate: Estimate) -> list[Formula]:
    """The laws behind the ledger's lines, each line's once."""
    told: dict[tuple[str, str], Formula] = {}
    for each in estimate.ledger.lines:
        if each.step is not None and each.high > 0:
            told.setdefault((each.tier, each.name), _formula(each.step, f"{each.tier}, {each.name}"))
    return list(told.values())


def formulas(estimate: Estimate) -> list[Formula]:
    """The laws behind everything else."""
    return [_formula(step, step.label) for step in worth_telling(beside_the_ledger(estimate))]


def _formula(step: Step, label: str) -> Formula:
    value = quantity(step.value, step.law.units["return"])
    return Formula(step.law.name, label, step.law.expression, with_numbers(step), value, step.law.source)


def played(dossier: Dossier) -> str:
    """How long the played step is, beside the estimated one."""
    assert dossier.played is not None
    simulation, estimated = dossier.played.simulation, float(dossier.estimate.step_time)
    sums = simulation.tally
    apart = simulation.makespan / estimated - 1
    against = "as the estimate says" if abs(apart) < ALIKE else f"{apart:+.1%} against the estimate"
    return (
        f"{shown(simulation.makespan, 's')}, {against}: the GPU works {shown(sums.computing, 's')} and waits "
        f"{shown(sums.stalled, 's')}"
    )
