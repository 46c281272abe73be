"""ZP201 to ZP204 and what else is about parameters on their way to the GPU: margins, prefetch, decoding."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ziplan.check.case import Case
from ziplan.check.finding import Hit, Number, Rule
from ziplan.check.rules.capacity import size
from ziplan.check.rules.waits import LARGE_TERM, seconds, stepped
from ziplan.runtimes.shared.facts import ELEMENT_BYTES
from ziplan.units import counted

CLOSE_MARGIN = 2.0
"""A margin that half the tokens, or half the ranks, would use up."""


FETCHES = ("gather", "parameter copy", "parameter stream")
"""Terms of a step that bring parameters to where they are computed with; others use the same links."""

FEW_TOKENS = 16
"""Tokens of a micro-step that only decoding has."""


def _margins(case: Case) -> Iterator[tuple[str, float]]:
    """Tiers that parameters are streamed from, each with its margin after striping."""
    if case.estimate is None:
        return
    for tier in case.off_gpu(["params"]):
        margin = case.estimate.tiers[tier].hiding_margin
        if math.isfinite(margin):
            yield tier, margin


def _tokens(case: Case) -> int:
    """Tokens of a rank in one micro-step."""
    assert case.plan is not None
    return int(case.plan.micro_batch_size) * case.workload.training.sequence_length


def margin_collapse(case: Case) -> Iterator[Hit]:
    """Streaming parameters from a tier takes longer than computing with them."""
    assert case.plan is not None or case.estimate is None
    for tier, margin in _margins(case):
        if margin >= 1 or case.estimate is None or case.plan is None:
            continue
        test = case.estimate.tiers[tier]
        yield Hit(
            f"parameters on {tier} cannot be hidden: the margin is {margin:.2f} with {_tokens(case):,} "
            f"tokens per rank and {counted(case.plan.dp_degree, 'rank')}, where one link needs "
            f"{test.required_tokens:,.0f} tokens",
            key="train_micro_batch_size_per_gpu",
            field="micro_batch_size",
            fix=f"{1 / margin:.1f} times the micro-batch or the ranks (both count the same)",
            number=Number(margin),
        )


def margin_close(case: Case) -> Iterator[Hit]:
    """The margin holds, and half the micro-batch or half the ranks would use it up."""
    for tier, margin in _margins(case):
        if 1 <= margin < CLOSE_MARGIN:
            yield Hit(
                f"compute is {margin:.2f} times as long as streaming parameters from {tier}: with half the "
                "micro-batch, or half the ranks, it is shorter",
                key="train_micro_batch_size_per_gpu",
                field="micro_batch_size",
                fix="keep the micro-batch when fewer ranks train",
                number=Number(margin),
            )


def unhidden_reads(case: Case) -> Iterator[Hit]:
    """DeepSpeed reads no parameter from NVMe ahead of its use, so each read stands in front of its module."""
    whole, nvme = stepped(case), case.nvme
    if case.runtime.NAME != "deepspeed" or not whole or not case.share("params", nvme):
        return
    reading = case.terms_in("micro-step", f"{nvme}.swap_read")
    if reading <= LARGE_TERM * whole:
        return
    yield Hit(
        f"reading parameters from {nvme} is waited for {seconds(reading)} of a step of {seconds(whole)}: "
        "DeepSpeed "
        "0.19.8 cannot read them ahead of use",
        key="zero_optimization.offload_param.device",
        field="placement.params",
        fix="parameters in host memory, or more tokens in each micro-step",
        number=Number(reading, "s"),
    )


def accumulation(case: Case) -> Iterator[Hit]:
    """Accumulation in place of a larger micro-batch: every micro-step streams the parameters again."""
    plan = case.plan
    if plan is None or plan.accumulation_steps <= 1:
        return
    low = [tier for tier, margin in _margins(case) if margin < 1]
    if low:
        yield Hit(
            f"parameters come from {low[0]} again in each of {plan.accumulation_steps:,.0f} micro-steps: "
            "accumulation "
            "spreads the optimizer over more tokens, and nothing else",
            key="gradient_accumulation_steps",
            field="accumulation_steps",
            fix="a larger micro-batch with fewer accumulation steps, as far as activations fit",
            number=Number(float(plan.accumulation_steps)),
        )


def shallow_prefetch(case: Case) -> Iterator[Hit]:
    """Nothing is fetched ahead, so each gather stands in front of its layer."""
    plan, settings = case.plan, case.settings
    if plan is None or plan.zero_stage < 3 or case.share("params", case.nvme):
        return
    off = settings.prefetch_bucket_size == 0 if settings is not None else plan.prefetch_depth == 0
    fetched = plan.dp_degree > 1 or case.off_gpu(["params"])
    if not off or not fetched or not stepped(case):
        return
    # What is read ahead between nodes is waited for all the same (`network_waits` of DeepSpeed's traits).
    if case.nodes > 1 and case.runtime.NAME == "deepspeed":
        return
    waiting = sum(time for term, time in case.exposed() if term in FETCHES)
    # The article's estimate overlaps all that can be, at any depth: what its plan waits for is only played.
    if not waiting and case.runtime.NAME != "ideal":
        return
    how_long = f", {seconds(waiting)} of a step of {seconds(stepped(case))}" if waiting else ""
    yield Hit(
        f"nothing is fetched ahead: every layer's parameters are waited for{how_long}",
        key="zero_optimization.stage3_prefetch_bucket_size",
        field="prefetch_depth",
        fix=f"a prefetch bucket of one layer: {_layer(case):,} elements",
        number=Number(waiting, "s"),
    )


def _layer(case: Case) -> int:
    """Elements of the largest layer, as far as one rank of a tensor-parallel group has it."""
    assert case.plan is not None
    return math.ceil(case.workload.model.largest_layer_params / case.plan.tp_degree)


def deep_prefetch(case: Case) -> Iterator[Hit]:
    """Parameters gathered at once are what the GPU lacks memory for."""
    line = case.line("gathered parameters", case.gpu)
    memory = case.estimate.memory[case.gpu] if case.estimate is not None else None
    if line is None or memory is None or memory.high <= memory.available:
        return
    layer = ELEMENT_BYTES[case.workload.precision] * case.workload.model.largest_layer_params
    excess = memory.high - memory.available
    if line.high <= 2 * layer or line.high < excess:
        return
    yield Hit(
        f"{size(line.high)} of gathered parameters stand on the GPU, {line.high / layer:.1f} layers, and "
        "the GPU lacks "
        f"{size(excess)}",
        key="zero_optimization.stage3_max_live_parameters",
        field="prefetch_depth",
        fix="stage3_max_live_parameters and stage3_prefetch_bucket_size of one or two layers, "
        f"each {case.workload.model.largest_layer_params:,} elements",
        number=Number(line.high, "B", line.step),
    )


def decoding(case: Case) -> Iterator[Hit]:
    """Token by token, weights are streamed for almost no arithmetic."""
    if case.plan is None or not case.off_gpu(["params"]):
        return
    generates = bool(case.values and (case.values.get("hybrid_engine") or {}).get("enabled"))
    tokens = _tokens(case)
    if generates or tokens <= FEW_TOKENS:
        what = (
            "the hybrid engine generates token by token" if generates else f"a micro-step has {tokens} tokens"
        )
        yield Hit(
            f"{what}, with parameters off the GPU: about 1 FLOP for each byte that is streamed, where "
            "hiding needs "
            "thousands",
            key="hybrid_engine.enabled" if generates else "train_micro_batch_size_per_gpu",
            field="micro_batch_size",
            fix="generate with weights that stay on the GPU (an engine of its own), many sequences at once",
            number=Number(float(tokens), "token"),
        )


STREAMING = (
    Rule(
        "ZP201",
        "The margin over a tier has collapsed",
        "warning",
        margin_collapse,
        "Parameters are streamed from a tier, and tokens per rank x ranks are too few for compute to hide "
        "that.",
        "The margin is dp x 2T against R/BW: half the micro-batch and half the ranks cost exactly the same. "
        "Below 1 "
        "the GPU waits for the link in every layer.",
        "one sequence of 512 tokens on two ranks with parameters on NVMe",
        "A larger micro-batch, more ranks, or parameters in a faster tier.",
    ),
    Rule(
        "ZP202",
        "The margin over a tier is thin",
        "note",
        margin_close,
        "Parameters are hidden now, and would not be at half the micro-batch or half the ranks.",
        "Small fine-tuning runs of a config that was made for a cluster stop working quietly.",
        "margin 1.4 on 16 ranks: 0.7 on 8",
        "Keep tokens per micro-step x ranks.",
    ),
    Rule(
        "ZP203",
        "Prefetch is too shallow",
        "warning",
        shallow_prefetch,
        "Stage 3 gathers its parameters when a layer needs them and not ahead (prefetch bucket 0).",
        "Fetches stand in front of compute instead of beside it, however fast they are.",
        '"stage3_prefetch_bucket_size": 0 with parameters on GPU or CPU',
        "A prefetch bucket of one layer. (With parameters on NVMe it has to be 0: ZP315.)",
    ),
    Rule(
        "ZP204",
        "Prefetch is too deep",
        "warning",
        deep_prefetch,
        "More than two layers' parameters are gathered at once, and the GPU lacks less than they take.",
        "Buffers eat the memory that activations need; a second layer ahead hides no more than the first.",
        '"stage3_max_live_parameters": 1e9 on a 24 GB card',
        "max_live_parameters and prefetch bucket of one or two layers.",
    ),
    Rule(
        "ZP209",
        "A decoding workload",
        "warning",
        decoding,
        "Parameters are off the GPU, and the hybrid engine generates or a micro-step has 16 tokens or fewer.",
        "Decoding does about 2P FLOPs for 2P bytes of weights: four orders short of what flash needs.",
        '"hybrid_engine": {"enabled": true} with "offload_param"',
        "Generate with an inference engine whose weights stay on the GPU.",
    ),
    Rule(
        "ZP216",
        "Accumulation does not hide streaming",
        "note",
        accumulation,
        "The margin over a tier is below 1 and gradients are accumulated.",
        "Parameters are fetched again in every micro-step, so more of them change nothing.",
        "micro-batch 1 with accumulation 64 and parameters on NVMe",
        "A larger micro-batch.",
    ),
    Rule(
        "ZP219",
        "Reads from NVMe are not hidden",
        "warning",
        unhidden_reads,
        "Parameters are on NVMe and reading them is waited for over 30 % of the step.",
        "Prefetch has to be off there (ZP315), so a margin over the tier hides nothing: reads add up with "
        "compute.",
        "a 70B model with one sequence of 2,048 tokens in each micro-step",
        "Parameters on the CPU; larger micro-batches.",
    ),
)
