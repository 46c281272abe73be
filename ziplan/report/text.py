"""The answer of `fit` on a terminal: 12 to 22 lines of 100 columns, more where it is narrower."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ziplan.estimate import Estimate
from ziplan.report.figures import (
    cost_per_million_tokens,
    flash_writes_per_node,
    gpu_hours_per_million_tokens,
    hidden,
    interval,
    kinds_of_inputs,
    tightest,
)
from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.page import Block, Paragraph, laid_out
from ziplan.report.phrases import (
    binding_words,
    fewer_words,
    gpus_words,
    job_words,
    margin_words,
    money,
    placement_words,
    plan_words,
    shown,
    spread,
)
from ziplan.report.tiers import tier_table
from ziplan.solve.enumerate import WORTH_OFFLOADING
from ziplan.solve.problem import Answer, Change
from ziplan.units import counted, show

LONGEST = 22
NARROW = 100
"""Columns below which the same text takes more lines: 27 of 80 columns."""
VERDICTS = {"fits": "green", "tight": "yellow", "does_not_fit": "red", "unknown": "yellow"}
KIND_WORDS = {"datasheet": "from data sheets", "given": "given by you"}
TERM_SHARE = 0.005
"""Parts of a step shorter than this share of it are not worth a word."""
CLOSE = 0.5
"""What runs hidden is worth a line from this share of the longest term on."""


class Written(NamedTuple):
    """What became of the files: their names, the folder if they were written, why not otherwise.

    `removed` are files of an earlier plan that stood in the folder.
    """

    names: Sequence[str] = ()
    folder: str = ""
    why_not: str = ""
    removed: Sequence[str] = ()


def fit_text(answer: Answer, written: Written, width: int) -> list[Line]:
    """The whole answer; where it would grow too long, paragraphs are cut and some notes left out."""
    best = answer.best
    blocks: list[Block] = [
        _headline(answer, width),
        *_time(best),
        *_hidden(best),
        *_cost(answer),
        Paragraph("binds", binding_words(answer.binding)),
        [],
        tier_table(best, width),
        [],
        *_biggest_lines(best),
        *_drives(best),
        Paragraph("placement", placement_words(best.plan)),
        Paragraph("plan", plan_words(best)),
        *_faster(answer),
        *_on_fewer(answer),
        _baseline(answer),
        *_change(answer.changes, best),
        *_files(written),
        *_inputs(best),
        *(Paragraph("note", note, droppable=True) for note in answer.notes),
    ]
    return laid_out(blocks, width, LONGEST if width >= NARROW else LONGEST * NARROW // width)


def _headline(answer: Answer, width: int) -> list[Line]:
    best, runtime = answer.best, answer.problem.runtime
    where = f"{best.cluster.label} ({gpus_words(best.gpus, answer.gpus_there)})"
    what = f"{job_words(best.workload)} on {where}, {runtime.NAME} {runtime.VERSION}".rstrip()
    verdict = best.verdict.replace("_", " ")
    margin = margin_words(best)
    style = f"bold {VERDICTS[best.verdict]}"
    if len(what) + len(verdict) + len(margin) + 4 <= width:
        return [line(f"{what}: ", Span(verdict, style), f", {margin}")]
    rest = wrapped(f"{verdict}, {margin}", width - 2)
    (first,) = rest[0]
    styled = line("  ", Span(first.text[: len(verdict)], style), first.text[len(verdict) :])
    return [*wrapped(f"{what}:", width), styled, *(line("  ", *each) for each in rest[1:])]


def _time(estimate: Estimate) -> list[Paragraph]:
    if math.isnan(estimate.step_time):
        wanted = ", ".join(estimate.unknown) or "what decides it"
        remedy = "".join(f"; --set {path}=VALUE does" for path in estimate.unknown[:1])
        return [Paragraph("step", f"unknown: nobody stated {wanted}{remedy}")]
    low, high = interval(estimate)
    ends = f" ({spread(low, high, 's')}{_leaning(estimate)})" if low < high else ""
    rates = (
        f"{shown(estimate.step_time, 's')}{ends}, {shown(estimate.tokens_per_s, 'token/s')}, "
        f"{shown(estimate.model_flops_per_s_per_gpu, 'FLOP/s')} per GPU (6P), "
        f"{shown(estimate.hardware_flops_per_s_per_gpu, 'FLOP/s')} computed"
    )
    if estimate.verdict == "does_not_fit":
        return [Paragraph("step", f"if it fitted: {rates}")]
    terms = sorted(estimate.terms.items(), key=lambda term: -term[1])
    parts = [f"{name} {shown(time, 's')}" for name, time in terms if time > TERM_SHARE * estimate.step_time]
    aside = [Paragraph("", "without rollouts: the time of generating text is not modelled")]
    told = [Paragraph("step", rates), Paragraph("", "= " + " + ".join(parts))]
    return told + aside * bool(estimate.workload.companions)


def _leaning(estimate: Estimate) -> str:
    """Said where the range of published runs like this one lies above the prediction, or below it.

    Rates, durations and costs are those of the prediction all the same.
    """
    low, high = estimate.published or (0.0, math.inf)
    if low > 1:
        return "; most runs of this kind took longer"
    return "; most runs of this kind took less" if high < 1 else ""


def _hidden(estimate: Estimate) -> list[Paragraph]:
    """What runs behind the step's terms, where a little more of it would be the step."""
    behind = hidden(estimate)
    longest = max(estimate.terms.values(), default=math.inf)
    untold = estimate.verdict == "does_not_fit" or math.isnan(estimate.step_time)
    if untold or sum(behind.values()) < CLOSE * longest:
        return []
    parts = [f"{name} {shown(time, 's')}" for name, time in behind.items() if time > TERM_SHARE * longest]
    return [Paragraph("hidden", f"behind these: {', '.join(parts)}")]


