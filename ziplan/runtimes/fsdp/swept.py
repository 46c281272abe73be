"""What FSDP moves through the GPU's own memory around its gathers and sums, and to clip gradients.

Counted from what PyTorch 2.13 dispatches, kernel by kernel. FSDP2 keeps each tensor by itself: it casts
shards, copies them into what is gathered, copies tensors out of that, and copies gradients into what is
reduced. FSDP1 keeps one flat tensor a group: what is gathered needs no copies, and autograd joins the
gradients of its parts.
"""

from __future__ import annotations

from ziplan.laws.law import where
from ziplan.runtimes.fsdp import laws
from ziplan.runtimes.fsdp.facts import Facts
from ziplan.runtimes.runtime import Demand
from ziplan.runtimes.shared.facts import READ_AND_WRITTEN
from ziplan.runtimes.terms import GRADIENT_PASSES, PACKED, SUMMED, UNPACKED, UPDATE_PASSES

ADDED = 3.0
"""Accesses of a gradient that is added to another: two are read, one is written."""


def packed(f: Facts, label: str, params: float, trained: float) -> Demand:
    """A rank's own part of what is gathered: cast where it is kept otherwise, and copied together.

    `_fsdp_collectives.py:_get_param_all_gather_inputs` and `all_gather_copy_in_cuda`, or with one rank
    `_fsdp_param_group.py:wait_for_unshard`; FSDP1's `_flat_param.py:_use_low_precision_shard` casts alone.
    """
    together = 0.0 if f.flat else READ_AND_WRITTEN * f.element
    return Demand(
        PACKED,
        f"{f.gpu}.read",
        _copied(f, f"{label}, cast", trained, own=f.recast)
        + _copied(f, f"{label}, copied into what is gathered", params, own=together),
    )


def unpacked(f: Facts, label: str, params: float) -> Demand:
    """Tensors copied out of what was gathered (`_fsdp_collectives.py:foreach_all_gather_copy_out`)."""
    apart = where(f.plan.dp_degree > 1, READ_AND_WRITTEN * f.element * (1 - f.flat), 0.0)
    return Demand(UNPACKED, f"{f.gpu}.read", _copied(f, label, params, whole=apart))


def joined(f: Facts, label: str, trained: float) -> Demand:
    """Gradients copied into what is reduced, on the stream that computes.

    `_fsdp_collectives.py:foreach_reduce_scatter_copy_in`; of FSDP1 autograd's, for `torch.split` of the flat
    tensor (`_flat_param.py:_get_unflat_views_unaligned`).
    """
    return Demand(
        GRADIENT_PASSES, f"{f.gpu}.read", _copied(f, label, trained, whole=READ_AND_WRITTEN * f.element)
    )


def summed(f: Facts, label: str, trained: float) -> Demand:
    """Gradients on the stream that sums them: divided, cast to what is kept, added to earlier ones.

    Divided before and after the sum, as nearly alike as powers of two allow: by two ranks before alone
    (`_fsdp_collectives.py:_get_gradient_divide_factors`, of fp16; FSDP1's `_runtime_utils.py:_reduce_grad`,
    always). One rank copies where others sum.
    """
    ranks, once = f.plan.dp_degree, READ_AND_WRITTEN * f.element
    divided = 1.0 if f.flat or f.workload.precision == "fp16" else 0.0
    before = divided * where(ranks > 1, once, 0.0)
    after = divided * where(ranks > 2, once, 0.0) + where(ranks > 1, 0.0, once * (1 - f.flat))
    added = ADDED * f.master * f.accumulating * (1 - f.offloaded)
    return Demand(
        SUMMED, f"{f.gpu}.read", _copied(f, label, trained, whole=before, own=after + f.recast + added)
    )


def clipped(f: Facts) -> Demand:
    """A rank's own gradients read for their norm and scaled by it, of fp16 unscaled before.

    `nn/utils/clip_grad.py:_get_total_norm` and `_clip_grads_with_norm_`, `amp/grad_scaler.py:unscale_`.
    """
    unscaled = READ_AND_WRITTEN * f.master * f.clipped if f.workload.precision == "fp16" else 0.0
    amount = f.derivation.apply(
        laws.clipped_bytes,
        "gradients measured and clipped on the GPU",
        padded_params=f.trained_groups.all,
        accessed_bytes_per_param=f.clipped * f.master + f.scaled + unscaled,
        dp_degree=f.plan.dp_degree,
        share=1 - f.offloaded,
    )
    return Demand(UPDATE_PASSES, f"{f.gpu}.read", amount)


def _copied(f: Facts, label: str, params: float, whole: float = 0.0, own: float = 0.0) -> float:
    return f.derivation.apply(
        laws.passed_bytes,
        label,
        padded_params=params,
        whole_bytes_per_param=whole,
        own_bytes_per_param=own,
        dp_degree=f.plan.dp_degree,
    )
