"""GPU memory under DeepSpeed, line by line, as its source allocates it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ziplan.laws.law import maximum, where
from ziplan.laws.memory import held_bytes, sharded_bytes
from ziplan.runtimes.deepspeed import laws
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.fetches import Fetches
from ziplan.runtimes.deepspeed.knobs import largest_trained_tensor
from ziplan.runtimes.deepspeed.leaves import largest_gradients
from ziplan.runtimes.deepspeed.tiled import by_tiles
from ziplan.runtimes.runtime import RUNNING, Ledger
from ziplan.runtimes.shared import memory as shared
from ziplan.runtimes.shared.outside import add_outside
from ziplan.workload.model import Model

NORM_BYTES, NORM_CHUNK = 8.0, 2.5e8
"""`_constant_buffered_norm2`: fp64, at most 250,000,000 elements at a time."""


def gpu_ledger(facts: Facts) -> Ledger:
    """The lines of one GPU's memory alone."""
    book = Ledger(facts.derivation)
    for chapter in (_states, _gradients, _buffers, _step):
        chapter(book, facts)
    # Stage 3's own linear function (`runtime/zero/linear.py`) keeps its input whether it is trained or not.
    shared.add_activations(
        book,
        facts,
        kept_on_gpu=1 - facts.full * facts.checkpoints_on(facts.host),
        frozen_inputs_kept=facts.stage3,
    )
    add_outside(book, facts, frozen_inputs_kept=facts.stage3)
    shared.add_logits(book, facts)
    shared.add_gpu_overhead(book, facts)
    return book


def _states(book: Ledger, f: Facts) -> None:
    apply, plan = f.derivation.apply, f.plan
    resident = apply(
        laws.resident_param_bytes,
        "parameters on the GPU",
        zero_stage=plan.zero_stage,
        params=f.params,
        owned_params=f.shards.owned,
        param_bytes_per_param=f.element,
        share=f.params_on(f.gpu),
    )
    book.add("parameters", f.gpu, RUNNING, resident, knob="zero_optimization.stage, offload_param")
    whole = apply(
        held_bytes,
        "the model, whole, on the GPU until stage 3 divides it (no zero.Init)",
        params=f.params,
        state_bytes_per_param=f.element,
        share=f.stage3 - f.divided_at_once,
        ranks_per_instance=1.0,
    )
    book.add("model before it is divided", f.gpu, ("init",), whole, knob="training.loading.zero_init")
    for name, bytes_per_param in (("master weights", f.gpu_master), ("optimizer state", f.gpu_moments)):
        states = apply(
            laws.resident_optimizer_bytes,
            f"{name} on the GPU",
            zero_stage=plan.zero_stage,
            params=f.trained,
            optimizer_state_bytes_per_param=bytes_per_param,
            dp_degree=plan.dp_degree,
            share=f.optimizer_on(f.gpu),
        )
        book.add(name, f.gpu, RUNNING, states, knob="offload_optimizer.device, ratio")
    _copies_of_states(book, f)


def _copies_of_states(book: Ledger, f: Facts) -> None:
    """What stands on the GPU for one phase only: made from states, on its way to them, or to be saved."""
    apply, plan = f.derivation.apply, f.plan
    # The clone goes before the moments are made, which are larger where they too are on the GPU.
    clone = apply(
        sharded_bytes,
        "16-bit shard that master weights are made from",
        params=f.trained,
        state_bytes_per_param=f.element,
        dp_degree=plan.dp_degree,
        share=f.traits.clones_on_gpu * _below_stage3(f),
        ranks_per_instance=1.0,
    )
    book.add("clone of the shard", f.gpu, ("init",), clone, knob="zero_optimization.stage")
    returned = apply(
        sharded_bytes,
        "fp32 shard on the GPU before it is cast",
        params=f.trained,
        state_bytes_per_param=f.master,
        dp_degree=plan.dp_degree,
        share=f.traits.steps_over_fp32_shard * _below_stage3(f),
        ranks_per_instance=1.0,
    )
    book.add("fp32 shard on its way back", f.gpu, ("step",), returned, knob="DeepSpeed's version")
    saved = apply(
        held_bytes,
        "16-bit weights gathered to be saved",
        params=f.params,
        state_bytes_per_param=f.element,
        share=f.traits.keeps_what_it_saves * f.stage3 * f.gathers_to_save,
        ranks_per_instance=1.0,
    )
    book.add("weights gathered to be saved", f.gpu, ("save",), saved, knob="training.saving")


def _below_stage3(f: Facts) -> float:
    """1 where a stage below 3 partitions an optimizer that is off the GPU."""
    return where((f.plan.zero_stage > 0) & (f.plan.zero_stage < 3), f.optimizer_off_gpu, 0.0)


