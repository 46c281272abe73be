"""ZP111 and on: single lines of the ledger that take much, and when they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ziplan.check.case import Case
from ziplan.check.finding import Hit, Number, Rule
from ziplan.check.rules.capacity import size
from ziplan.runtimes.runtime import Line

LARGE_SHARE = 0.10
"""Share of a tier from which on one line of it is worth a word."""


OF_TOKENS = ("micro_batch_size", "sequence_length")
"""In a line's knob: it grows with the tokens of a micro-step."""


def _of_tier(case: Case, tier: str | None, line: Line | None) -> float:
    """A line's share of its tier where that is large, else 0."""
    have = case.available(tier)
    share = line.high / have if line is not None and have else 0.0
    return share if share >= LARGE_SHARE else 0.0


def load_copies(case: Case) -> Iterator[Hit]:
    """Every rank reads the whole model into memory, and that is the most that the host ever holds."""
    line = case.line("model on every rank", case.host)
    if line is None or case.host is None or case.estimate is None or case.estimate.plan.dp_degree < 2:
        return
    phases = case.estimate.memory[case.host].phases
    running = max(high for phase, (_, high) in phases.items() if phase != "load")
    if phases["load"][1] <= running:
        return
    yield Hit(
        f"loading needs up to {size(phases['load'][1])} of {case.host}, training up to {size(running)}: "
        "every rank "
        f"of a node loads its own copy of the model, {size(line.high)} together",
        key="zero_optimization.stage",
        field="zero_stage",
        fix="make the model under zero.Init (stage 3), or load on rank 0 alone with low_cpu_mem_usage",
        number=Number(line.high, "B", line.step),
    )


def pinned_rounding(case: Case) -> Iterator[Hit]:
    """PyTorch rounds pinned blocks up to powers of two."""
    pinned = [line for line in case.lines(case.host) if line.pinned]
    more, have = sum(line.high - line.low for line in pinned), case.available(case.host)
    if not more or more < 0.01 * have:
        return
    worst = max(pinned, key=lambda line: line.high - line.low)
    yield Hit(
        f"pinned blocks rounded up to powers of two take up to {size(more)} more of {case.host} than they "
        "hold, "
        f"most of it for {worst.name}",
        key="zero_optimization.offload_optimizer.pin_memory",
        field="placement.optimizer",
        fix="export PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb:1 before the run",
        number=Number(more, "B", worst.step),
    )


def _shared(name: str, words: str, key: str, field: str, fix: str) -> Callable[[Case], Iterator[Hit]]:
    """A rule's function: one line of the host's ledger is a large share of it."""

    def find(case: Case) -> Iterator[Hit]:
        line = case.line(name, case.host)
        share = _of_tier(case, case.host, line)
        if line is not None and share:
            message = f"{words}: {size(line.high)} of {case.host} on each node, {share:.0%} of it"
            yield Hit(message, key, field, fix, Number(line.high, "B", line.step))

    return find


def logits(case: Case) -> Iterator[Hit]:
    """Logits of a large vocabulary are the largest thing in forward."""
    line = case.line("logits and loss", case.gpu)
    if line is None or not _of_tier(case, case.gpu, line):
        return
    others = [each for each in case.lines(case.gpu) if "forward" in each.phases]
    if others[0].name != line.name:
        return
    yield Hit(
        f"logits and loss are the largest line of forward: up to {size(line.high)} for a vocabulary of "
        f"{case.workload.model.vocab_size:,}",
        key="train_micro_batch_size_per_gpu",
        field="micro_batch_size",
        fix="a smaller micro-batch with more accumulation steps, or a loss that takes the logits in chunks",
        number=Number(line.high, "B", line.step),
    )


