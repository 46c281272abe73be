"""ZP31x and ZP32x: combinations that DeepSpeed 0.19.8 accepts and dies of, some in the second step only."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ziplan.check.case import Case
from ziplan.check.finding import Hit, Number, Rule

ZERO = "zero_optimization"
SECTOR = 512
"""Bytes that direct I/O is a multiple of (`aio`'s C++ asserts it)."""

STATES_OF_ADAM = 4
"""Tensors of a sub-group that are swapped together: master weight, two moments, gradient."""


def _swaps_params(case: Case) -> bool:
    settings = case.settings
    return settings is not None and settings.stage == 3 and settings.offload_param.device == "nvme"


def _swaps_optimizer(case: Case) -> bool:
    settings = case.settings
    return settings is not None and settings.stage == 3 and settings.offload_optimizer.device == "nvme"


def _reads_params(case: Case) -> bool:
    """Whether any parameter is on NVMe while it trains: `max_in_cpu` and small shards may keep all in "
    "DRAM."""
    facts = case.facts
    there = facts is not None and facts.shards.swappable_params > 0
    return _swaps_params(case) and there and case.share("params", case.nvme) > 0


def no_path(section: str) -> Callable[[Case], Iterator[Hit]]:
    """A rule's function: a section swaps to NVMe and does not say where."""

    def find(case: Case) -> Iterator[Hit]:
        swaps = _swaps_params(case) if section == "offload_param" else _swaps_optimizer(case)
        if not swaps or case.settings is None:
            return
        path = getattr(case.settings, section).nvme_path
        # accelerate writes the word where it has no path, and DeepSpeed makes a folder of that name.
        if not path or (path == "none" and case.trainer != "none"):
            where = ': the trainer makes it one called "none", where the run is started' if path else ""
            yield Hit(
                f"{section} is on NVMe without a folder for the swap files{where}",
                key=f"{ZERO}.{section}.nvme_path",
                field="placement",
                fix='"nvme_path": "/local_nvme", a folder on the drives of each node',
            )

    return find


def shard_larger_than_buffer(case: Case) -> Iterator[Hit]:
    """A rank's largest shard does not fit a swap buffer."""
    if not _swaps_params(case) or case.facts is None or case.settings is None:
        return
    largest, buffer = case.facts.shards.largest, case.settings.offload_param.buffer_size
    if largest > buffer:
        yield Hit(
            f"the largest shard of a rank has {largest:,.0f} elements, a buffer {buffer:,}: DeepSpeed stops "
            "with "
            "`More elements than buffer size` when the model is made",
            key=f"{ZERO}.offload_param.buffer_size",
            field="param_buffer_count",
            fix=f'"buffer_size": {largest:.0f} or more (elements, not bytes)',
            number=Number(largest, "param"),
        )


def few_param_buffers(case: Case) -> Iterator[Hit]:
    """More parameter tensors are live at once than there are swap buffers."""
    if not _reads_params(case) or case.settings is None:
        return
    live, there = case.live_tensors, case.settings.offload_param.buffer_count
    if live > there or case.stuck:
        yield Hit(
            f"up to {live:,.0f} parameter tensors are in use or on their way at once, and there are {there} "
            "buffers: DeepSpeed stops with `Not enough buffers` in the second iteration",
            key=f"{ZERO}.offload_param.buffer_count",
            field="param_buffer_count",
            fix=f'"buffer_count": {live:.0f}, or "stage3_max_reuse_distance": 0 and so fewer live tensors',
            number=Number(live),
        )


def nvme_prefetch(case: Case) -> Iterator[Hit]:
    """Reading ahead from NVMe asks twice for the buffer of one parameter."""
    if not _reads_params(case) or case.settings is None or not case.settings.prefetch_bucket_size:
        return
    if case.settings.allgather_sequential:
        return
    yield Hit(
        f"stage3_prefetch_bucket_size is {case.settings.prefetch_bucket_size:,} with parameters on NVMe: "
        "DeepSpeed "
        "0.19.8 stops with `already assigned swap buffer` in the second iteration",
        key=f"{ZERO}.stage3_prefetch_bucket_size",
        field="prefetch_depth",
        fix='"stage3_prefetch_bucket_size": 0 (reads are then not ahead of use)',
        number=Number(float(case.settings.prefetch_bucket_size), "param"),
    )


def sequential_gather(case: Case) -> Iterator[Hit]:
    """A sequential gather turns prefetching on, which NVMe does not survive where layers are recomputed."""
    if not _reads_params(case) or case.settings is None or not case.settings.allgather_sequential:
        return
    if case.plan is None or (not case.plan.activation_checkpointing and case.other_plan is None):
        return
    yield Hit(
        "stage3_allgather_sequential sets prefetching to one element, and with parameters on NVMe and "
        "layers that "
        "are recomputed that stops with `already assigned swap buffer`",
        key=f"{ZERO}.stage3_allgather_sequential",
        field="prefetch_depth",
        fix='"stage3_allgather_sequential": false and "stage3_prefetch_bucket_size": 0',
    )


def _needed_buffers(case: Case) -> int:
    """`offload_optimizer.buffer_count` that the swapper asks for: a set for each direction that is "
    "pipelined."""
    assert case.settings is not None
    offload = case.settings.offload_optimizer
    return STATES_OF_ADAM * (1 + offload.pipeline_read + offload.pipeline_write)


def few_optimizer_buffers(case: Case) -> Iterator[Hit]:
    """Fewer swap buffers than a pipelined step holds."""
    facts = case.facts
    if not _swaps_optimizer(case) or facts is None or case.settings is None:
        return
    offload, needed = case.settings.offload_optimizer, _needed_buffers(case)
    if facts.sub_groups <= 1 or not facts.swappable or offload.buffer_count >= needed:
        return
    yield Hit(
        f"buffer_count is {offload.buffer_count}, the step of {facts.sub_groups:,.0f} sub-groups holds "
        f"{needed}: "
        "DeepSpeed dies in the first or the second optimizer step",
        key=f"{ZERO}.offload_optimizer.buffer_count",
        field="optimizer_buffer_count",
        fix=f'"buffer_count": {needed} (4, 8 with one direction pipelined, 12 with both)',
        number=Number(float(needed)),
    )


def bf16_master(case: Case) -> Iterator[Hit]:
    """Master weights in bf16 do not go through the optimizer's swapper."""
    settings = case.settings
    if _swaps_optimizer(case) and settings is not None and settings.types.master == "bf16":
        yield Hit(
            "master weights in bf16 with the optimizer on NVMe: the swapper has fp32 buffers, and asserts "
            "in the first "
            "step",
            key="bf16.bf16_master_weights_and_grads",
            field="placement.optimizer",
            fix="fp32 master weights, or the optimizer on the CPU",
        )


def hpz_on_nvme(case: Case) -> Iterator[Hit]:
    """A secondary partition has no place on NVMe."""
    settings = case.settings
    if _swaps_params(case) and settings is not None and settings.zero_hpz_partition_size > 1:
        yield Hit(
            f"zero_hpz_partition_size is {settings.zero_hpz_partition_size} with parameters on NVMe: the "
            "second shard "
            "is asked for on a device called nvme, and the engine is not made",
            key=f"{ZERO}.zero_hpz_partition_size",
            field="placement.params",
            fix="leave hpZ out, or keep parameters on the GPU or the CPU",
        )


def fast_init(case: Case) -> Iterator[Hit]:
    """Optimizer state is initialized through parameter buffers that are too small."""
    facts, settings = case.facts, case.settings
    if not _swaps_optimizer(case) or facts is None or settings is None:
        return
    buffer = settings.offload_param.buffer_size
    if settings.offload_optimizer.fast_init and _swaps_params(case) and buffer < facts.sub_group:
        yield Hit(
            f"fast_init goes through parameter buffers of {buffer:,} elements, and the largest sub-group has "
            f"{facts.sub_group:,.0f}",
            key=f"{ZERO}.offload_optimizer.fast_init",
            field="sub_group_params",
            fix='"fast_init": false, or a sub_group_size below buffer_size',
            number=Number(facts.sub_group, "param"),
        )


def block_size(case: Case) -> Iterator[Hit]:
    """Direct I/O in requests that are no multiple of a sector."""
    if (_swaps_params(case) or _swaps_optimizer(case)) and case.settings is not None:
        size = case.settings.aio.block_size
        if size % SECTOR:
            yield Hit(
                f"aio.block_size is {size} bytes, no multiple of {SECTOR}: the process is aborted at its "
                "first read",
                key="aio.block_size",
                field="placement",
                fix='"block_size": 1048576',
                number=Number(float(size), "B"),
            )


def super_offload(case: Case) -> Iterator[Hit]:
    """super_offload where it cannot work."""
    settings = case.settings
    if settings is None or not settings.offload_optimizer.super_offload or not settings.stage:
        return
    offload = settings.offload_optimizer
    if offload.device == "nvme" or settings.stage < 3:
        where = "on NVMe" if offload.device == "nvme" else f"in stage {settings.stage}"
        yield Hit(
            f"super_offload with the optimizer {where}: it is made for stage 3 and the CPU, and nothing "
            "refuses it",
            key=f"{ZERO}.offload_optimizer.super_offload",
            field="placement.optimizer",
            fix='stage 3 with "device": "cpu", or no super_offload',
        )


FATAL = (
    Rule(
        "ZP311",
        "Parameters on NVMe without a folder",
        "error",
        no_path("offload_param"),
        "offload_param says nvme and has no nvme_path, or accelerate's config says nvme.",
        "AssertionError in zero.Init: `nvme_path` cannot be None. accelerate makes a missing path `none`, "
        "and the swap files go to a folder of that name on whichever drive the run is started from.",
        '"offload_param": {"device": "nvme"}',
        "Add nvme_path.",
    ),
    Rule(
        "ZP312",
        "The optimizer on NVMe without a folder",
        "error",
        no_path("offload_optimizer"),
        "offload_optimizer says nvme and has no nvme_path, or accelerate's config says nvme.",
        "TypeError when the engine is made: expected a path, not NoneType. accelerate makes a missing path "
        "`none`, and the swap files go to a folder of that name.",
        '"offload_optimizer": {"device": "nvme"}',
        "Add nvme_path.",
    ),
    Rule(
        "ZP313",
        "A shard is larger than a swap buffer",
        "error",
        shard_larger_than_buffer,
        "offload_param.buffer_size is less than the largest shard of a rank, in elements.",
        "`More elements N than buffer size M` when the model is made. The embedding is the usual one.",
        "buffer_size 1e8 on one rank for a vocabulary of 128,256 x 4,096",
        "buffer_size = elements of the largest tensor / ranks, rounded up.",
    ),
    Rule(
        "ZP314",
        "Too few parameter buffers",
        "error",
        few_param_buffers,
        "A buffer is held by each tensor from its read until it is let go, and more tensors than buffers "
        "are live.",
        "`Not enough buffers 0 for swapping 1` in the second iteration: the first one does not keep what is "
        "used again.",
        '"buffer_count": 5 with the default stage3_max_reuse_distance of 1e9',
        "More buffers, or a reuse distance of at most two layers.",
    ),
    Rule(
        "ZP315",
        "Prefetch from NVMe",
        "error",
        nvme_prefetch,
        "Parameters on NVMe with stage3_prefetch_bucket_size above 0, its default included.",
        "DeepSpeed 0.19.8 reads ahead without leaving out what it has already asked for: `param N already "
        "assigned "
        "swap buffer id M` in the second iteration of nearly every model (open since 2023: "
        "https://github.com/deepspeedai/DeepSpeed/issues/4072).",
        '"offload_param": {"device": "nvme"} and no stage3_prefetch_bucket_size',
        '"stage3_prefetch_bucket_size": 0.',
    ),
    Rule(
        "ZP316",
        "A sequential gather with parameters on NVMe",
        "error",
        sequential_gather,
        "stage3_allgather_sequential with offload_param on NVMe, where layers are recomputed or nobody says "
        "so.",
        "It sets prefetching to one element, and dies as ZP315 does: between recomputation and backward "
        "each tensor "
        "is asked for twice.",
        '"stage3_allgather_sequential": true',
        "Leave it out.",
    ),
    Rule(
        "ZP317",
        "Too few optimizer buffers",
        "error",
        few_optimizer_buffers,
        "buffer_count is below 4 x (1 + pipeline_read + pipeline_write), with more than one sub-group that "
        "swaps.",
        "The swapper runs out of buffers in step(): in the first, or in the second, because moments have no "
        "files "
        "before.",
        '"pipeline_read": true, "pipeline_write": true with the default buffer_count of 4',
        "4, 8 or 12.",
    ),
    Rule(
        "ZP318",
        "bf16 master weights on NVMe",
        "error",
        bf16_master,
        "bf16_master_weights_and_grads with the optimizer on NVMe.",
        "The swap buffers are fp32, the state bf16: a bare AssertionError in the first step.",
        '"bf16": {"enabled": true, "bf16_master_weights_and_grads": true}',
        "The optimizer on the CPU, or fp32 master weights.",
    ),
    Rule(
        "ZP319",
        "hpZ with parameters on NVMe",
        "error",
        hpz_on_nvme,
        "zero_hpz_partition_size above 1 with offload_param on NVMe.",
        "RuntimeError when the engine is made: torch knows no device called nvme.",
        '"zero_hpz_partition_size": 8',
        "One of the two.",
    ),
    Rule(
        "ZP320",
        "fast_init through small buffers",
        "error",
        fast_init,
        "fast_init with sub-groups larger than offload_param.buffer_size.",
        "`numel of fp16 buffers ... too small` when the engine is made.",
        '"fast_init": true with the default sub_group_size of 1e9',
        "No fast_init, or smaller sub-groups.",
    ),
    Rule(
        "ZP321",
        "Requests that are no multiple of a sector",
        "error",
        block_size,
        "aio.block_size is not a multiple of 512 bytes, and something is swapped.",
        "SIGABRT from a C++ assert at the first read or write; no Python traceback.",
        '"aio": {"block_size": 1000}',
        "1048576 (1 MiB).",
    ),
    Rule(
        "ZP322",
        "super_offload where it is not made for",
        "error",
        super_offload,
        "super_offload with NVMe, or below stage 3.",
        "Nothing refuses it when the config is read; it needs stage 3, the CPU and CUDA.",
        '"super_offload": true with "device": "nvme"',
        'Stage 3 and "device": "cpu".',
    ),
)