def _cost(answer: Answer) -> list[Paragraph]:
    """What the step costs, where a price is stated; what stands in for it, where cost was asked for."""
    best, price = answer.best, answer.best.cluster.price
    if best.verdict == "does_not_fit" or not math.isfinite(best.step_time):
        return []
    hours = f"{show(gpu_hours_per_million_tokens(best), '1', 3)} GPU-hours"
    million = cost_per_million_tokens(best)
    if price is None or best.step_cost is None or million is None:
        asked = answer.problem.objective == "cost"
        said = f"{hours} per million tokens stand in for it: no price is stated (`price:` in a cluster.yaml)"
        return [Paragraph("cost", said)] if asked else []
    source = ", ".join(filter(None, (price.source, price.date))) or "source not stated"
    return [
        Paragraph(
            "cost",
            f"{money(best.step_cost)} a step, {money(million)} per million tokens ({hours}), "
            f"at {show(price.per_node_hour_usd, 'USD')} per node and hour ({source})",
        )
    ]


def _drives(estimate: Estimate) -> list[Paragraph]:
    """What a step writes to flash, and how long the drives take it."""
    written = flash_writes_per_node(estimate)
    if not written > 0 or estimate.verdict == "does_not_fit":
        return []
    lifetime = estimate.drive_lifetime
    worn = "how long the drives take it is unknown: nobody stated their endurance"
    if lifetime is not None and math.isfinite(lifetime):
        worn = f"that uses up the drives' rated endurance in {shown(lifetime, 's')} of training"
    return [Paragraph("drives", f"{shown(written, 'B')} written to flash on each node in a step; {worn}")]