def longest_sample(case: Case) -> Iterator[Hit]:
    """A sample of twice the planned length runs out, and nobody said that there is none."""
    estimate, training = case.estimate, case.workload.training
    stated = getattr(training, "longest_sequence", None) is not None or getattr(training, "packing", False)
    if estimate is None or stated or case.gpu not in estimate.memory:
        return
    memory = estimate.memory[case.gpu]
    if memory.low > memory.available:
        return
    for phase in ("forward", "backward"):
        lines = [line for line in case.lines(case.gpu) if phase in line.phases]
        growing = sum(line.low for line in lines if any(word in line.knob for word in OF_TOKENS))
        left = memory.available - memory.phases[phase][0]
        if growing > left:
            yield Hit(
                f"a sample of twice {training.sequence_length:,} tokens would need at least {size(growing)} "
                f"more of {case.gpu} in {phase}, at most {size(left)} are left: plan for the longest sample, "
                "not the usual one",
                key="train_micro_batch_size_per_gpu",
                field="micro_batch_size",
                fix="cut or pack samples to the planned length, or plan with the longest one",
                number=Number(growing, "B"),
            )
            return


def save_gather(case: Case) -> Iterator[Hit]:
    """The whole model is gathered on rank 0 when it is saved."""
    if case.settings is None or case.settings.stage < 3:
        return
    line = case.line("weights to be saved", case.host)
    if line is None or not case.settings.gather_16bit_weights_on_model_save:
        return
    yield Hit(
        f"saving gathers the whole model on rank 0: {size(line.high)} of {case.host}, and every rank waits",
        key="zero_optimization.stage3_gather_16bit_weights_on_model_save",
        field="zero_stage",
        fix="save shards (save_checkpoint) and put them together afterwards with zero_to_fp32.py",
        number=Number(line.high, "B", line.step),
    )


def lazy_moments(case: Case) -> Iterator[Hit]:
    """fp16 with a dynamic scale skips its first steps: what they take says nothing."""
    fp16 = case.values["fp16"] if case.values else {}
    if case.workload.precision != "fp16" or not fp16.get("enabled") or fp16.get("loss_scale") != 0:
        return
    power = fp16["initial_scale_power"]
    yield Hit(
        f"fp16 starts at a loss scale of 2**{power} and skips the optimizer in steps that overflow: up to "
        f"{power + 1} first steps are too fast, and with optimizers that make their state late too small",
        key="fp16.initial_scale_power",
        field="zero_stage",
        fix="judge memory and speed after the first step that was not skipped, or train in bf16",
        number=Number(float(power + 1)),
    )


def whole_before_divided(case: Case) -> Iterator[Hit]:
    """Nobody says that the model is made under zero.Init, and whole it has no room."""
    if not case.foreign or case.estimate is None or case.whole is None:
        return
    for tier, memory in case.whole.memory.items():
        first = ("load", "init")
        need = max(memory.phases[phase][0] for phase in first)
        planned = max(case.estimate.memory[tier].phases[phase][0] for phase in first)
        if planned <= memory.available < need:
            yield Hit(
                f"whether the model is made under zero.Init is the script's to say: taken as yes; without it "
                f"{tier} needs {size(need)} before stage 3 divides anything, and has "
                f"{size(memory.available)}",
                key="zero_optimization.stage",
                field="zero_stage",
                fix="make it under deepspeed.zero.Init or HfDeepSpeedConfig; say training.loading.zero_init",
                number=Number(need, "B"),
            )
            return


