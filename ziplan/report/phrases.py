"""Phrases that several texts share: a quantity, a placement, a plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ziplan.estimate import Estimate
from ziplan.plan import Checkpointing, Plan
from ziplan.report.figures import lacking, placement_of, tightest, whole
from ziplan.report.lines import GLUE, glued
from ziplan.runtimes.runtime import bare
from ziplan.solve.problem import Binding
from ziplan.units import counted, figure, show, show_duration
from ziplan.workload.model import Model
from ziplan.workload.training import Workload

if TYPE_CHECKING:
    from ziplan.solve.relief import Relief


LEAST_SHOWN = 0.005
"""A part below it would read as 0 %."""

DIVIDED = 3
"""The stage from which parameters are divided, so that there is something to fetch ahead."""


def shown(value: float, unit: str) -> str:
    """A quantity in three digits that stays on one line."""
    return glued(show_duration(value, 3) if unit == "s" else show(value, unit, 3))


def spread(low: float, high: float, unit: str) -> str:
    """A range, the unit once where both ends have the same: "50 to 60 GB"."""
    first = shown(low, unit)
    last = glued(show_duration(high, 3, low)) if unit == "s" else shown(high, unit)
    if first == last:
        return last
    number, _, written = first.rpartition(GLUE)
    return glued(f"{number} to {last}" if last.endswith(GLUE + written) else f"{first} to {last}")


def job_words(workload: Workload) -> str:
    """The models of a job with their sizes, the trained one first: "a (7 Gparam) + reference b (...)"."""
    words = [f"{workload.model.name} ({size_words(workload.model)})"]
    for each in workload.companions:
        trained = ", trained" if each.model.trainable_params == each.model.params else ""
        words.append(f"{each.name} {each.model.name} ({size_words(each.model)}{trained})")
    return " + ".join(words)


def how_tight(estimate: Estimate) -> str:
    """How a plan fits that may, and not surely."""
    if estimate.likely_fits:
        return "a tight fit: the low end of the need is there, the high end is not"
    return "a tight fit, and more likely none: the low end of the need is there, the middle is not"


def gpus_words(used: float, there: int) -> str:
    """How many GPUs train, of how many the cluster has that was asked about."""
    words = counted(there, "GPU")
    return words if used >= there else f"{int(used):,} of {words}"


def fewer_words(other: Estimate, best: Estimate) -> str:
    """A plan on fewer GPUs beside one on all of them, and what plans it."""
    nodes, there = other.cluster.nodes, best.cluster.nodes
    alone = other.gpus < other.cluster.gpu_count
    of = f"{counted(int(other.gpus), 'GPU')}" + (" of one node" if alone and there > 1 else "")
    where = of if alone else f"{nodes:,} of {counted(there, 'node')} ({of})"
    batch = counted(_sequences(other), "sequence")
    times = figure(best.step_time / other.step_time, 2)
    return (
        f"{shown(other.tokens_per_s, 'token/s')} on {where}, {times} times as many for the "
        f"same global batch of {batch}; {' '.join(_options(other, best))} plans it"
    )


def _sequences(estimate: Estimate) -> int:
    return round(estimate.tokens_per_step / estimate.workload.training.sequence_length)


def _options(other: Estimate, best: Estimate) -> Iterator[str]:
    """What asks for a plan on fewer GPUs, in place of what asked for the one on all of them."""
    if other.cluster.nodes < best.cluster.nodes:
        yield f"--set nodes={other.cluster.nodes}"
    if other.gpus < other.cluster.gpu_count:
        yield f"--set gpus_per_node={int(other.gpus)}"
    training = best.workload.training
    if training.global_batch_size is None:
        yield f"--global-batch-size {_sequences(other)}"
    if training.accumulation_steps is not None:
        yield f"--accumulation-steps {int(other.plan.accumulation_steps)}"


def size_words(model: Model) -> str:
    """How large a model is: all parameters, and those of a token and those trained where they are fewer."""
    words = [shown(model.params, "param")]
    if model.active_params != model.params:
        words.append(f"{shown(model.active_params, 'param')} active per token")
    if not model.trainable_params:
        words.append("frozen")
    elif model.trainable_params != model.params:
        words.append(f"{shown(model.trainable_params, 'param')} trained")
    return ", ".join(words)


def money(amount: float) -> str:
    """Dollars in three digits, on one line."""
    return shown(amount, "USD")


def binding_words(binding: Binding) -> str:
    """What limits an answer."""
    if binding.kind == "capacity":
        return f"capacity of {binding.where} in {binding.what}"
    tier, _, way = bare(binding.where).partition(".")
    return f"{binding.what} ({tier} {way}s)" if way in ("read", "write") else binding.what


def placement_words(plan: Plan) -> str:
    """Where each kind of state lives: "params hbm, optimizer dram 40% + nvme 60%"."""
    return ", ".join(f"{kind} {_parts(parts)}" for kind, parts in placement_of(plan).items())


def _parts(parts: dict[str, float]) -> str:
    if len(parts) == 1:
        return next(iter(parts))
    return " + ".join(f"{tier} {_share(part)}" for tier, part in parts.items()) or "nowhere"


def _share(part: float) -> str:
    """A part of a whole that is neither none nor all of it."""
    if 0 < part < LEAST_SHOWN:
        return "under 1%"
    return "over 99%" if 1 - LEAST_SHOWN < part < 1 else f"{part:.0%}"


CHECKPOINTS_ON_HOST = "checkpoints kept on the host by deepspeed.checkpointing (a change of the model's code)"
"""What puts them there under DeepSpeed, whose engine recomputes nothing by itself."""


def off_gpu(estimate: Estimate) -> bool:
    """Whether DeepSpeed has to keep activation checkpoints elsewhere than on the GPU."""
    gpu, checkpoints = estimate.cluster.node.gpu_tier, estimate.plan.placement.checkpoints
    elsewhere = any(part > 0 for tier, part in checkpoints.items() if tier != gpu)
    return elsewhere and estimate.runtime.partition(" ")[0] == "deepspeed"


def plan_words(estimate: Estimate) -> str:
    """The rest of the plan in one phrase."""
    plan, training = estimate.plan, estimate.workload.training
    checkpointing = Checkpointing(int(plan.activation_checkpointing)).name.lower()
    words = [f"ZeRO {whole(plan.zero_stage)}", f"dp {whole(plan.dp_degree):,}"]
    words += [f"tp {whole(plan.tp_degree):,}"] * (plan.tp_degree > 1)
    words += [f"pp {whole(plan.pp_degree):,}"] * (plan.pp_degree > 1)
    words += [f"vpp {whole(plan.vpp_degree):,}"] * (plan.vpp_degree > 1)
    words += [
        glued(f"micro-batch {whole(plan.micro_batch_size):,} x {training.sequence_length:,}"),
        glued(f"accumulation {whole(plan.accumulation_steps):,}"),
        f"{'no' if checkpointing == 'none' else checkpointing} checkpointing",
    ]
    if plan.zero_stage >= DIVIDED:
        words.append(
            glued(f"prefetch {whole(plan.prefetch_depth)}" if plan.prefetch_depth else "no prefetch")
        )
    if off_gpu(estimate):
        words.append(CHECKPOINTS_ON_HOST)
    if plan.tile_count > 1:
        words.append(f"{whole(plan.tile_count)} tiles (a change of the model's code)")
    return ", ".join(words)


def buffer_words(plan: Plan) -> str:
    """The swap buffers of a plan, by which placements of the same tiers differ; empty without any."""
    counts = {"optimizer": plan.optimizer_buffer_count, "parameter": plan.param_buffer_count}
    return "".join(f", {counted(n, f'{kind} swap buffer')}" for kind, n in counts.items() if n > 0)


def margin_words(estimate: Estimate) -> str:
    """What is left where the least is, or what is missing."""
    place = tightest(estimate)
    if estimate.verdict == "unknown" and estimate.unknown:
        return f"not stated: {', '.join(estimate.unknown)}"
    if place is None:
        return "no tier has a need"
    where = f"{place.tier} in {place.phase}"
    if place.left_high < 0:
        others = {tier: short for tier, short in lacking(estimate).items() if tier != place.tier}
        also = "".join(f", {shown(short, 'B')} for {tier}" for tier, short in others.items())
        return f"at least {shown(-place.left_high, 'B')} too much for {where}{also}"
    if place.left_low < 0:
        return f"up to {shown(-place.left_low, 'B')} too much for {where}"
    return f"{shown(place.left_low, 'B')} ({place.share:.0%}) to spare on {where}"


def saved_words(relief: Relief) -> str:
    """Seconds of a step that a purchase saves, with a minus where it costs some."""
    return f"{'-' * (relief.saved < 0)}{shown(abs(relief.saved), 's')}" if relief.saved else "nothing"


def relief_words(relief: Relief) -> str:
    """What one purchase saves: "one more node saves 104 s a step (51%)"."""
    return f"{relief.what} saves {shown(relief.saved, 's')} a step ({relief.share:.0%})"
