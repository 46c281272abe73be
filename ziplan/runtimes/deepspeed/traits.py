"""How releases of DeepSpeed differ in what they hold and what waits for what.

One table: each trait with the releases that have it, and the source of that. What is not in the table
is taken as the newest release has it. Releases named were read (`pip download`); where a change came
between two of them that were read, the later one is named.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ziplan.runtimes.deepspeed.releases import PAPER_ENGINE, PYTORCH, VERSION, known, parsed


class Window(NamedTuple):
    """The releases that have a trait: from `since` on and before `until` (None: no end), and the source."""

    since: str | None
    until: str | None
    source: str
    paper: bool | None = None
    """Whether the paper's engine has it; None: as the releases of its time, 0.3.13."""


WINDOWS: dict[str, Window] = {
    "collectives_wait": Window(
        None,
        "0.6.0",
        "runtime/zero/partition_parameters.py:_allgather_param and stage3.py:_synchronize_communication of "
        "0.3.13 to 0.5.10 call torch.cuda.synchronize() around every gather, which "
        "https://github.com/deepspeedai/DeepSpeed/pull/1188 finds to make it no asynchronous one; streams of "
        "their own since https://github.com/deepspeedai/DeepSpeed/pull/1453",
        # Sections 5.1.2 and 6.2, figure 6d: communication beside computation.
        paper=False,
    ),
    "network_waits": Window(
        "0.6.0",
        None,
        "stage 3 over several nodes takes as long as its products and its network together. DeepSpeed's "
        "developers measured under 20 TFLOP/s a GPU with 100 Gbit/s, 30 to 40 with 200 to 400 and over 40 "
        "with 800, of 176 billion parameters on 24 DGX-2 (https://github.com/deepspeedai/DeepSpeed/issues/"
        "2928): what is 20 and 40 with 100 and 400 is 30 and 48 with 200 and 800 as a sum, and 40 with both "
        "as the longer of the two. IDEFICS-80B took 49 s on 512 A100, whose products take 18 and its network "
        "11 (https://github.com/stas00/ml-engineering training/model-parallelism). Profiles show gathers and "
        "sums beside which nothing computes (https://github.com/deepspeedai/DeepSpeed/issues/5047 and "
        "5201), though they have streams of their own",
        # Section 5.1.2 has them beside computation.
        paper=False,
    ),
    "reads_ahead_of_nvme": Window(
        None,
        None,
        "arXiv:2104.07857 section 6.2: reads from NVMe, copies to the GPU and gathers are ahead of "
        "computation; releases either wait for every gather or read nothing ahead",
        paper=True,
    ),
    "loads_three_times": Window(
        None,
        None,
        "arXiv:2104.07857 section 4.1: parameters are loaded for forward, for recomputation and for "
        "backward; releases keep what the trace needs again within stage3_max_reuse_distance",
        paper=True,
    ),
    "swaps_both_ways": Window(
        None,
        None,
        "arXiv:2104.07857 section 6.3: requests to read and to write are under way at once; pipelined "
        "updates of 0.13.3 took what reads and writes take one after the other "
        "(https://github.com/DataStates/artifacts, MLP-Offload/logs: five models)",
        paper=True,
    ),
    "checkpoints_wait": Window(
        None,
        "0.19.8",
        "runtime/activation_checkpointing/checkpointing.py of 0.3.16 to 0.19.1 copies checkpoints with "
        "`.cpu()`; a stream of its own in offload_activations.py of 0.19.8",
        # Section 5.1.2 has them beside computation.
        paper=False,
    ),
    "recomputes_whole_layers": Window(
        None,
        "0.18.3",
        "transformers before 5 (December 2025), Megatron-LM and DeepSpeed's own checkpointing are reentrant: "
        "torch.utils.checkpoint then computes all of a layer a second time",
    ),
    "waits_for_gradients": Window(
        "0.6.0",
        "0.19.5",
        "runtime/zero/stage3.py:partition_grads of 0.6.0 to 0.19.3 copies to `fp32_grad_tensor` without "
        "`non_blocking` (https://github.com/deepspeedai/DeepSpeed/pull/1453 and 8207)",
    ),
    "casts_gradients_on_host": Window(
        "0.6.0",
        "0.15.4",
        "runtime/zero/stage3.py:partition_grads of 0.6.0 to 0.15.3 copies 16-bit gradients to fp32 ones; a "
        "copy that waits casts on the host (PyTorch aten/src/ATen/native/cuda/Copy.cu:copy_kernel_cuda), as "
        "https://github.com/deepspeedai/DeepSpeed/pull/6962 says",
    ),
    "stages_gradients": Window(
        "0.15.4",
        "0.16.3",
        "runtime/zero/stage3.py:partition_grads of 0.15.4 to 0.16.2 copies to `pinned_grad_buffer` and from "
        "there to each gradient (https://github.com/deepspeedai/DeepSpeed/pull/6670 and 6962)",
    ),
    "copies_by_tile": Window(
        None,
        "0.9.0",
        "runtime/zero/stage2.py of 0.3.10 to stage_1_and_2.py of 0.8.3 hand the GPU's weights to the CPU "
        "optimizer (`fp16_param_groups`), which copies a tile while it updates the next (arXiv:2101.06840 "
        "section 5.1); disabled by https://github.com/deepspeedai/DeepSpeed/pull/3097, first in 0.9.0",
    ),
    "reduces_to_all": Window(
        "0.12.4",
        None,
        "runtime/zero/stage_1_and_2.py:average_tensor of 0.3.10 to 0.12.3 reduces each part of a bucket to "
        "the rank that owns it; of 0.12.4 all-reduces the bucket, of which a rank keeps its part "
        "(`use_multi_rank_bucket_allreduce`, https://github.com/deepspeedai/DeepSpeed/pull/4695)",
    ),
    "sums_for_overflow": Window(
        None,
        "0.14.2",
        "runtime/zero/stage_1_and_2.py:_has_inf_or_nan of 0.3.10 to 0.12.6 sums gradients in fp32",
    ),
    "masks_for_overflow": Window(
        "0.14.2",
        "0.19.8",
        "runtime/zero/stage_1_and_2.py:_has_inf_or_nan of 0.14.2 to 0.19.0 makes masks of what is infinite "
        "and what is no number; runtime/utils.py:has_inf_or_nan of 0.19.8 looks for extremes",
    ),
    "passes_gradients": Window(None, None, "every release has buckets, and steps copies of what computes"),
    "always_accumulates": Window(
        "0.6.0",
        None,
        "runtime/zero/stage3.py:partition_previous_reduced_grads of 0.3.13 to 0.5.10 has a buffer of "
        "gradients off the GPU only where they are accumulated; __init__ of 0.6.0 makes it in any case",
    ),
    "accumulates_once_more": Window(
        "0.15.2",
        None,
        "runtime/zero/stage_1_and_2.py:async_accumulate_grad_in_cpu_via_gpu of 0.3.10 to 0.15.1 copies "
        "nothing to the host in the last micro-step; of 0.15.2 in every one "
        "(https://github.com/deepspeedai/DeepSpeed/pull/6550)",
    ),
    "accumulates_in_stage1": Window(
        None,
        "0.19.0",
        "runtime/zero/stage_1_and_2.py:copy_grads_in_partition to 0.18.9 has a buffer on the host wherever "
        "there are several micro-steps; of 0.19.0 only after a backward that was not the last "
        "(https://github.com/deepspeedai/DeepSpeed/pull/7981), which stage 1 does not count",
    ),
    "checks_on_host": Window(
        "0.12.6",
        None,
        "runtime/zero/stage3.py:has_overflow of 0.12.6 to 0.19.8 looks through the buffer of gradients, "
        "which an offloaded optimizer has on the host; __partition_grads of 0.6.0 through each on the GPU",
    ),
    "scales_if_needed": Window(
        "0.19.8",
        None,
        "runtime/zero/stage_1_and_2.py:unscale_and_clip_grads of 0.12.6 to 0.19.1 multiplies gradients in "
        "any case, of 0.19.8 only by a loss scale or to clip them",
    ),
    "writes_back_whole_tensors": Window(
        "0.5.10",
        None,
        "runtime/zero/stage3.py:_create_fp16_partitions_with_defragmentation of 0.3.16 sizes the buffer that "
        "is written back to NVMe by shards, of 0.5.10 by whole tensors",
    ),
    "pins_exactly": Window(
        None,
        "0.6.0",
        "aten/src/THC/THCCachingHostAllocator.cpp, in PyTorch to 1.10 (1.11 is of March 2022, as is 0.6.0), "
        "asks cudaHostAlloc for the size that it is asked for",
    ),
    "locks_swap_buffers": Window(
        "0.19.4",
        None,
        "runtime/swap_tensor/utils.py:SwapBufferManager and partitioned_param_swapper.py of 0.3.16 to 0.19.3 "
        "have PyTorch pin their buffers; https://github.com/deepspeedai/DeepSpeed/pull/8212 locks them",
    ),
    "pins_by_default": Window(
        "0.19.5",
        None,
        "runtime/zero/offload_config.py: pin_memory is off by default to 0.19.3 and on in 0.19.5 "
        "(https://github.com/deepspeedai/DeepSpeed/pull/8207); unpinned shards are freed once they have "
        "moved to the flat buffer",
    ),
    "pins_master_weights": Window(
        "0.14.1", None, "https://github.com/deepspeedai/DeepSpeed/pull/5301, first in 0.14.1"
    ),
    "chooses_to_pin": Window(
        "0.10.1",
        None,
        "runtime/zero/stage_1_and_2.py:cpu_offload_pin_memory since 0.10.1; to 0.10.0 it pins in any case",
    ),
    "pins_master_weights_by_choice": Window(
        "0.18.3",
        None,
        "runtime/zero/stage_1_and_2.py:__init__ of 0.14.1 to 0.18.2 pins `weights_partition` in any case",
    ),
    "steps_over_fp32_shard": Window(
        "0.14.1",
        "0.17.0",
        "runtime/zero/stage_1_and_2.py:step of 0.14.1 to 0.16.9 brings the updated fp32 shard to the GPU "
        "before it is cast (https://github.com/deepspeedai/DeepSpeed/pull/5301 and 7309)",
    ),
    "keeps_16_bit_copy": Window(
        "0.17.0", None, "https://github.com/deepspeedai/DeepSpeed/pull/7309, first in 0.17.0"
    ),
    "steps_to_initialize": Window(
        None,
        "0.13.2",
        "runtime/zero/stage_1_and_2.py:initialize_optimizer_states of 0.3.10 to 0.13.1 makes the moments in "
        "a step of its own, with the buffer at hand that pinned gradients were copied from; no step since "
        "https://github.com/deepspeedai/DeepSpeed/pull/5104",
    ),
    "clones_on_gpu": Window(
        "0.18.3",
        None,
        "runtime/zero/stage_1_and_2.py:__init__ of 0.3.10 to 0.18.2 moves a shard to the host before it is "
        "cloned, of 0.18.3 after",
    ),
    "deals_gradients_out": Window(
        "0.4.0",
        "0.4.4",
        "runtime/zero/stage2.py:_round_robin_reorder of 0.4.0 to 0.4.3 "
        "(https://github.com/deepspeedai/DeepSpeed/pull/1067: before, one rank copied at a time); a key of "
        "the config since https://github.com/deepspeedai/DeepSpeed/pull/1256, off unless it is set",
    ),
    "takes_experts_whole": Window(
        "0.18.0",
        None,
        "runtime/zero/leaf_module_config.py:DEFAULT_LEAF_MODULE_CLASSES, the same three classes in 0.18.0 to "
        "0.19.8 (https://github.com/deepspeedai/DeepSpeed/pull/7604); before, code had to call "
        "set_z3_leaf_modules",
    ),
    "keeps_what_it_saves": Window(
        None,
        "0.4.4",
        "runtime/engine.py:_zero3_consolidated_fp16_state_dict of 0.3.16 to 0.4.3 gathers without a modifier "
        "rank, which frees nothing after a layer, as that of 0.4.4 says "
        "(https://github.com/huggingface/transformers/issues/12587)",
    ),
}


