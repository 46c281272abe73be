"""ZP2xx: time that the GPU waits. The estimate and the played step say how long; these say why."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ziplan.check.case import Case
from ziplan.check.finding import Hit, Number, Rule
from ziplan.check.rules.capacity import size
from ziplan.units import show_duration

LARGE_TERM = 0.30
"""Share of a step from which on one part of it is worth a word."""

CLOSE_MARGIN = 2.0
"""A margin that half the tokens, or half the ranks, would use up."""

FEW_TOKENS = 16
"""Tokens of a micro-step that only decoding has."""


def _seconds(time: float) -> str:
    return show_duration(time, 3)


def _stepped(case: Case) -> float:
    """The step time where it is known and the plan may run, else 0."""
    estimate = case.estimate
    return estimate.step_time if estimate is not None and math.isfinite(estimate.step_time) else 0.0


def _margins(case: Case) -> Iterator[tuple[str, float]]:
    """Tiers that parameters are streamed from, each with its margin after striping."""
    if case.estimate is None:
        return
    for tier in case.off_gpu(["params"]):
        margin = case.estimate.tiers[tier].hiding_margin
        if math.isfinite(margin):
            yield tier, margin


def margin_collapse(case: Case) -> Iterator[Hit]:
    """Streaming parameters from a tier takes longer than computing with them."""
    assert case.plan is not None or case.estimate is None
    for tier, margin in _margins(case):
        if margin >= 1 or case.estimate is None or case.plan is None:
            continue
        test = case.estimate.tiers[tier]
        yield Hit(
            f"parameters on {tier} cannot be hidden: the margin is {margin:.2f} with {_tokens(case):,} "
            "tokens per "
            f"rank and {case.plan.dp_degree:,.0f} ranks, where one link needs {test.required_tokens:,.0f} "
            "tokens",
            key="train_micro_batch_size_per_gpu",
            field="micro_batch_size",
            fix=f"{1 / margin:.1f} times the micro-batch or the ranks (both count the same)",
            number=Number(margin),
        )


def _tokens(case: Case) -> int:
    """Tokens of a rank in one micro-step."""
    assert case.plan is not None
    return int(case.plan.micro_batch_size) * case.workload.training.sequence_length


def unhidden_reads(case: Case) -> Iterator[Hit]:
    """DeepSpeed reads no parameter from NVMe ahead of its use, so each read stands in front of its module."""
    whole, nvme = _stepped(case), case.nvme
    if case.runtime.NAME != "deepspeed" or not whole or not case.share("params", nvme):
        return
    reading = case.terms_in("micro-step", f"{nvme}.swap_read")
    if reading <= LARGE_TERM * whole:
        return
    yield Hit(
        f"reading parameters from {nvme} is waited for {_seconds(reading)} of a step of {_seconds(whole)}: "
        "DeepSpeed "
        "0.19.8 cannot read them ahead of use",
        key="zero_optimization.offload_param.device",
        field="placement.params",
        fix="parameters in host memory, or more tokens in each micro-step",
        number=Number(reading, "s"),
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
    if not off or not fetched or not _stepped(case):
        return
    waiting = case.terms("gather", f"{case.host}.read")
    yield Hit(
        f"nothing is fetched ahead: every layer's parameters are waited for, {_seconds(waiting)} of a step "
        "of "
        f"{_seconds(_stepped(case))}",
        key="zero_optimization.stage3_prefetch_bucket_size",
        field="prefetch_depth",
        fix=f"a prefetch bucket of one layer: {case.workload.model.largest_layer_params:,} elements",
        number=Number(waiting, "s"),
    )


def deep_prefetch(case: Case) -> Iterator[Hit]:
    """Parameters gathered at once are what the GPU lacks memory for."""
    line = case.line("gathered parameters", case.gpu)
    memory = case.estimate.memory[case.gpu] if case.estimate is not None else None
    if line is None or memory is None or memory.high <= memory.available:
        return
    layer = 2.0 * case.workload.model.largest_layer_params
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


def optimizer_pass(case: Case) -> Iterator[Hit]:
    """The optimizer's pass is a large part of the step, and overlaps with nothing."""
    plan, whole = case.plan, _stepped(case)
    if plan is None or not whole or not case.off_gpu(["optimizer"]):
        return
    optimizer = case.terms_in("optimizer step")
    if optimizer <= LARGE_TERM * whole:
        return
    yield Hit(
        f"the optimizer's pass takes {_seconds(optimizer)} of a step of {_seconds(whole)} "
        f"({optimizer / whole:.0%}), and the GPU waits for all of it",
        key="gradient_accumulation_steps",
        field="accumulation_steps",
        fix="more accumulation steps: the pass comes once a step; or part of it on the GPU (ratio)",
        number=Number(optimizer, "s"),
    )


