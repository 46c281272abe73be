"""ZP33x and ZP34x: settings that work, and do something else than what they are written for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ziplan.check.case import Case
from ziplan.check.finding import Hit, Number, Rule
from ziplan.check.rules.capacity import size
from ziplan.check.rules.fatal import ZERO
from ziplan.runtimes.deepspeed.reading.walk import SECTIONS
from ziplan.units import figure

LARGE_BUCKET = 0.05
"""Share of a GPU from which on its reduce buckets are worth a word."""

SWAP_FLOOR = 1 << 20
"""Bytes below which DeepSpeed swaps nothing, whatever the block size."""

LEAVES: tuple[str, ...] = tuple(SECTIONS[f"{ZERO}.leaf_module"].names["classes"].default)
"""Classes that DeepSpeed fetches whole by itself."""


def param_offload_below_stage3(case: Case) -> Iterator[Hit]:
    """Parameters are only partitioned in stage 3, so only there can they be offloaded."""
    settings = case.settings
    if settings is not None and settings.offload_param.device != "none" and settings.stage < 3:
        device = settings.offload_param.device
        yield Hit(
            f"offload_param to {device} in stage {settings.stage}: all parameters stay on every GPU, and "
            "nothing says so",
            key=f"{ZERO}.offload_param",
            field="placement.params",
            fix='"stage": 3, or leave offload_param out',
        )


def optimizer_on_nvme_below_stage3(case: Case) -> Iterator[Hit]:
    """Stages 1 and 2 have no swapper."""
    settings = case.settings
    if settings is not None and settings.offload_optimizer.device == "nvme" and 1 <= settings.stage < 3:
        yield Hit(
            f"offload_optimizer to nvme in stage {settings.stage}: it goes to the CPU, and no file is "
            "written",
            key=f"{ZERO}.offload_optimizer.device",
            field="placement.optimizer",
            fix='"stage": 3, or say "cpu" and plan the host memory for it',
        )


def max_in_cpu(case: Case) -> Iterator[Hit]:
    """Parameters that are to go to NVMe are kept in DRAM, or DRAM is pinned for nothing."""
    settings, facts = case.settings, case.facts
    if settings is None or facts is None or settings.stage < 3 or settings.offload_param.device != "nvme":
        return
    most = settings.offload_param.max_in_cpu
    if not most:
        return
    owned = facts.shards.owned
    what = (
        f"all {owned:,.0f} elements of a rank stay in pinned DRAM, and nothing is read from the drives"
        if owned <= most
        else f"up to {most:,} elements of each rank stay in pinned DRAM, in whole sub-groups; the rest is "
        "pinned for nothing"
    )
    yield Hit(
        f"max_in_cpu is {most:,}: {what}",
        key=f"{ZERO}.offload_param.max_in_cpu",
        field="placement.params",
        fix='"max_in_cpu": 0 to have parameters on NVMe, or "device": "cpu"',
        number=Number(float(most), "param"),
    )


def ratio_of_one_sub_group(case: Case) -> Iterator[Hit]:
    """A share of sub-groups is offloaded, and there is one."""
    settings, facts = case.settings, case.facts
    if settings is None or facts is None or settings.stage < 3:
        return
    offload = settings.offload_optimizer
    if offload.device == "cpu" and 0 < offload.ratio < 1 and facts.sub_groups <= 1:
        yield Hit(
            f"ratio {figure(offload.ratio)} acts on whole sub-groups, and there is one: all of the optimizer "
            "is on the host",
            key=f"{ZERO}.sub_group_size",
            field="sub_group_params",
            fix=f"a sub_group_size of a tenth of the rank's {facts.trained_shards.owned:,.0f} elements",
            number=Number(facts.sub_groups),
        )


def block_size_raises_floor(case: Case) -> Iterator[Hit]:
    """Large requests keep more shards from swapping."""
    settings = case.settings
    if settings is None or settings.aio.block_size <= SWAP_FLOOR:
        return
    if case.share("params", case.nvme) or case.share("optimizer", case.nvme):
        yield Hit(
            f"aio.block_size of {settings.aio.block_size:,} bytes is also the size below which a shard is "
            "not swapped",
            key="aio.block_size",
            field="dp_degree",
            fix='"block_size": 1048576 with a larger queue_depth',
            number=Number(float(settings.aio.block_size), "B"),
        )


def fp32_gradients(case: Case) -> Iterator[Hit]:
    """Gradients accumulate in fp32 beside 16-bit training."""
    settings, facts = case.settings, case.facts
    if settings is None or facts is None or settings.types.compute == "fp32":
        return
    if settings.types.gradients == "fp32" and case.off_gpu(["optimizer"]):
        more = facts.trained_shards.owned * facts.element
        yield Hit(
            f"gradients accumulate in fp32: {size(more)} more of pinned memory on every rank"
            + (
                ", and with the optimizer on NVMe their shards all stay on the GPU until the step"
                if case.share("optimizer", case.nvme)
                else ""
            ),
            key="data_types.grad_accum_dtype",
            field="placement.grads",
            fix='"grad_accum_dtype": "bf16", unless many micro-steps are added up',
            number=Number(more, "B"),
        )


def large_buckets(case: Case) -> Iterator[Hit]:
    """Reduce buckets that are a good part of a GPU that has little to spare."""
    settings, estimate = case.settings, case.estimate
    line = case.line("reduce buckets", case.gpu)
    if settings is None or estimate is None or line is None:
        return
    memory, share = estimate.memory[case.gpu], line.high / case.available(case.gpu)
    if share >= LARGE_BUCKET and memory.high > memory.available:
        yield Hit(
            f"reduce_bucket_size of {settings.reduce_bucket_size:,} elements takes {size(line.low)} to "
            f"{size(line.high)} "
            f"of every GPU ({share:.0%}), which lacks memory",
            key=f"{ZERO}.reduce_bucket_size",
            field="placement",
            fix="a smaller reduce_bucket_size, down to about the largest tensor of a layer",
            number=Number(line.high, "B", line.step),
        )


def experts_without_leaves(case: Case) -> Iterator[Hit]:
    """Blocks of experts are fetched module by module, and before transformers 5 ranks used different ones."""
    settings, model = case.settings, case.workload.model
    if settings is None or settings.stage < 3 or not any(o.kind == "experts" for o in model.operators):
        return
    leaf: Mapping[str, Any] = (case.values[ZERO]["leaf_module"] or {}) if case.values else {}
    classes = leaf.get("classes", LEAVES)
    own = leaf.get("names") or leaf.get("name_suffixes") or tuple(classes) != LEAVES
    # The class of a model is in a module that is called after its type.
    if own or any(f".{model.family}." in name for name in LEAVES):
        return
    yield Hit(
        f"{model.name} has experts, and no module is fetched whole: with transformers before 5, where each "
        "expert is a module, ranks whose tokens choose different ones wait in different collectives, "
        "and the job hangs; from 5 on, which is planned, all experts of a layer are one module",
        key=f"{ZERO}.leaf_module",
        field="zero_stage",
        fix='"leaf_module": {"classes": ["..."]} with the class of the block of experts, or '
        "deepspeed.utils.set_z3_leaf_modules",
    )


def other_batch(case: Case) -> Iterator[Hit]:
    """The config's batch is not the one that model.yaml states."""
    plan, training = case.plan, case.asked
    if plan is None or training is None:
        return
    sequences = int(plan.micro_batch_size * plan.accumulation_steps * plan.dp_degree)
    for name, stated, here, key, field in (
        (
            "global_batch_size",
            training.global_batch_size,
            sequences,
            "train_batch_size",
            "accumulation_steps",
        ),
        (
            "micro_batch_size",
            training.micro_batch_size,
            int(plan.micro_batch_size),
            "train_micro_batch_size_per_gpu",
            "micro_batch_size",
        ),
        (
            "accumulation_steps",
            training.accumulation_steps,
            int(plan.accumulation_steps),
            "gradient_accumulation_steps",
            "accumulation_steps",
        ),
    ):
        if stated is not None and stated != here:
            yield Hit(
                f"the model's file states {name} {stated:,}, the config comes to {here:,}; the config is "
                "judged",
                key=key,
                field=field,
                fix="make them equal",
                number=Number(float(here)),
            )