def _biggest_lines(estimate: Estimate) -> list[Paragraph]:
    place = tightest(estimate)
    if place is None or estimate.verdict != "does_not_fit":
        return []
    there = [each for each in estimate.ledger.lines if each.tier == place.tier and each.high > 0]
    lines = [each for each in there if place.phase in each.phases]
    biggest = sorted(lines, key=lambda each: -each.high)[:3]
    words = [
        f"{each.name} {shown(each.high, 'B')}{f' [{each.knob}]' if each.knob else ''}" for each in biggest
    ]
    return [Paragraph("biggest", f"{place.tier} in {place.phase}: " + ", ".join(words))]


def _faster(answer: Answer) -> list[Paragraph]:
    """A faster plan that is not sure to fit."""
    other = answer.faster_if_it_fits
    if other is None:
        return []
    place = tightest(other)
    risk = f", up to {shown(-place.left_low, 'B')} too much for {place.tier}" if place else ""
    homes = placement_words(other.plan)
    moved = f"; {homes}" if homes != placement_words(answer.best.plan) else ""
    unlikely = "" if other.likely_fits else " (less likely than not)"
    pace = f"{shown(other.tokens_per_s, 'token/s')} if it fits{unlikely}{risk}"
    return [Paragraph("faster", f"{pace}: {plan_words(other)}{moved}")]


def _on_fewer(answer: Answer) -> list[Paragraph]:
    """Fewer GPUs that are faster."""
    other = answer.faster_on_fewer
    if other is None:
        return []
    return [Paragraph("advice", f"fewer GPUs are faster: {fewer_words(other, answer.best)}", "green")]


def _baseline(answer: Answer) -> Paragraph:
    base = answer.baseline
    if answer.do_not_offload and answer.best.verdict in ("fits", "tight"):
        sure = " that surely fits" if answer.faster_if_it_fits else ""
        return Paragraph(
            "advice",
            f"do not offload: everything fits in GPU memory, and nothing offloaded{sure} is more than "
            f"{WORTH_OFFLOADING - 1:.0%} faster",
            "green",
        )
    if math.isinf(base.gpus):
        return Paragraph("without", "offload (stage 3 in GPU memory): no number of these GPUs is enough")
    each = " each" if base.gpus > 1 else ""
    need = f"{counted(base.gpus, 'GPU')} with {shown(base.usable_bytes_per_gpu, 'B')} usable{each}"
    time = ""
    if base.step_time is not None and math.isfinite(base.step_time):
        on = counted(base.step_gpus or base.gpus, "GPU")
        time = f", {shown(base.step_time, 's')} for the same tokens on {on}"
    return Paragraph("without", f"offload (stage 3 in GPU memory): needs {need}{time}")


def _change(changes: Sequence[Change], estimate: Estimate) -> list[Paragraph]:
    if changes:
        first = changes[0]
        return [
            Paragraph(
                "change", f"{first.path} from {_read(first.before)} to {_read(first.after)}: {first.effect}"
            )
        ]
    if estimate.verdict == "does_not_fit":
        return [Paragraph("change", "no single change of an input makes it fit")]
    return []


def _read(value: str) -> str:
    """A value of an input as people read it."""
    return f"{int(value):,}" if value.isdecimal() else value


def _files(written: Written) -> list[Paragraph]:
    names = ", ".join(written.names)
    if written.folder:
        gone = f"; removed, of an earlier plan: {', '.join(written.removed)}" if written.removed else ""
        return [Paragraph("files", f"{names} written to {written.folder}{gone}")]
    if written.why_not:
        return [Paragraph("files", f"none: {written.why_not}")]
    return [Paragraph("files", f"none written; --out DIR writes {names}")] if names else []


def _inputs(estimate: Estimate) -> list[Paragraph]:
    """Where the numbers that went in come from, and the range of the step's time."""
    counts = kinds_of_inputs(estimate)
    words = [f"{count} {KIND_WORDS.get(kind, kind)}" for kind, count in counts.items()]
    inputs = Paragraph("inputs", ", ".join(words) or "none listed", minor=True)
    source = estimate.interval_source
    return [inputs, Paragraph("range", source, minor=True)] if source else [inputs]