def unbound_cores(case: Case) -> Iterator[Hit]:
    """The optimizer runs on the CPU, and the launch script gives ranks neither cores nor threads."""
    if case.runtime.NAME != "deepspeed" or not case.off_gpu(["optimizer"]):
        return
    if case.launch is not None and not case.launch.binds_cores:
        cores = case.cluster.node.cpu.cores
        ranks = min(case.cluster.node.gpus_per_node, int(case.plan.dp_degree) if case.plan else 1)
        threads = f"OMP_NUM_THREADS={max(1, cores // ranks)}" if cores else "OMP_NUM_THREADS=cores / ranks"
        yield Hit(
            f"{case.launch.name} neither binds ranks to cores nor sets OMP_NUM_THREADS: torchrun then "
            "starts CPU Adam "
            "with one thread",
            key="zero_optimization.offload_optimizer",
            field="placement.optimizer",
            fix=f"deepspeed --bind_cores_to_rank, or export {threads}",
        )


def unpipelined(case: Case) -> Iterator[Hit]:
    """The swap of the optimizer is a large part of the step, and is not pipelined."""
    settings, whole = case.settings, _stepped(case)
    if settings is None or not whole or not case.share("optimizer", case.nvme):
        return
    offload = settings.offload_optimizer
    swapping = case.terms(f"{case.nvme}.swap_read", f"{case.nvme}.swap_write")
    if (offload.pipeline_read and offload.pipeline_write) or swapping <= LARGE_TERM * whole:
        return
    if case.facts is None or case.facts.sub_groups <= 1:
        return
    yield Hit(
        f"swapping takes {_seconds(swapping)} of a step of {_seconds(whole)} and is not pipelined: reads, "
        "updates and "
        "writes of sub-groups wait for each other",
        key="zero_optimization.offload_optimizer.pipeline_read",
        field="optimizer_buffer_count",
        fix="pipeline_read and pipeline_write with buffer_count 12",
        number=Number(swapping, "s"),
    )


