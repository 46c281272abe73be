"""ZP205 and on: what the GPU waits for, and by how much."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ziplan.check.case import Case
from ziplan.check.finding import Hit, Number, Rule
from ziplan.hardware.processors import thread_count
from ziplan.runtimes.terms import OTHERS_GRADIENTS
from ziplan.units import counted, show_duration

NOTED_TERM = 0.02
"""Share of a step below which what one key would save is not worth a word."""

LARGE_TERM = 0.30
"""Share of a step from which on one part of it is worth a word."""


def seconds(time: float) -> str:
    """A time for people."""
    return show_duration(time, 3)


def stepped(case: Case) -> float:
    """The step time where it is known and the plan may run, else 0."""
    estimate = case.estimate
    return estimate.step_time if estimate is not None and math.isfinite(estimate.step_time) else 0.0


def optimizer_pass(case: Case) -> Iterator[Hit]:
    """The optimizer's pass is a large part of the step, and overlaps with nothing."""
    plan, whole = case.plan, stepped(case)
    if plan is None or not whole or not case.off_gpu(["optimizer"]):
        return
    optimizer = case.terms_in("optimizer step")
    if optimizer <= LARGE_TERM * whole:
        return
    yield Hit(
        f"the optimizer's pass takes {seconds(optimizer)} of a step of {seconds(whole)} "
        f"({optimizer / whole:.0%}), and the GPU waits for all of it",
        key="gradient_accumulation_steps",
        field="accumulation_steps",
        fix="more accumulation steps: the pass comes once a step" + _or_twin_flow(case),
        number=Number(optimizer, "s"),
    )


def _or_twin_flow(case: Case) -> str:
    """What else helps where DeepSpeed divides the optimizer between GPU and host: stage 3 without NVMe."""
    divides = case.runtime.NAME == "deepspeed" and case.plan is not None and case.plan.zero_stage == 3
    if not divides or case.share("optimizer", case.nvme):
        return ""
    return "; or part of it on the GPU (ratio)"


def unbound_cores(case: Case) -> Iterator[Hit]:
    """The optimizer runs on the CPU, and what starts the run leaves its ranks few threads, or all of them."""
    threads = case.workload.training.optimizer_threads
    if not case.off_gpu(["optimizer"]) or case.plan is None or not case.ranks_per_node:
        return
    started = case.launch.name if case.launch is not None else case.file
    cores, ranks = case.cluster.node.cpu.cores, case.ranks_per_node
    crowded = isinstance(threads, int) and cores is not None and threads * ranks > cores
    if (threads == "deepspeed" or crowded) and ranks > 1:
        said = _crowded(started, ranks, threads if isinstance(threads, int) else None, cores)
        lost = 0.0
    else:
        whole, bound = stepped(case), case.with_cores_divided
        lost = whole - bound.step_time if whole and bound is not None else 0.0
        if not lost > NOTED_TERM * whole:
            return
        each = counted(int(thread_count(threads, cores, ranks) or 1), "thread")
        said = (
            f"{started} leaves each of {counted(ranks, 'rank')} of a node {each} for CPU Adam: a step takes "
            f"{seconds(whole)}, {seconds(whole - lost)} where cores are divided among the ranks"
        )
    by_hand = f"OMP_NUM_THREADS={max(1, cores // ranks)}" if cores else "OMP_NUM_THREADS=cores / ranks"
    binding = "deepspeed --bind_cores_to_rank, or " if case.runtime.NAME == "deepspeed" else ""
    yield Hit(
        said,
        key="zero_optimization.offload_optimizer",
        field="placement.optimizer",
        fix=f"{binding}export {by_hand}" + (SLEEP if crowded else ""),
        number=Number(lost, "s") if lost else None,
    )


SLEEP = "; where there must be more threads than cores, OMP_WAIT_POLICY=passive"
"""What lets them sleep while they wait."""


def _crowded(started: str, ranks: int, threads: int | None, cores: int | None) -> str:
    """What is said of ranks with more threads than there are cores.

    Measured with torch 2.13 and libgomp on two cores of an EPYC 7003, beside other work: `mul_` of a million
    elements by four processes of two threads took 11 to 78 ms each, and 0.3 with OMP_WAIT_POLICY=passive;
    DeepSpeedCPUAdam of 3e7 elements with the passes beside it 11 to 16 ns a parameter, and 8.
    """
    if threads is None:
        return (
            f"{started} neither binds ranks to cores nor sets OMP_NUM_THREADS: under deepspeed each of "
            f"{ranks} ranks has threads on all cores, which get in each other's way (binding took 23 % off a "
            "step of two ranks, https://github.com/deepspeedai/DeepSpeed/pull/7474)"
        )
    return (
        f"{started} gives each of {ranks} ranks {counted(threads, 'thread')}, {ranks * threads} on a node of "
        f"{cores} cores: threads spin while they wait for others, which have no core then; a loop over a "
        "tensor took tens of milliseconds with four times as many threads as cores, 0.3 ms where they sleep"
    )