def idle_gpus(case: Case) -> Iterator[Hit]:
    """The plan leaves GPUs of the cluster without work."""
    if case.plan is None:
        return
    used = int(case.plan.gpus)
    if used < case.cluster.gpu_count:
        yield Hit(
            f"{used:,} of {case.cluster.gpu_count:,} GPUs are used",
            key="train_batch_size",
            field="dp_degree",
            fix="more ranks, or a smaller cluster in the question",
            number=Number(float(used)),
        )


def no_overlap(case: Case) -> Iterator[Hit]:
    """Gradients are reduced in front of backward instead of beside it."""
    settings = case.settings
    if settings is None or settings.overlap_comm or not settings.stage or case.cluster.gpu_count < 2:
        return
    if case.plan is not None and case.plan.dp_degree > 1:
        yield Hit(
            f"overlap_comm is off in stage {settings.stage}: gradients are reduced while backward waits",
            key=f"{ZERO}.overlap_comm",
            field="zero_stage",
            fix='"overlap_comm": true',
        )


def unsaved_weights(case: Case) -> Iterator[Hit]:
    """A trainer that saves shards only, with a line in its log."""
    settings = case.settings
    if settings is None or settings.stage < 3 or case.trainer == "none":
        return
    if not settings.gather_16bit_weights_on_model_save:
        yield Hit(
            "nobody gathers the weights: save_model writes shards and no model file, and says so in the log "
            "alone",
            key=f"{ZERO}.stage3_gather_16bit_weights_on_model_save",
            field="zero_stage",
            fix="make it true, or put the shards together with zero_to_fp32.py",
        )