def nothing_to_pipeline(case: Case) -> Iterator[Hit]:
    """Pipelining asks for more buffers, and there is one sub-group only."""
    settings, facts = case.settings, case.facts
    if settings is None or facts is None or not case.share("optimizer", case.nvme):
        return
    offload = settings.offload_optimizer
    if (offload.pipeline_read or offload.pipeline_write) and facts.sub_groups <= 1:
        yield Hit(
            f"there is one sub-group of {facts.sub_group:,.0f} elements, so there is nothing to read or "
            "write beside it",
            key="zero_optimization.sub_group_size",
            field="sub_group_params",
            fix="a sub_group_size of a fraction of that, or no pipelining",
            number=Number(facts.sub_groups),
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


def needless_offload(case: Case) -> Iterator[Hit]:
    """The same job fits without what is offloaded, and is faster."""
    answer, whole = case.answer, _stepped(case)
    if answer is None or not whole or not case.off_gpu() or not answer.do_not_offload:
        return
    best = answer.best
    gain = case.estimate.time_per_token / best.time_per_token if case.estimate is not None else 1.0
    if gain < 1.02:
        return
    yield Hit(
        f"nothing needs to leave the GPU: ZeRO stage {best.plan.zero_stage:.0f} with micro-batch "
        f"{best.plan.micro_batch_size:.0f} fits, and a token takes {1 / gain:.0%} of the time",
        key="zero_optimization.offload_optimizer",
        field="placement",
        fix="`ziplan fit` writes that config",
        number=Number(gain),
    )


def needless_nvme(case: Case) -> Iterator[Hit]:
    """NVMe is used, and host memory would do."""
    answer, whole, nvme = case.answer, _stepped(case), case.nvme
    if answer is None or not whole or not nvme or nvme not in case.off_gpu() or answer.do_not_offload:
        return
    best = answer.best
    homes = (best.plan.placement.params, best.plan.placement.optimizer)
    gain = case.estimate.time_per_token / best.time_per_token if case.estimate is not None else 1.0
    if best.verdict != "fits" or any(home.get(nvme, 0.0) for home in homes) or gain < 1.02:
        return
    yield Hit(
        f"NVMe is not needed: host memory holds what does not fit on the GPUs, and a token takes "
        f"{1 / gain:.0%} of "
        "the time",
        key="zero_optimization.offload_optimizer.device",
        field="placement",
        fix='"device": "cpu"; `ziplan fit` writes that config',
        number=Number(gain),
    )


def network_bound(case: Case) -> Iterator[Hit]:
    """Gathers and reductions between nodes are a large part of the step."""
    whole = _stepped(case)
    waiting = case.terms("gather")
    if not whole or case.cluster.nodes < 2 or waiting <= LARGE_TERM * whole:
        return
    yield Hit(
        f"gathering and reducing between {case.cluster.nodes} nodes is waited for {_seconds(waiting)} of a "
        "step of "
        f"{_seconds(whole)}: stage 3 sends every parameter over the network in each sweep",
        key="zero_optimization.stage",
        field="zero_stage",
        fix="a larger micro-batch; stage 1 or 2 where parameters fit; hpZ over the ranks of a node",
        number=Number(waiting, "s"),
    )


def gradient_traffic(case: Case) -> Iterator[Hit]:
    """Gradients cross the host link twice in each micro-step, and that is a large part of the step."""
    whole, host, estimate = _stepped(case), case.host, case.estimate
    if not whole or estimate is None or not case.off_gpu(["optimizer"]):
        return
    waiting = sum(
        time
        for term, time in estimate.terms.items()
        if term.startswith("gradient") and term != "gradient reduce"
    )
    if waiting <= LARGE_TERM * whole:
        return
    yield Hit(
        f"gradients on their way between GPU and {host} are waited for {_seconds(waiting)} of a step of "
        f"{_seconds(whole)}: they go down in every micro-step, and come back to be added",
        key="zero_optimization.offload_optimizer",
        field="placement.grads",
        fix="fewer and larger micro-steps, or the optimizer on the GPU",
        number=Number(waiting, "s"),
    )


def stalled(case: Case) -> Iterator[Hit]:
    """The played step has the GPU waiting for a large part of it."""
    simulation, share = case.simulation, case.stall_fraction
    if simulation is None or not share > LARGE_TERM:
        return
    causes = list(simulation.tally.stalls_by_cause.items())[:3]
    told = ", ".join(f"{cause} {_seconds(time)}" for cause, time in causes)
    yield Hit(
        f"the GPU waits for {share:.0%} of a step of {_seconds(simulation.makespan)}, for: {told}",
        key="zero_optimization",
        field="placement",
        fix="`ziplan simulate` shows which layer waits for what",
        number=Number(simulation.tally.stalled, "s"),
    )


def pageable(case: Case) -> Iterator[Hit]:
    """Copies from memory that is not page-locked."""
    settings = case.settings
    if settings is None:
        return
    for name in ("offload_param", "offload_optimizer"):
        offload = getattr(settings, name)
        if offload.device == "cpu" and not offload.pin_memory:
            yield Hit(
                f"{name} does not pin its memory: copies to the GPU go through a staging buffer and block "
                "the thread",
                key=f"zero_optimization.{name}.pin_memory",
                field="placement",
                fix='"pin_memory": true, where host memory allows it',
            )


def timers(case: Case) -> Iterator[Hit]:
    """Timers that wait for the GPU in every step."""
    values = case.values or {}
    slow = (
        ("wall_clock_breakdown", values.get("wall_clock_breakdown")),
        ("flops_profiler.enabled", (values.get("flops_profiler") or {}).get("enabled")),
        ("memory_breakdown", values.get("memory_breakdown")),
    )
    for key, on in slow:
        if on:
            yield Hit(
                f"{key} is on: the engine waits for the GPU around each part of every step",
                key=key,
                fix="turn it off when it has told what it should",
            )


STALLS = (
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
        "ZP205",
        "The optimizer stands in the GPU's way",
        "warning",
        optimizer_pass,
        "The pass of an offloaded optimizer is over 30 % of the step.",
        "It does half a FLOP for each byte, so no batch hides it, and DeepSpeed overlaps it with neither "
        "backward nor "
        "the next forward.",
        "optimizer on NVMe with one micro-step of 2,048 tokens for each update",
        "More accumulation steps, more drives or DRAM bandwidth, part of the optimizer on the GPU.",
    ),
    Rule(
        "ZP206",
        "CPU Adam has no cores of its own",
        "warning",
        unbound_cores,
        "The launch script neither binds ranks to cores nor sets OMP_NUM_THREADS, with the optimizer on the "
        "host.",
        "torchrun sets one thread for each rank: users saw the step of a 1.35B model take 22 s.",
        "torchrun --nproc_per_node 8 train.py",
        "deepspeed --bind_cores_to_rank, or OMP_NUM_THREADS = cores / ranks.",
    ),
    Rule(
        "ZP207",
        "The optimizer's swap is not pipelined",
        "note",
        unpipelined,
        "Swapping is over 30 % of the step, there is more than one sub-group, and pipeline_read or "
        "pipeline_write is "
        "off.",
        "Read, update and write follow each other; pipelined, they overlap.",
        '"offload_optimizer": {"device": "nvme", "buffer_count": 4}',
        "pipeline_read, pipeline_write, buffer_count 12, and host memory for the buffers.",
    ),
    Rule(
        "ZP208",
        "One sub-group has nothing to pipeline",
        "note",
        nothing_to_pipeline,
        "pipeline_read or pipeline_write with a single sub-group.",
        "There is no other sub-group to read or write meanwhile; the buffers are pinned all the same.",
        '"sub_group_size": 1e9, of which a rank owns 2e8',
        "A smaller sub_group_size.",
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
        "ZP211",
        "Stage 3 is enough",
        "warning",
        needless_offload,
        "The best plan for the same batch keeps everything in GPU memory, and is faster by 2 % or more.",
        "Offload trades time for memory that is not lacking: 17 of 200 public cases had paid for it in vain.",
        "gpt2-xl with optimizer and parameters on the CPU of a DGX A100",
        "Leave the offload sections out.",
    ),
    Rule(
        "ZP212",
        "Host memory is enough",
        "warning",
        needless_nvme,
        "State is on NVMe, and the best plan for the same batch fits without it.",
        "NVMe is an order slower than DRAM, and every step wears it.",
        "a 13B model with the optimizer on NVMe beside 2 TiB of DRAM",
        '"device": "cpu".',
    ),
    Rule(
        "ZP213",
        "The network binds",
        "warning",
        network_bound,
        "Collectives between nodes are waited for over 30 % of the step.",
        "Stage 3 moves the parameters three times in a micro-step over the network, stages 1 and 2 do not.",
        "stage 3 over two nodes with 10 Gbit/s Ethernet",
        "Larger micro-batches; stage 2; hpZ; a faster network.",
    ),
    Rule(
        "ZP214",
        "Gradients on the host link bind",
        "warning",
        gradient_traffic,
        "Gradients between GPU and host are waited for over 30 % of the step.",
        "With the optimizer off the GPU they cross the link down in each micro-step, up again to be added, "
        "and down in "
        "fp32 at the end.",
        "64 micro-steps of one short sequence with offload_optimizer",
        "Fewer, larger micro-steps.",
    ),
    Rule(
        "ZP215",
        "The GPU waits",
        "warning",
        stalled,
        "In the played step the GPU does nothing for over 30 % of the time.",
        "The causes are named: a link, a drive, a buffer that is not free, the optimizer.",
        "parameters on one drive",
        "What the first cause suggests.",
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
        "ZP217",
        "Copies from pageable memory",
        "warning",
        pageable,
        "pin_memory is false in a section that offloads to the CPU.",
        "Copies from pageable memory block the thread that issues them and reach a fraction of the link.",
        '"offload_optimizer": {"device": "cpu", "pin_memory": false}',
        '"pin_memory": true.',
    ),
    Rule(
        "ZP218",
        "Timers wait for the GPU",
        "note",
        timers,
        "wall_clock_breakdown, memory_breakdown or flops_profiler is on.",
        "Each part of a step is waited for so that it can be timed, and prefetch and reduction no longer "
        "overlap.",
        '"wall_clock_breakdown": true',
        "Off, when the question is answered.",
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
