"""The answer of `fit` on a terminal: 12 to 20 lines, at most 100 columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ziplan.estimate import Estimate
from ziplan.plan import Checkpointing, Plan
from ziplan.report.figures import (
    Place,
    kinds_of_inputs,
    placement_of,
    speed,
    tightest,
    whole,
)
from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.table import tier_table
from ziplan.solve.problem import Answer, Change
from ziplan.units import show, show_duration

LONGEST = 20
LABEL = 10
VERDICTS = {"fits": "green", "tight": "yellow", "does_not_fit": "red", "unknown": "yellow"}
KIND_WORDS = {"datasheet": "from data sheets", "given": "given by you"}
TERM_SHARE = 0.005


@dataclass(frozen=True)
class Written:
    """What became of the files: their names, the folder if they were written, why not otherwise."""

    names: Sequence[str] = ()
    folder: str = ""
    why_not: str = ""
    said: Sequence[str] = field(default_factory=tuple)


def fit_text(answer: Answer, written: Written, width: int) -> list[Line]:
    """The whole answer; the least needed lines are left out when it would grow too long."""
    best = answer.best
    head = [
        *_headline(answer, width),
        *_time(best, width),
        *entry("binds", f"{answer.binding.where} ({answer.binding.kind}): {answer.binding.what}", width),
        line(),
        *tier_table(best, width),
        line(),
        *(_biggest_lines(best, width) if best.verdict == "does_not_fit" else []),
        *entry("placement", placement_words(best.plan), width),
        *entry("plan", plan_words(best), width),
    ]
    tail = [
        *_baseline(answer, width),
        *_change(answer.changes, best, width),
        *_files(written, width),
        *_inputs(best, width),
    ]
    notes = _notes([*answer.notes, *written.said], LONGEST - len(head) - len(tail), width)
    return [*head, *tail, *notes]


def entry(label: str, text: str, width: int, style: str = "") -> list[Line]:
    """A labelled paragraph, wrapped under its label."""
    lines = wrapped(text, width - LABEL, indent="")
    return [
        (Span(f"{'' if index else label:<{LABEL}}", "bold"), *(Span(span.text, style) for span in each))
        for index, each in enumerate(lines)
    ]


def _headline(answer: Answer, width: int) -> list[Line]:
    best, runtime = answer.best, answer.problem.runtime
    model = best.workload.model
    gpus = best.cluster.gpu_count
    what = (
        f"{model.name} ({show(model.params, 'param', 3)}) on {best.cluster.label} "
        f"({gpus} GPU{'s' * (gpus > 1)}), {runtime.NAME} {runtime.VERSION}".rstrip()
    )
    verdict = best.verdict.replace("_", " ")
    margin = _margin(best, tightest(best))
    style = f"bold {VERDICTS[best.verdict]}"
    if len(what) + len(verdict) + len(margin) + 4 <= width:
        return [line(f"{what}: ", Span(verdict, style), f", {margin}")]
    rest = wrapped(f"{verdict}, {margin}", width - 2)
    (first,) = rest[0]
    styled = line("  ", Span(first.text[: len(verdict)], style), first.text[len(verdict) :])
    return [*wrapped(f"{what}:", width), styled, *(line("  ", *each) for each in rest[1:])]


def _margin(estimate: Estimate, place: Place | None) -> str:
    if estimate.verdict == "unknown" and estimate.unknown:
        return f"not stated: {', '.join(estimate.unknown)}"
    if place is None:
        return "no tier has a need"
    where = f"{place.tier} in {place.phase}"
    if place.left_high < 0:
        return f"at least {show(-place.left_high, 'B', 3)} too much for {where}"
    if place.left_low < 0:
        return f"up to {show(-place.left_low, 'B', 3)} too much for {where}"
    return f"{show(place.left_low, 'B', 3)} ({place.share:.0%}) to spare on {where}"


def _time(estimate: Estimate, width: int) -> list[Line]:
    fast = speed(estimate)
    if fast.step_time != fast.step_time:
        return entry("step", f"unknown: nobody stated {', '.join(estimate.unknown) or 'what decides it'}", width)
    interval = f" ({show_duration(fast.low, 3)} to {show_duration(fast.high, 3)})" if fast.low < fast.high else ""
    rates = (
        f"{show_duration(fast.step_time, 3)}{interval}, {show(fast.tokens_per_s, 'token/s', 3)}, "
        f"{show(fast.model_flops_per_s_per_gpu, 'FLOP/s', 3)} per GPU (6P), "
        f"{show(fast.hardware_flops_per_s_per_gpu, 'FLOP/s', 3)} with recomputation"
    )
    terms = sorted(estimate.terms.items(), key=lambda term: -term[1])
    shown = [f"{name} {show_duration(time, 3)}" for name, time in terms if time > TERM_SHARE * fast.step_time]
    return [*entry("step", rates, width), *entry("", "= " + " + ".join(shown), width)]


def _biggest_lines(estimate: Estimate, width: int) -> list[Line]:
    place = tightest(estimate)
    if place is None:
        return []
    lines = [each for each in estimate.ledger.lines if each.tier == place.tier and place.phase in each.phases]
    biggest = sorted(lines, key=lambda each: -each.high)[:3]
    words = [f"{each.name} {show(each.high, 'B', 3)}{f' [{each.knob}]' if each.knob else ''}" for each in biggest]
    return entry("biggest", f"{place.tier} in {place.phase}: " + ", ".join(words), width)


def placement_words(plan: Plan) -> str:
    """Where each kind of state lives: "params hbm, optimizer dram 40% + nvme 60%"."""
    return ", ".join(f"{kind} {_parts(parts)}" for kind, parts in placement_of(plan).items())


def _parts(parts: dict[str, float]) -> str:
    if len(parts) == 1:
        return next(iter(parts))
    return " + ".join(f"{tier} {part:.0%}" for tier, part in parts.items()) or "nowhere"


def plan_words(estimate: Estimate) -> str:
    """The rest of the plan in one phrase."""
    plan, training = estimate.plan, estimate.workload.training
    checkpointing = Checkpointing(int(plan.activation_checkpointing)).name.lower()
    words = [f"ZeRO {whole(plan.zero_stage)}", f"dp {whole(plan.dp_degree)}"]
    words += [f"tp {whole(plan.tp_degree)}"] * (plan.tp_degree > 1)
    words += [f"pp {whole(plan.pp_degree)}"] * (plan.pp_degree > 1)
    words += [
        f"micro-batch {whole(plan.micro_batch_size)} x {training.sequence_length:,} tokens",
        f"accumulation {whole(plan.accumulation_steps)}",
        f"checkpointing {checkpointing}",
        f"prefetch {whole(plan.prefetch_depth)}",
    ]
    if plan.tile_count > 1:
        words.append(f"{whole(plan.tile_count)} tiles (a change of the model's code)")
    return ", ".join(words)


def _baseline(answer: Answer, width: int) -> list[Line]:
    base = answer.baseline
    if answer.do_not_offload and answer.best.verdict in ("fits", "tight"):
        return entry("advice", "do not offload: everything fits in GPU memory, and that is fastest", width, "green")
    need = f"{show(base.gpus, '1', 6)} GPUs at {show(base.usable_bytes_per_gpu, 'B', 3)} usable each"
    time = f", {show_duration(base.step_time, 3)} a step" if base.step_time is not None else ""
    return entry("without", f"offload (stage 3 in GPU memory): needs {need}{time}", width)


def _change(changes: Sequence[Change], estimate: Estimate, width: int) -> list[Line]:
    if not changes:
        nothing = "no single change of an input makes it fit" if estimate.verdict == "does_not_fit" else ""
        return entry("change", nothing, width) if nothing else []
    first = changes[0]
    return entry("change", f"{first.path} from {first.before} to {first.after}: {first.effect}", width)


def _files(written: Written, width: int) -> list[Line]:
    names = ", ".join(written.names)
    if written.folder:
        return entry("files", f"{names} written to {written.folder}", width)
    if written.why_not:
        return entry("files", f"none: {written.why_not}", width)
    return entry("files", f"none written; --out DIR writes {names}", width) if names else []


def _inputs(estimate: Estimate, width: int) -> list[Line]:
    counts = kinds_of_inputs(estimate)
    words = [f"{count} {KIND_WORDS.get(kind, kind)}" for kind, count in counts.items()]
    interval = f"; interval: {estimate.interval_source}" if estimate.interval_source else ""
    return entry("inputs", (", ".join(words) or "none listed") + interval, width)


def _notes(notes: Sequence[str], room: int, width: int) -> list[Line]:
    lines = [each for note in notes for each in entry("note", note, width)]
    if len(lines) <= room:
        return lines
    kept = lines[: max(0, room - 1)]
    return [*kept, *entry("", "... more notes with --explain or --json", width)] if room > 0 else []