def unpipelined(case: Case) -> Iterator[Hit]:
    """The swap of the optimizer is a large part of the step, and is not pipelined."""
    settings, whole = case.settings, stepped(case)
    if settings is None or not whole or not case.share("optimizer", case.nvme):
        return
    offload = settings.offload_optimizer
    swapping = case.terms(f"{case.nvme}.swap_read", f"{case.nvme}.swap_write")
    if (offload.pipeline_read and offload.pipeline_write) or swapping <= LARGE_TERM * whole:
        return
    if case.facts is None or case.facts.sub_groups <= 1:
        return
    yield Hit(
        f"swapping takes {seconds(swapping)} of a step of {seconds(whole)} and is not pipelined: reads, "
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


def owners_in_turn(case: Case) -> Iterator[Hit]:
    """Below stage 3 one rank copies its gradients to the host at a time, and the others wait for it."""
    settings, whole = case.settings, stepped(case)
    if settings is None or not whole or settings.round_robin_gradients:
        return
    waited = sum(time for term, time in case.exposed() if term == OTHERS_GRADIENTS)
    if waited <= NOTED_TERM * whole:
        return
    yield Hit(
        f"one rank at a time copies its gradients to the host: {seconds(waited)} of {seconds(whole)} a step "
        f"({waited / whole:.0%}) are spent on copies of others",
        key="zero_optimization.round_robin_gradients",
        field="zero_stage",
        fix='"round_robin_gradients": true',
        number=Number(waited, "s"),
    )


def network_bound(case: Case) -> Iterator[Hit]:
    """Gathers and reductions between nodes are a large part of the step."""
    whole = stepped(case)
    waiting = case.terms("gather")
    if not whole or case.nodes < 2 or waiting <= LARGE_TERM * whole:
        return
    yield Hit(
        f"gathering and reducing between {case.nodes} nodes is waited for {seconds(waiting)} of a "
        "step of "
        f"{seconds(whole)}: stage 3 sends every parameter over the network in each sweep",
        key="zero_optimization.stage",
        field="zero_stage",
        fix="a larger micro-batch; stage 1 or 2 where parameters fit; hpZ over the ranks of a node",
        number=Number(waiting, "s"),
    )


def gradient_traffic(case: Case) -> Iterator[Hit]:
    """Gradients cross the host link twice in each micro-step, and that is a large part of the step."""
    whole, host, estimate = stepped(case), case.host, case.estimate
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
        f"gradients on their way between GPU and {host} are waited for {seconds(waiting)} of a step of "
        f"{seconds(whole)}: they go down in every micro-step, and come back to be added",
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
    told = ", ".join(f"{cause} {seconds(time)}" for cause, time in causes)
    yield Hit(
        f"the GPU waits for {share:.0%} of a step of {seconds(simulation.makespan)}, for: {told}",
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
        # Gradients of an optimizer on NVMe wait in host memory; parameters there have pinned buffers.
        copied = offload.device == "cpu" or (name, offload.device) == ("offload_optimizer", "nvme")
        if copied and not offload.pin_memory:
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


WAITS = (
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
        "The optimizer is on the host, and what starts the run leaves ranks so few threads that a step takes "
        "over 2 % longer than with the node's cores divided among them; or `deepspeed` starts several ranks "
        "of a node unbound, or ranks have more threads than the node has cores.",
        "torchrun sets one thread for each rank where OMP_NUM_THREADS is unset, `accelerate launch` does so "
        "in any case, and one core reads 11 to 22 GB/s of a host memory that carries hundreds.",
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
        "ZP217",
        "Copies from pageable memory",
        "warning",
        pageable,
        "pin_memory is false in a section that offloads to the CPU, or the optimizer to NVMe.",
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
        "ZP220",
        "Ranks copy their gradients in turn",
        "warning",
        owners_in_turn,
        "Stage 1 or 2 with the optimizer on the host and without round_robin_gradients, where the copies of "
        "other ranks are waited for over 2 % of the step.",
        "Each rank owns a stretch of the model, and backward comes to one stretch after the other: one host "
        "link works at a time, and more GPUs do not make it faster.",
        '"stage": 2 with offload_optimizer on 8 GPUs, nothing else said',
        '"round_robin_gradients": true, which deals tensors out to the ranks: all links work. Or stage 3.',
    ),
)