SETTINGS = (
    Rule(
        "ZP331",
        "offload_param below stage 3",
        "warning",
        param_offload_below_stage3,
        "offload_param in stage 0, 1 or 2.",
        "It is accepted without a word and does nothing; users conclude that offload is broken.",
        '"stage": 2 with "offload_param": {"device": "cpu"}',
        "Stage 3.",
    ),
    Rule(
        "ZP332",
        "The optimizer on NVMe below stage 3",
        "warning",
        optimizer_on_nvme_below_stage3,
        "offload_optimizer to nvme in stage 1 or 2.",
        "It is quietly CPU offload: host memory runs out that nobody planned for.",
        '"stage": 2 with "offload_optimizer": {"device": "nvme"}',
        "Stage 3, or cpu.",
    ),
    Rule(
        "ZP333",
        "max_in_cpu keeps parameters in DRAM",
        "warning",
        max_in_cpu,
        "offload_param to nvme with max_in_cpu above 0, its default of 1e9 elements for each rank included.",
        "Below that size no parameter goes to NVMe in a step; above it the space is pinned and only whole "
        "sub-groups "
        "use it.",
        '"offload_param": {"device": "nvme"} for a 7B model on 8 ranks: all of it stays in DRAM',
        '"max_in_cpu": 0.',
    ),
    Rule(
        "ZP334",
        "A ratio of one sub-group",
        "warning",
        ratio_of_one_sub_group,
        "offload_optimizer.ratio below 1 and a sub_group_size that leaves one sub-group.",
        "The ratio counts sub-groups: any share of one of them is all of it.",
        '"ratio": 0.5 with "sub_group_size": 1e9',
        "Sub-groups of a tenth of a rank's elements or less.",
    ),
    Rule(
        "ZP335",
        "A large block_size keeps shards from swapping",
        "warning",
        block_size_raises_floor,
        "aio.block_size above 1 MiB with something on NVMe.",
        "Shards below it stay in DRAM, and as fp32 gradients on the GPU.",
        '"aio": {"block_size": 8388608} on 64 ranks: no gradient leaves the GPU',
        "1 MiB, and depth by queue_depth and intra_op_parallelism.",
    ),
    Rule(
        "ZP336",
        "Gradients accumulate in fp32",
        "note",
        fp32_gradients,
        "grad_accum_dtype fp32 with 16-bit training and an offloaded optimizer.",
        "The pinned gradient buffer doubles, and so does what crosses the host link in each micro-step.",
        '"data_types": {"grad_accum_dtype": "fp32"}',
        "bf16, unless the sum of many micro-steps needs more digits.",
    ),
    Rule(
        "ZP337",
        "Large reduce buckets on a full GPU",
        "warning",
        large_buckets,
        "Reduce buckets take 5 % of a GPU or more, and the GPU lacks memory.",
        "The bucket is allocated up front, and a second one of its size while it is reduced.",
        '"reduce_bucket_size": 5e8 (the default) on a 24 GB card: 1 to 2 GB',
        "A bucket of the largest tensor of a layer.",
    ),
    Rule(
        "ZP338",
        "Experts that are not fetched whole",
        "note",
        experts_without_leaves,
        "A model with experts in stage 3, no leaf_module, and a type that DeepSpeed has no entry for.",
        "With transformers before 5 ranks gather the experts that their own tokens chose, in different "
        "orders: the collectives do not match. From 5 on the experts of a layer are one module, which all "
        "ranks gather.",
        "deepseek-v3 under transformers 4 with a stage 3 config that was made for a dense model",
        "leaf_module with the class of the block, where transformers is older than 5.",
    ),
    Rule(
        "ZP341",
        "Another batch than the model's file states",
        "warning",
        other_batch,
        "training.global_batch_size, micro_batch_size or accumulation_steps of model.yaml differ from the "
        "config.",
        "One of the two is not what will be trained.",
        '"train_batch_size": 256 beside `global_batch_size: 64`',
        "Make them equal.",
    ),
    Rule(
        "ZP342",
        "GPUs without work",
        "warning",
        idle_gpus,
        "The ranks of the plan are fewer than the GPUs of the cluster.",
        "The others are paid for and idle.",
        "a plan for 8 ranks on 16 GPUs",
        "Plan for all of them.",
    ),
    Rule(
        "ZP343",
        "Reduction does not overlap",
        "note",
        no_overlap,
        "overlap_comm is off with more than one rank; it is off by default below stage 3.",
        "Backward waits for each bucket.",
        '"stage": 2 without overlap_comm',
        '"overlap_comm": true, which takes a second bucket.',
    ),
    Rule(
        "ZP344",
        "Nobody gathers the weights that are saved",
        "note",
        unsaved_weights,
        "Stage 3 under a trainer without stage3_gather_16bit_weights_on_model_save, which is off by default.",
        "`Trainer.save_model` catches what `Accelerator.get_state_dict` raises, saves DeepSpeed's shards and "
        "removes the empty model file; a script of one's own gets a ValueError when training is over.",
        '"stage": 3 under the Hugging Face Trainer, nothing else said',
        "Gather, which takes 2 bytes per parameter on rank 0 (ZP117), or convert with zero_to_fp32.py.",
    ),
)