def _gradients(book: Ledger, f: Facts) -> None:
    """Stage 3 has its shard of gradients from the start; below it they come with backward."""
    plan, knob = f.plan, "zero_optimization.stage, offload_optimizer"
    gradients = f.derivation.apply(
        laws.resident_grad_bytes,
        "gradients on the GPU",
        zero_stage=plan.zero_stage,
        params=f.trained,
        grad_bytes_per_param=f.accumulated,
        dp_degree=plan.dp_degree,
        share=1 - f.optimizer_off_gpu * (1 - f.accumulates_on_gpu),
    )
    book.add("gradient shard", f.gpu, RUNNING, f.stage3 * gradients, knob=knob)
    placed = f.derivation.apply(
        sharded_bytes,
        "gradients, as the optimizer takes them, of the sub-groups that stay on the GPU",
        params=f.trained,
        state_bytes_per_param=f.master,
        dp_degree=plan.dp_degree,
        share=f.twin_flow * f.optimizer_on(f.gpu),
        ranks_per_instance=1.0,
    )
    book.add("gradients of sub-groups on the GPU", f.gpu, RUNNING, placed, knob="offload_optimizer.ratio")
    _gradients_below_stage3(book, f, gradients, knob)
    staged = f.derivation.apply(
        held_bytes,
        "gradient of the largest tensor on its way back from the host, to be added to",
        params=float(largest_trained_tensor(f.workload.model)),
        state_bytes_per_param=f.element,
        share=_below_stage3(f),
        ranks_per_instance=1.0,
    )
    book.add("gradient staging", f.gpu, RUNNING, staged, knob="the model's vocabulary and width")


def _gradients_below_stage3(book: Ledger, f: Facts, divided: float, knob: str) -> None:
    """What backward leaves and adds up: `divided` are all gradients below stage 2, a partition of them in it.

    Stages 1 and 2 move each gradient into a bucket, and those that a rank owns a part of from there into a
    buffer of their whole size (`stage_1_and_2.py:copy_grads_in_partition`): one for each micro-step, which
    is added to that of the first. Stage 1 adds up before it reduces, and so has all of them in the last
    backward, where there are several or none of it runs beside (`Facts.stage1_piles_up`).
    """
    stage, several = f.plan.zero_stage, where(f.plan.accumulation_steps > 1, 1.0, 0.0)
    below, stage2 = 1 - f.stage3, where(f.plan.zero_stage >= 2, 1 - f.stage3, 0.0)
    stage1 = where(stage >= 1, below - stage2, 0.0)
    owned = _owned_gradients(f, (stage1 + stage2) * (1 - f.optimizer_off_gpu) * (1 - f.accumulates_on_gpu))
    piled = divided * where(stage < 1, 1.0, stage1 * f.stage1_piles_up)
    in_place = divided * stage2 * f.accumulates_on_gpu
    low = piled + in_place + owned * where(stage2 > 0, 1 + several, 1 - stage1 * f.stage1_piles_up)
    # What a rank owns is copied when at least a bucket has been let go.
    more = maximum(owned - f.element * f.knobs.reduce_bucket, 0.0) * stage1 * f.stage1_piles_up
    book.add("gradients", f.gpu, ("backward",), low + more, low=low, knob=knob)
    stepped = divided * where(stage < 1, 1.0, 0.0) + in_place + owned
    book.add("gradients at the step", f.gpu, ("step",), stepped, knob=knob)
    earlier = several * (divided * where(stage < 2, 1.0, 0.0) + in_place + owned * stage2)
    book.add("gradients of earlier micro-steps", f.gpu, ("forward",), earlier, knob="accumulation_steps")


def _owned_gradients(f: Facts, share: float) -> float:
    """Bytes of the tensors that a rank owns parts of, each whole; of the rank that has the most."""
    if not np.any(share):
        return 0.0
    return f.derivation.apply(
        held_bytes,
        "gradients of the tensors that a rank owns parts of, each whole",
        params=f.owned_whole,
        state_bytes_per_param=f.element,
        share=share,
        ranks_per_instance=1.0,
    )


def _buffers(book: Ledger, f: Facts) -> None:
    apply, plan, model, settings = f.derivation.apply, f.plan, f.workload.model, f.knobs
    live = apply(
        laws.gathered_param_bytes,
        "most parameters gathered at once",
        zero_stage=plan.zero_stage,
        live_params=_most(f, lambda fetched: fetched.peak_live) + _persistent(f),
        param_bytes_per_param=f.element,
    )
    book.add("gathered parameters", f.gpu, ("forward", "backward"), live, knob="stage3_max_live_parameters")
    coalesced = apply(
        laws.coalesced_fetch_bytes,
        "flat buffer of the largest gather",
        zero_stage=plan.zero_stage,
        fetched_params=_most(f, lambda fetched: fetched.largest_fetch),
        param_bytes_per_param=f.element,
        dp_degree=plan.dp_degree,
    )
    book.add(
        "gather buffer",
        f.gpu,
        ("forward", "backward"),
        coalesced,
        low=0.0,
        knob="stage3_prefetch_bucket_size",
    )
    _reduce_buckets(book, f)
    at_once = by_tiles(model, plan.tile_count, lambda each: float(largest_trained_tensor(each)))
    leaf = by_tiles(model, plan.tile_count, lambda each: float(largest_gradients(each, settings.leaves)))
    whole = apply(
        held_bytes,
        "gradients that are made before any is reduced: of the largest tensor, in stage 3 of a leaf",
        params=where(plan.zero_stage >= 3, leaf, at_once),
        state_bytes_per_param=f.element,
        share=where(plan.zero_stage >= 1, where(plan.zero_stage >= 2, 1.0, 1 - f.stage1_piles_up), 0.0),
        ranks_per_instance=1.0,
    )
    book.add(
        "gradient of the largest tensor", f.gpu, ("backward",), whole, knob="the model's vocabulary and width"
    )


