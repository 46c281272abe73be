"""Gradients on their way to the optimizer: reduced over the ranks, copied to the host, written to NVMe.

Stages 2 and 3 reduce in every micro-step. Stage 1 reduces in the last one, from the same hooks of backward
where `overlap_comm` is on (`stage_1_and_2.py:process_gradients`), else when backward has ended, as stage 0
does (`engine.py:allreduce_gradients`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ziplan.laws.law import maximum, where
from ziplan.runtimes.deepspeed import laws
from ziplan.runtimes.deepspeed.buckets import Order
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.host_link import crossing, of_the_optimizer
from ziplan.runtimes.deepspeed.leaving import (
    beside_the_copies,
    holds,
    to_host,
    unpinned,
    way_to_the_optimizer,
)
from ziplan.runtimes.deepspeed.swept import swept_once
from ziplan.runtimes.deepspeed.turns import reductions
from ziplan.runtimes.runtime import ALONE, COLLECTIVE, OF_OTHERS, PYTHON, Demand, Segment, scaled
from ziplan.runtimes.terms import GRADIENTS_DOWN, GRADIENTS_UP, OTHERS_GRADIENTS, TO_THE_OPTIMIZER

REDUCE = "gradient reduce"


class LastGradients(NamedTuple):
    """What the last micro-step adds: passes through the GPU's memory, reductions, copies that hold the Python
    thread, others, writes, and what comes of all that when backward has ended."""

    swept: tuple[Demand, ...]
    reduced: tuple[Demand, ...]
    held: tuple[Demand, ...]
    copied: tuple[Demand, ...]
    written: Demand
    tail: tuple[Demand, ...]
    awaits: bool = False
    """Whether what each micro-step sums and copies is waited for in the last, with the copies behind it."""

    @property
    def beside(self) -> tuple[Demand, ...]:
        """What is sent and received beside the last backward, in order."""
        return (*self.reduced, *self.held, *self.copied, self.written)

    @property
    def segment(self) -> Segment:
        """All of it, as one chain."""
        return Segment("gradients of the last micro-step", 1.0, ((*self.swept, *self.beside, *self.tail),))


NOTHING_MORE = LastGradients((), (), (), (), Demand("gradient write", PYTHON, 0.0), ())
"""What any other micro-step adds."""


def waits(f: Facts) -> float:
    """1 where what is sent and received holds the GPU's own work up."""
    in_stage3 = f.traits.collectives_wait * f.stage3 if f.traits.collectives_wait else 0.0
    return maximum(maximum(in_stage3, f.copies_in_turn), unpinned(f))


def _reduced(f: Facts, label: str, share: float) -> tuple[Demand, ...]:
    passes = f.derivation.apply(
        laws.bucket_passes,
        label,
        params=f.trained,
        bucket_params=maximum(f.knobs.reduce_bucket, 1.0),
        passes=f.reduce_passes * share,
    )
    amount = f.derivation.apply(
        laws.reduced_bytes,
        label,
        params=f.trained,
        grad_bytes_per_param=f.element,
        dp_degree=f.plan.dp_degree,
        passes=f.reduce_passes * share,
    )
    passes = where(f.plan.zero_stage >= 3, share * reductions(f), passes)
    return (Demand(REDUCE, "gather", amount), Demand(REDUCE, COLLECTIVE, passes))


def reduced_each_time(f: Facts) -> tuple[Demand, ...]:
    """Gradients reduced in every micro-step."""
    share = where(f.plan.zero_stage >= 2, 1.0, 0.0)
    return _reduced(f, "gradients reduced in one micro-step (stages 2 and 3)", share)


def copied_each_time(f: Facts) -> list[Demand]:
    """Gradients added up on the host: what goes down in a micro-step, and comes back up to be added to.

    Below stage 3 nothing comes back in the first of several micro-steps, nor goes down in the last of some
    releases; that is spread evenly over them.
    """
    if not f.host:
        return []
    moved, label = f.stage3 * f.optimizer_off_gpu, "gradient shards copied to the host in one micro-step"
    shards = crossing(f, label, f.trained, f.accumulated, moved)
    down, up = (shards + below for below in _copied_below_stage3(f))
    return [*_copies(f, GRADIENTS_DOWN, down), *_copies(f, GRADIENTS_UP, up)]