OF_THE_PAPER = ("reads_ahead_of_nvme", "loads_three_times", "swaps_both_ways")
"""What no release has."""


class Traits(NamedTuple):
    """What one release does; 1.0 or 0.0, to be multiplied with."""

    collectives_wait: float
    """Gathers, reductions and copies of gradients stand in the way of computation."""
    network_waits: float
    """Gathers and sums of stage 3 between nodes stand in the way of computation."""
    reads_ahead_of_nvme: float
    """Parameters on NVMe are read, copied and gathered ahead."""
    loads_three_times: float
    """No parameter stays gathered from recomputation to backward."""
    swaps_both_ways: float
    """An optimizer whose swap is pipelined is read from NVMe while it is written there."""
    checkpoints_wait: float
    """Activation checkpoints on their way to the host and back do, too."""
    recomputes_whole_layers: float
    """Recomputation of a layer goes on to its end, and does not stop before its last matrix."""
    waits_for_gradients: float
    """Stage 3's last gradients are copied to the host while the Python thread waits."""
    casts_gradients_on_host: float
    """The host casts them, from memory that it is handed out anew."""
    stages_gradients: float
    """They go through one pinned buffer, out of which the host copies them."""
    copies_by_tile: float
    """Updated parameters go to the GPU beside the CPU optimizer, below stage 3."""
    reduces_to_all: float
    """Below stage 3 gradients are all-reduced, though a rank keeps only its part."""
    sums_for_overflow: float
    """Gradients are summed in fp32 to find what is infinite or no number."""
    masks_for_overflow: float
    """Masks of such elements are made for that."""
    passes_gradients: float
    """Gradients go through DeepSpeed's buckets, and the optimizer's precision is cast to and from."""
    always_accumulates: float
    """Stage 3 has a buffer of gradients off the GPU even where none are accumulated."""
    accumulates_once_more: float
    """Gradients that are added up on the host go there in the last micro-step, too, below stage 3."""
    accumulates_in_stage1: float
    """Stage 1 has buffers on the host for gradients that it accumulates on the GPU."""
    scales_if_needed: float
    """Below stage 3 gradients that are neither scaled nor clipped are not multiplied."""
    checks_on_host: float
    """Stage 3 looks for what is infinite or no number among 16-bit gradients where they are kept."""
    writes_back_whole_tensors: float
    """The buffer for parameters that are written to NVMe holds whole tensors, not shards."""
    pins_exactly: float
    """PyTorch pins no more than it is asked for."""
    locks_swap_buffers: float
    """Buffers that are swapped through are locked to the byte, and not pinned by PyTorch."""
    pins_by_default: float
    """What zero.Init put on the host stays pinned when it has moved."""
    pins_master_weights: float
    """Master weights on the host are pinned, below stage 3."""
    chooses_to_pin: float
    """`pin_memory` of `offload_optimizer` is heeded below stage 3."""
    pins_master_weights_by_choice: float
    """For master weights, too."""
    steps_over_fp32_shard: float
    """An fp32 copy of a rank's shard is on the GPU when its step ends, below stage 3."""
    keeps_16_bit_copy: float
    """The host has a pinned 16-bit copy of a rank's shard, below stage 3."""
    steps_to_initialize: float
    """Moments are made before training, below stage 3, beside gradients that are not freed yet."""
    clones_on_gpu: float
    """The 16-bit shard that master weights are made from is cloned on the GPU, below stage 3."""
    deals_gradients_out: float
    """Tensors are dealt out to the ranks, which then copy gradients to the host at once, below stage 3."""
    takes_experts_whole: float
    """Mixtral's, Qwen2-MoE's and Qwen3-MoE's blocks of experts are leaves of stage 3 by themselves."""
    keeps_what_it_saves: float
    """Weights that stage 3 gathers to save them stay gathered on every GPU."""


@lru_cache(maxsize=64)
def traits_of(version: str) -> Traits:
    """The traits of a release ("0.5.9"), of the newest in a month ("2023-05"), or of what is none.

    That is the paper's engine or PyTorch alone. ValueError on anything else, and on what came after the
    newest release: nobody has read it.
    """
    if version == PYTORCH:
        return NEWEST._replace(passes_gradients=0.0)
    if version == PAPER_ENGINE:
        of_its_time = parsed("0.3.13")
        has = {
            name: _within(window, of_its_time) if window.paper is None else window.paper
            for name, window in WINDOWS.items()
        }
    else:
        release = known(version)
        has = {name: _within(window, release) for name, window in WINDOWS.items()}
        has |= dict.fromkeys(OF_THE_PAPER, False)
    return Traits(**{name: float(value) for name, value in has.items()})


def _within(window: Window, release: tuple[int, ...]) -> bool:
    since = window.since is None or release >= parsed(window.since)
    return since and (window.until is None or release < parsed(window.until))


NEWEST = traits_of(VERSION)._replace(deals_gradients_out=1.0)
"""The traits that plans are made with: the newest release's, with `round_robin_gradients` as is emitted."""