def _most(f: Facts, measure: Callable[[Fetches], float]) -> float:
    """What is gathered at the most, by a measure of it."""
    return f.played(lambda fetched, _: measure(fetched))


def _reduce_buckets(book: Ledger, f: Facts) -> None:
    """Buckets that gradients are reduced in, and the copy of one that the reduction makes.

    Stage 3 has one from the start, copied while it is scattered. Below it there is one while backward runs,
    with `overlap_comm` two (`stage_1_and_2.py:setup_buckets`); an all-reduce flattens parts into a copy.
    """
    below = 2.0 if f.overlaps else 1.0
    copied = 1.0 if f.traits.reduces_to_all else 0.0
    kinds = ((RUNNING, f.stage3, 1.0, 1.0), (("backward",), 1 - f.stage3, below, copied))
    for phases, share, count, copies in kinds:
        if not np.ndim(share) and not share:
            continue
        low, high = (
            f.derivation.apply(
                laws.reduce_bucket_bytes,
                "reduce buckets",
                zero_stage=f.plan.zero_stage,
                reduce_bucket_params=f.knobs.reduce_bucket,
                grad_bytes_per_param=f.element,
                bucket_count=buckets,
            )
            for buckets in (count, count + copies)
        )
        book.add("reduce buckets", f.gpu, phases, share * high, low=share * low, knob="reduce_bucket_size")


def _persistent(f: Facts) -> float:
    def of(model: Model) -> float:
        return float(sum(n * count for n, count, _ in model.tensors if n <= f.knobs.persistence))

    return by_tiles(f.workload.model, f.plan.tile_count, of)


def _temporaries(f: Facts) -> tuple[float, float]:
    """Bytes per stepped parameter, low and high; a kernel that is fused needs no square roots in memory.

    Twin-flow steps what is on the GPU with `torch.optim.AdamW` as it comes (`stage3.py:backup_optimizer`),
    which is not fused.
    """
    if f.workload.training.optimizer.kind != "adamw":
        return f.optimizer.temporaries
    fused = f.workload.training.optimizer.fused
    unfused = f.twin_flow * f.master
    low, high = (0.0 if fused in (True, None) else f.master, 0.0 if fused else f.master)
    return maximum(low, unfused), maximum(high, unfused)


def _step(book: Ledger, f: Facts) -> None:
    apply = f.derivation.apply
    gradient = apply(
        laws.step_gradient_bytes,
        "fp32 gradient of one sub-group",
        stepped_params=f.sub_group,
        grad_bytes_per_param=f.element,
        # In the precision of the master weights; where that is its own it is no second one.
        fp32_bytes_per_param=where(f.master == f.element, 0.0, f.master),
        # Where an optimizer is offloaded, what stays on the GPU has its gradient in its place.
        share=where(f.optimizer_on(f.gpu) > 0, 1 - f.twin_flow, 0.0),
    )
    book.add("gradient of one sub-group", f.gpu, ("step",), gradient, knob="sub_group_size")
    low, high = _temporaries(f)
    temporary = apply(
        held_bytes,
        "what the update makes where no kernel fuses it",
        params=f.sub_group,
        state_bytes_per_param=high,
        share=where(f.optimizer_on(f.gpu) > 0, 1.0, 0.0),
        ranks_per_instance=1.0,
    )
    least = temporary * low / maximum(high, 1.0)
    book.add(
        "temporary of the optimizer", f.gpu, ("step",), temporary, low=least, knob="training.optimizer.fused"
    )
    norm = apply(
        laws.gradient_norm_bytes,
        "fp64 copy for the gradient norm",
        largest_shard_params=f.trained_shards.largest,
        norm_bytes_per_param=NORM_BYTES,
        norm_chunk=NORM_CHUNK,
    )
    book.add("gradient norm", f.gpu, ("step",), f.stage3 * norm, knob="gradient_clipping")
    kept = apply(
        held_bytes,
        "fp32 gradients too small or unaligned to swap",
        params=f.trained_shards.unswapped_gradients,
        state_bytes_per_param=4.0,
        share=f.swaps_optimizer,
        ranks_per_instance=1.0,
    )
    book.add(
        "gradients that cannot swap", f.gpu, ("backward", "step"), kept, knob="aio.block_size, dp_degree"
    )