def _copied_below_stage3(f: Facts) -> tuple[float, float]:
    """Bytes down and up in a micro-step: whole tensors, or a rank's own part that is added up in place."""
    several = where((f.plan.zero_stage >= 2) & (f.plan.accumulation_steps > 1), 1.0 - f.stage3, 0.0)
    in_place = several * f.optimizer_off_gpu * (1 - f.accumulates_whole) * (1 - f.accumulates_on_gpu)
    if not np.any(f.accumulates_whole) and not np.any(in_place):
        return 0.0, 0.0
    label = (
        "gradients of tensors that a rank owns a part of, each whole, copied to the host in one micro-step"
    )
    # Ranks that take turns are waited for all together, those that do not as long as the one with the most.
    elements = where(f.owners_take_turns > 0, f.reached("mean"), f.reached("rank"))
    whole = crossing(f, label, elements, f.element, f.accumulates_whole, dp_degree=1.0)
    label = "gradients that a rank owns, copied to the host in one micro-step"
    amount = whole + crossing(f, label, f.trained, f.element, in_place)
    once = 1 / f.plan.accumulation_steps
    stage2 = where(f.plan.zero_stage >= 2, 1.0, 0.0)
    last = f.traits.accumulates_once_more * once
    return amount * (stage2 * (1 - once) + last), amount * stage2 * (1 - once)


def _copies(f: Facts, term: str, own: float) -> tuple[Demand, ...]:
    """A rank's own bytes between GPU and host, and where owners take turns those that it waits for."""
    direction, in_turn = "read" if term == GRADIENTS_UP else "write", f.owners_take_turns
    resource = way_to_the_optimizer(f) if term == TO_THE_OPTIMIZER else to_host(f, direction)
    if np.ndim(in_turn) == 0 and not in_turn:
        return (Demand(term, resource, own),)
    at_once = f.derivation.apply(
        laws.owners_at_once,
        params=maximum(f.trained, 1.0),
        dp_degree=f.plan.dp_degree,
        reduce_bucket_params=f.knobs.reduce_bucket,
        ranks_per_node=f.ranks,
    )
    awaited = f.derivation.apply(
        laws.awaited_bytes,
        f"gradients that other ranks copy, {direction}",
        own_bytes=own * in_turn,
        dp_degree=f.plan.dp_degree,
        owners_at_once=at_once,
    )
    alone = in_turn * where(at_once <= 1, 1.0, 0.0)
    return (
        Demand(term, resource, own * (1 - alone)),
        Demand(term, resource + ALONE, own * alone),
        Demand(OTHERS_GRADIENTS, resource + OF_OTHERS, awaited * (1 - alone)),
        Demand(OTHERS_GRADIENTS, resource + ALONE + OF_OTHERS, awaited * alone),
    )


def last_gradients(f: Facts, due: Order) -> LastGradients:
    """What comes beside the last backward: stage 1's reduction, and what goes to the optimizer above stage 0.

    `stage3.py:partition_grads` and `_offload_grad_partition_at_boundary` copy a bucket's gradients on the
    stream that reduces, to pinned memory and without waiting; `stage_1_and_2.py` does as much, and `holds`
    is of those that do not. On the way to NVMe `AsyncTensorSwapper` copies to a buffer, which the Python
    thread waits for, and then writes behind its back.
    """
    stage1 = f.reduces_in_backward * where(f.plan.zero_stage < 2, 1.0, 0.0)
    last, label = due.in_the_last, "gradients reduced in the last micro-step (stage 1)"
    swept, reduced = [swept_once(f, f.reduces_in_backward)], _reduced(f, label, stage1)
    tail = (*scaled(swept, last), *scaled(reduced, last))
    awaited = maximum(waits(f), holds(f)) if f.host else 0.0
    early = tuple(scaled(swept, 1 - last)), tuple(scaled(reduced, (1 - last) * (1 - awaited)))
    if not f.host:
        return LastGradients(*early, (), (), Demand("gradient write", f"{f.nvme}.swap_write", 0.0), tail)
    written = 0.0
    if f.nvme:
        written = f.derivation.apply(
            laws.swapped_bytes,
            "fp32 gradients written to NVMe",
            elements=f.trained_shards.swappable_gradients,
            bytes_per_param=4.0,
            share=f.swaps_optimizer,
        )
    held = maximum(f.swaps_optimizer, awaited)
    sent = scaled(_to_the_optimizer(f), f.reduces_in_backward)
    copied = scaled(sent, 1 - held)
    return LastGradients(
        *early,
        (*scaled(reduced, (1 - last) * awaited), *scaled(sent, held)),
        tuple(scaled(copied, 1 - last)),
        Demand("gradient write", f"{f.nvme}.swap_write", written),
        (*tail, *scaled(copied, last)),
        bool(np.any(f.stage3 * holds(f))),
    )


def _to_the_optimizer(f: Facts) -> tuple[Demand, ...]:
    label = "gradient shards copied to the host once per step, as the optimizer takes them"
    amount = of_the_optimizer(f, label, f.master) * (1 - f.casts_gradients)
    return (*_copies(f, TO_THE_OPTIMIZER, amount), *beside_the_copies(f))


def boundary(f: Facts) -> Segment:
    """Once per step, when the last backward has ended: what is not reduced and brought along beside it."""
    after = 1 - f.reduces_in_backward
    demands = [swept_once(f, after), *_reduced(f, "gradients reduced once per step, after backward", after)]
    if f.host:
        demands += scaled(_to_the_optimizer(f), after)
    return Segment("gradients out", 1.0, (tuple(demands),))
