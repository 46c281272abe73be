"""Passes over gradients and states in the GPU's own memory, that neither layers nor the update make.

Gradients are moved into a bucket, averaged, flattened and moved out again; a rank's part of them is then
flattened, cast, measured, unscaled, and what is updated is cast back. Counted from what PyTorch dispatches in
DeepSpeed 0.19.8's engine, kernel by kernel; what earlier releases do otherwise is in `traits`.
"""

from __future__ import annotations

from ziplan.laws.law import maximum, where
from ziplan.runtimes.deepspeed import laws
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.runtime import Demand
from ziplan.runtimes.shared.facts import READ_AND_WRITTEN
from ziplan.runtimes.terms import GRADIENT_PASSES

ALL_REDUCED = 3.0
"""Passes of stage 0: flattened, averaged, and copied back to each gradient (`engine.py:allreduce_bucket`)."""

IN_A_BUCKET = 2.0
"""Passes of stages 1 to 3: into the bucket and averaged there (`stage_1_and_2.py:average_tensor`,
`coalesced_collectives.py:reduce_scatter_coalesced`)."""

IN_PYTORCH = 2.0
"""Passes of `DistributedDataParallel`: divided into a bucket, and copied back from what was summed
(`reducer.cpp:mark_variable_ready_dense`, `finalize_bucket_dense`)."""

CLIPPED_IN_PYTORCH = 3.0
"""Accesses of a gradient that `clip_grad_norm_` measures, reads and writes."""

ADDED = 3.0
"""Accesses of a gradient that is added to an earlier one: both are read, the sum is written."""

NORM_BYTES = 16.0
"""Bytes of the fp64 copy that a norm is computed from, written and read (`get_grad_norm_direct`)."""

SUMMED, MASKED, EXTREMES = 8.0, 34.0, 2.0
"""Bytes that looking for an overflow moves beside the gradient itself: written and read in fp32, and summed;
with masks of what is infinite and of what is no number (`_has_inf_or_nan`). Or how often the gradient is read
where only its extremes are looked for (`has_inf_or_nan`)."""


def swept_each_time(f: Facts) -> Demand:
    """What a micro-step passes through: gradients that are reduced in it or added to earlier ones."""
    share = where(f.plan.zero_stage >= 2, 1.0, 0.0)
    return Demand(GRADIENT_PASSES, f"{f.gpu}.read", _reduced(f, share) + _added(f))


def swept_once(f: Facts, share: float) -> Demand:
    """What is passed through once a step, a share of it: what is reduced then, what is made for the host."""
    once = where(f.plan.zero_stage < 2, share, 0.0)
    return Demand(GRADIENT_PASSES, f"{f.gpu}.read", _reduced(f, once) + _for_the_host(f, share))


def on_the_reducing_stream(f: Facts) -> float:
    """Share of the passes beside backward that take turns with what is reduced, and do not run beside it.

    Below stage 3 gradients are moved into the bucket on backward's stream
    (`stage_1_and_2.py:reduce_independent_p_g_buckets_and_remove_grads`); they are averaged, flattened and
    moved out of it on the one that reduces (`average_tensor`, `reduce_ipg_grads`). PyTorch's own data
    parallelism makes its copies on backward's.
    """
    below = (1 - f.in_pytorch) * (1 - 1 / (IN_A_BUCKET + _reduces_flat(f)))
    return where(f.plan.zero_stage >= 3, 1.0, below)


def _reduced(f: Facts, share: float) -> float:
    """Bytes of gradients on their way through the buckets, and of a rank's own out of them."""
    engine = f.traits.passes_gradients
    return engine * (_whole(f, share) + _own(f, share)) + f.in_pytorch * _replicated(f, share)


def _whole(f: Facts, share: float) -> float:
    flattened = f.stage3 + (1 - f.stage3) * _reduces_flat(f)
    passes = where(f.plan.zero_stage < 1, ALL_REDUCED, IN_A_BUCKET + flattened)
    return f.derivation.apply(
        laws.swept_gradient_bytes,
        "gradients through the buckets that they are reduced in",
        params=f.trained,
        grad_bytes_per_param=f.element,
        access_count=READ_AND_WRITTEN * passes * share,
    )


def _replicated(f: Facts, share: float) -> float:
    """The same of PyTorch's `DistributedDataParallel`, which one rank does without."""
    return f.derivation.apply(
        laws.swept_gradient_bytes,
        "gradients through the buckets of DistributedDataParallel",
        params=f.trained,
        grad_bytes_per_param=f.element,
        access_count=READ_AND_WRITTEN * IN_PYTORCH * where(f.plan.dp_degree > 1, share, 0.0),
    )


def _reduces_flat(f: Facts) -> float:
    """1 where stages 1 and 2 flatten what they all-reduce, and copy a rank's own back from there."""
    if f.stated is None:
        return f.traits.reduces_to_all
    return float(f.stated.reduce_scatter and f.stated.use_multi_rank_bucket_allreduce)