HELD = (
    Rule(
        "ZP111",
        "Every rank loads the whole model",
        "warning",
        load_copies,
        "More host memory is needed to load the model than to train it, because each rank of a node has a "
        "copy.",
        "A job that runs on one GPU dies with eight: loading multiplies by the ranks, training does not.",
        "a 13B model in fp32 is 52 GB; eight ranks read 416 GB before stage 2 divides anything",
        "Stage 3 with zero.Init (`from_pretrained` under HfDeepSpeedConfig), 16-bit weights, or rank 0 "
        "alone.",
    ),
    Rule(
        "ZP112",
        "Pinned memory is rounded up",
        "warning",
        pinned_rounding,
        "PyTorch's pinned allocator makes each block a power of two, and that costs more than 1 % of the "
        "host.",
        "A buffer of 70 GB takes 128 GB, and pinned pages can neither be swapped out nor given back.",
        "a gradient buffer of 2 bytes per parameter, one block of a rank: 17.6 GB become 32 GiB",
        "PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb:1, or DS_PIN_MEMORY_BACKEND=native.",
    ),
    Rule(
        "ZP113",
        "The write-back buffer is large",
        "warning",
        _shared(
            "parameter write-back buffer",
            "updated parameters go to NVMe through a buffer as large as the largest sub-group of all ranks "
            "together",
            "zero_optimization.sub_group_size",
            "sub_group_params",
            "a smaller sub_group_size: the buffer is 2 x ranks x sub-group bytes on every rank",
        ),
        "With parameters on NVMe, every rank locks a buffer for the unpartitioned tensors of its largest "
        "sub-group.",
        "It grows with the ranks: 64 ranks with sub-groups of 1e9 elements lock 128 GB each.",
        '"sub_group_size": 1e9 with "offload_param": {"device": "nvme"}',
        "sub_group_size of 1e7 to 1e8.",
    ),
    Rule(
        "ZP114",
        "The optimizer's swap buffers are large",
        "warning",
        _shared(
            "optimizer swap buffers",
            "optimizer state is swapped through buffers as large as the largest sub-group",
            "zero_optimization.sub_group_size",
            "sub_group_params",
            "a smaller sub_group_size: there is no other key for the size of these buffers",
        ),
        "buffer_count buffers of the largest sub-group in fp32, locked on every rank, take over 10 % of the "
        "host.",
        "They are the floor under host memory that remains when everything else is on NVMe.",
        '"sub_group_size": 1e9 with pipelining: 12 buffers of up to 4 GB on every rank',
        "sub_group_size of 1e8; fewer buffers without pipeline_read and pipeline_write.",
    ),
    Rule(
        "ZP115",
        "Logits dominate",
        "warning",
        logits,
        "Logits and their loss are the largest line of forward, and over 10 % of the GPU.",
        "No offload moves them: they grow with tokens and vocabulary alone.",
        "16,384 tokens of a vocabulary of 128,256 in bf16 with an fp32 copy: 12 GB and more",
        "Smaller micro-batches with more accumulation, or a chunked or fused cross-entropy.",
    ),
    Rule(
        "ZP116",
        "The longest sample is not planned for",
        "note",
        longest_sample,
        "Memory is planned for `sequence_length`; a sample of twice that would run out, and no key says "
        "that there "
        "is none.",
        "Such runs train for hundreds of steps and die in the one that has the longest sample.",
        "samples of 2,048 tokens on average, and one of 9,000",
        "Pack or cut samples, or plan with the longest one.",
    ),
    Rule(
        "ZP117",
        "Saving gathers the model on one rank",
        "note",
        save_gather,
        "stage3_gather_16bit_weights_on_model_save is on.",
        "Rank 0 holds 2 bytes per parameter of host memory while it saves, and the others wait for it.",
        '"stage3_gather_16bit_weights_on_model_save": true for a 70B model: 141 GB on rank 0',
        "Save shards, and convert them when training is over.",
    ),
    Rule(
        "ZP118",
        "The first fp16 steps are not like the others",
        "note",
        lazy_moments,
        "fp16 with a dynamic loss scale.",
        "While the scale falls, steps are skipped: they are faster, and moments that are made at the first "
        "real step "
        "are not there yet. A memory test of ten steps proves nothing.",
        '"fp16": {"enabled": true, "initial_scale_power": 16}',
        "Look at a later step; bf16 has no scale.",
    ),
    Rule(
        "ZP119",
        "Only zero.Init makes room for the model",
        "warning",
        whole_before_divided,
        "Stage 3 without a trainer, and the whole model is more than a GPU or its host takes as it is made.",
        "Stage 3 divides what is there already: without zero.Init every rank first makes the whole model in "
        "DRAM and moves it to its GPU. Offload changes nothing about that.",
        "a 13B model in stage 3, everything offloaded, on GPUs of 22 GB",
        "Make the model under deepspeed.zero.Init, or with an HfDeepSpeedConfig alive for from_pretrained.",
    ),
)