def _own(f: Facts, share: float) -> float:
    """A rank's own part: back into its bucket, and from there to where it is kept or measured."""
    stage = f.plan.zero_stage
    below = where((stage >= 1) & (stage < 3), 1.0, 0.0)
    back = below * _reduces_flat(f)
    off = f.optimizer_off_gpu
    kept = f.stage3 + below * (1 - off) * f.owned_whole * f.plan.dp_degree / maximum(f.trained, 1.0)
    return f.derivation.apply(
        laws.swept_shard_bytes,
        "a rank's own gradients, out of the buckets",
        params=f.trained,
        bytes_per_param=READ_AND_WRITTEN * f.element * (back + kept),
        dp_degree=f.plan.dp_degree,
        share=share,
    )


def _for_the_host(f: Facts, share: float) -> float:
    """The norm of a rank's gradients and their cast, for an optimizer that is off the GPU.

    At the last micro-step alone (`stage_1_and_2.py:copy_grads_in_partition` and `stage3.py:partition_grads`
    ask `is_gradient_accumulation_boundary`).
    """
    off = f.optimizer_off_gpu * where(f.plan.zero_stage >= 1, 1.0, 0.0)
    return f.derivation.apply(
        laws.swept_shard_bytes,
        "a rank's own gradients, measured and cast for the host",
        params=f.trained,
        bytes_per_param=f.traits.passes_gradients * (_measured(f) + _cast(f) + _left_on_the_gpu(f)),
        dp_degree=f.plan.dp_degree,
        share=share * off,
    )


def _left_on_the_gpu(f: Facts) -> float:
    """Bytes per parameter of what twin-flow steps on the GPU: a copy to where the gradient has its place.

    `stage3.py:_offload_grad_partition_at_boundary` copies into `fp32_partitioned_groups_flat[i].grad`, which
    is on the GPU for those.
    """
    return READ_AND_WRITTEN * f.master * f.twin_flow * f.optimizer_on(f.gpu)


def _added(f: Facts) -> float:
    """Gradients added to those of earlier micro-steps, on average over all: by autograd below stage 2.

    Those that are kept on the host come up for it (`stage3.py:partition_grads`,
    `stage_1_and_2.py:async_accumulate_grad_in_cpu_via_gpu`).
    """
    stage, steps = f.plan.zero_stage, f.plan.accumulation_steps
    share = (steps - 1) / steps
    held = where(stage >= 3, f.trained / f.plan.dp_degree, where(stage >= 2, f.owned_whole, f.trained))
    return f.derivation.apply(
        laws.swept_gradient_bytes,
        "gradients added to those of earlier micro-steps",
        params=held,
        grad_bytes_per_param=f.element,
        access_count=ADDED * share,
    )


def beside_the_update(f: Facts) -> float:
    """Bytes per parameter, on the GPU, of a step's passes before and after the update itself.

    In twin-flow gradients are flat, cast and measured before (`_for_the_host`; `stage3.py:_prepare_sub_group`
    and `_get_norm_groups` ask whether the optimizer is offloaded, and not which part of it).
    """
    stage = f.plan.zero_stage
    cast_back = f.master + f.element
    prepared = (READ_AND_WRITTEN * f.element + _cast(f) + _measured(f)) * (1 - f.twin_flow)
    part = prepared + f.scaled + cast_back
    # Stage 0 flattens in the optimizer's precision, and takes the norm of that as it is.
    whole = _cast(f) + (READ_AND_WRITTEN + 1) * f.master + _checked(f) + f.scaled + cast_back
    copies = where(f.gpu_master > 0, 1.0, 0.0)
    engine = f.traits.passes_gradients
    return engine * copies * where(stage >= 1, part, whole) + f.in_pytorch * _clipped(f)


def _clipped(f: Facts) -> float:
    """Bytes per parameter that clipping moves, of fp16 unscaling too, where PyTorch steps what computes."""
    unscaled = READ_AND_WRITTEN if f.workload.precision == "fp16" else 0.0
    return f.clipped * f.element * (CLIPPED_IN_PYTORCH + unscaled)


def _cast(f: Facts) -> float:
    """From the precision that computes to the optimizer's."""
    return 0.0 if f.master == f.element else f.element + f.master


def _measured(f: Facts) -> float:
    """The norm of what a rank owns, and a look for overflows: below stage 3 whatever the precision."""
    in_fp16 = 1.0 if f.workload.precision == "fp16" else 0.0
    on_gpu = in_fp16 * (1 - f.traits.checks_on_host * f.optimizer_off_gpu)
    checked = where(f.plan.zero_stage >= 3, on_gpu, 1.0) * _checked(f)
    return f.element + NORM_BYTES + checked


def _checked(f: Facts) -> float:
    extremes = 1 - f.traits.sums_for_overflow - f.traits.masks_for_overflow
    more = f.traits.sums_for_overflow * SUMMED + f.traits.masks_for_overflow * MASKED
    return f.element * (1 - extremes) + more + extremes * EXTREMES * f.element
