"""DeepSpeed's step: what moves, what computes, and what of it overlaps.

- With parameters on the GPU or the host, gathers of the next module run beside the
  computation of the current one, but over several nodes; with parameters on NVMe nothing is read
  ahead, so the read, the copy to the GPU and the gather all stand in the way of the computation.
- Gradients are reduced and copied to the host beside backward, in the last micro-step also in the precision
  of the optimizer. Where the optimizer swaps, that copy holds the Python thread, and the GPU has nothing
  to do; the write that follows runs beside backward.
- The optimizer step overlaps with neither backward nor the next forward. Inside it, swapping
  the next sub-group overlaps with updating this one only when the swap is pipelined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ziplan.hardware.cluster import Cluster
from ziplan.hardware.rates import ADAM_BYTES
from ziplan.laws.law import Derivation, maximum, where
from ziplan.laws.memory import activation_bytes
from ziplan.plan import Plan
from ziplan.runtimes import terms
from ziplan.runtimes.deepspeed import laws
from ziplan.runtimes.deepspeed.buckets import REDUCE_PACES, Order, on_the_way, order
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.gradients import (
    NOTHING_MORE,
    LastGradients,
    boundary,
    copied_each_time,
    last_gradients,
    reduced_each_time,
    waits,
)
from ziplan.runtimes.deepspeed.hooks import hooks_by_sweep, in_forward
from ziplan.runtimes.deepspeed.host_link import crossing
from ziplan.runtimes.deepspeed.overflow import overflow_check
from ziplan.runtimes.deepspeed.paced import GATHER_PACES
from ziplan.runtimes.deepspeed.returned import copies_back, memory_of_casts, memory_of_operators
from ziplan.runtimes.deepspeed.shards import swapped_in
from ziplan.runtimes.deepspeed.swept import beside_the_update, on_the_reducing_stream, swept_each_time
from ziplan.runtimes.deepspeed.traits import NEWEST, Traits
from ziplan.runtimes.deepspeed.turns import between_nodes, kept_gathers
from ziplan.runtimes.runtime import COLLECTIVE, Demand, Segment, scaled
from ziplan.runtimes.shared.compute import forward_share, gpu_work
from ziplan.runtimes.shared.facts import UNFUSED_ACCESSES
from ziplan.runtimes.shared.launches import launches_by_sweep
from ziplan.workload.training import Workload

if TYPE_CHECKING:
    from ziplan.runtimes.deepspeed.fetches import Fetches
    from ziplan.runtimes.deepspeed.reading.settings import Settings


def program(
    derivation: Derivation,
    cluster: Cluster,
    workload: Workload,
    plan: Plan,
    stated: Settings | None = None,
    traits: Traits = NEWEST,
    overlap_comm: bool | None = None,
    zero: Mapping[str, float] | None = None,
) -> Sequence[Segment]:
    """The segments of one step, in order; `stated` are the settings of a config that exists."""
    step = parts_of(Facts(derivation, cluster, workload, plan, stated, traits, overlap_comm, zero))
    return (*_micro_steps(plan, step), step.boundary, step.optimizer, step.afterwards)


DOWN = (terms.GRADIENTS_DOWN, terms.TO_THE_OPTIMIZER)
"""Copies to the host, on another stream than those of parameters to the GPU (`stage3.py:partition_grads`)."""


class MicroStep(NamedTuple):
    """What a micro-step is made of: what the GPU does, what it waits for, what runs beside it.

    `blocking` and `forward` are forward's, `blocked` is what the GPU waits for after it, `in_turn` what is
    reduced and copied meanwhile; it computes backward until the first gradients are reduced (`lead`) and on
    from there. `fetched` runs beside all of that, gathers and what is loaded for those after them, `reduced`
    beside backward, and `tail` is reduced and copied when backward has ended. `ways` are parts of what is
    computed and fetched, one after the other.
    """

    blocking: tuple[Demand, ...]
    forward: tuple[Demand, ...]
    blocked: tuple[Demand, ...]
    in_turn: tuple[Demand, ...]
    lead: tuple[Demand, ...]
    compute: tuple[Demand, ...]
    fetched: tuple[tuple[Demand, ...], ...]
    reduced: tuple[Demand, ...]
    tail: tuple[Demand, ...]
    ways: tuple[tuple[Demand, ...], ...]


class StepParts(NamedTuple):
    """What a step is made of, by when it is due; `at_the_last` comes beside the last backward.

    `launched` is what of the Python thread's way comes before backward; `swept_in_turn` is what of the
    last passes the stream that reduces makes itself; `paces` are shares of backward and of what is reduced
    beside it that follow each other.
    """

    each: MicroStep
    launched: tuple[Demand, ...]
    python: tuple[Demand, ...]
    at_the_last: LastGradients
    swept_in_turn: tuple[Demand, ...]
    paces: tuple[tuple[float, float], ...]
    boundary: Segment
    optimizer: Segment
    afterwards: Segment

    @property
    def micro_step(self) -> Segment:
        """One micro-step, but for what the last one adds."""
        return _micro_step(1.0, self)


def parts_of(f: Facts) -> StepParts:
    """The parts of a step."""
    (launched, *others), (hooked, later), due = launches_by_sweep(f), hooks_by_sweep(f), order(f)
    last, in_turn = last_gradients(f, due), on_the_reducing_stream(f)
    swept_beside, swept_in_turn = (tuple(scaled(last.swept, each)) for each in (1 - in_turn, in_turn))
    return StepParts(
        _in_a_micro_step(f, due),
        (hooked, launched),
        (hooked, launched, later, *others),
        last._replace(swept=(*swept_beside, *swept_in_turn)),
        swept_in_turn,
        _paces(f),
        boundary(f),
        _optimizer_step(f),
        _afterwards(f),
    )


def _paces(f: Facts) -> tuple[tuple[float, float], ...]:
    """Shares of what is computed and reduced that follow each other, at each pace: below stage 3."""
    by_bucket = where(f.plan.zero_stage >= 1, 1 - f.stage3, 0.0) * (1 - f.copies_in_turn)
    if not np.any(by_bucket):
        return ()
    shares = (on_the_way(f, pace) for pace in range(len(REDUCE_PACES)))
    return tuple((where(by_bucket > 0, works, 1.0), by_bucket * sums) for works, sums in shares)


def _micro_steps(plan: Plan, step: StepParts) -> tuple[Segment, ...]:
    """All micro-steps but the last, and the last one."""
    before = _micro_step(plan.accumulation_steps - 1, step)
    return (before, _micro_step(1.0, step, step.at_the_last, step.swept_in_turn))


def _micro_step(
    repeats: float, step: StepParts, last: LastGradients = NOTHING_MORE, in_turn: tuple[Demand, ...] = ()
) -> Segment:
    """What follows what: backward comes when forward is computed, and launched; gradients come with backward.

    They take turns with what is fetched, which comes with forward too, but for copies to the host: a link
    carries those beside copies from it.
    """
    each, held = step.each, last.held
    first, tail = (*each.blocked, *each.in_turn, *each.lead), (*each.tail, *last.tail)
    forward = ((*each.blocking, *each.forward), step.launched)
    waits = last.awaits
    awaited = [d for d in each.reduced if waits and d.term != terms.GRADIENT_PASSES]
    computed = (*first, *each.compute, *last.swept, *awaited, *held)
    moved = (*each.reduced, *in_turn, *last.beside)
    (gathered, *loaded), before_fetches = each.fetched, (*each.blocking, *each.blocked, *each.in_turn)
    chains = (
        *((*before, *after) for before in forward for after in (computed, (*first, *moved))),
        (*step.python, *(each.in_turn if waits else ()), *awaited, *held),
        (*before_fetches, *gathered, *(d for d in moved if d.term not in DOWN)),
        *((*before_fetches, *chain, *(d for d in moved if d.term == terms.GRADIENTS_UP)) for chain in loaded),
    )
    before, swept = (*each.blocking, *each.forward, *first), (*each.compute, *last.swept)
    by_bucket = ((*before, *scaled(swept, works), *scaled(moved, sums)) for works, sums in step.paces)
    chains, ways = (tuple((*chain, *tail) for chain in each) for each in (chains, (*each.ways, *by_bucket)))
    return Segment("micro-step", repeats, chains, ways=ways)


def _in_a_micro_step(f: Facts, due: Order) -> MicroStep:
    """A micro-step by what waits for what."""
    reduced, copied, swept = reduced_each_time(f), copied_each_time(f), [swept_each_time(f)]
    last, early, share = due.in_the_last, 1 - due.in_the_last, forward_share(f)
    in_turn, copies_wait = maximum(waits(f), between_nodes(f)), waits(f)
    # Stage 3 gathers on another stream than the one that makes them.
    behind = (1 - f.stage3) * on_the_reducing_stream(f)
    swept_beside, swept_in_turn = (scaled(swept, early * each) for each in (1 - behind, behind))
    computed, fetched = (*gpu_work(f), _unpacked(f)), _fetched(f)
    return MicroStep(
        blocking=tuple(d for demands, wait, ahead in fetched for d in scaled(demands, wait * ahead)),
        forward=tuple(scaled(computed, share)),
        blocked=tuple(d for demands, wait, ahead in fetched for d in scaled(demands, wait * (1 - ahead))),
        in_turn=(
            *scaled(reduced, early * in_turn),
            *scaled(copied, early * copies_wait),
        ),
        lead=tuple(scaled(computed, (1 - share) * due.in_the_first)),
        compute=(*scaled(computed, (1 - share) * (1 - due.in_the_first)), *swept_beside, *swept_in_turn),
        fetched=tuple(
            tuple(d for demands, wait, _ in stream for d in scaled(demands, 1 - wait))
            for stream in _streams(f, fetched)
        ),
        reduced=(
            *swept_in_turn,
            *scaled(reduced, early * (1 - in_turn)),
            *scaled(copied, early * (1 - copies_wait)),
        ),
        tail=tuple(scaled([*swept, *reduced, *copied], last)),
        ways=_ways(f, (*computed, *swept_beside, *swept_in_turn), fetched),
    )


Fetched = tuple[list[Demand], float, float]
"""What modules need, the share of it that the GPU waits for, and that which is forward's."""


def _streams(f: Facts, fetched: tuple[Fetched, ...]) -> tuple[tuple[Fetched, ...], ...]:
    """Gathers, and what is loaded beside them for those that come: together where both cross one link."""
    return (fetched,) if f.exchanges_over_the_host else (fetched[:1], fetched[1:])


def _ways(
    f: Facts, computed: Sequence[Demand], fetched: tuple[Fetched, ...]
) -> tuple[tuple[Demand, ...], ...]:
    """The longest ways through what is computed and gathered; at the first pace it is what is waited for."""
    if not np.any(f.stage3):
        return ()
    streams = [[d for demands, _, _ in stream for d in demands] for stream in _streams(f, fetched[:2])]
    as_played = f.stage3 * (1 - f.knobs.params_on_nvme)

    def way(pace: int, fetched: list[Demand]) -> tuple[Demand, ...]:
        works = f.stage3 * f.played(lambda fetches, _: fetches.way(pace)[0])
        moved = as_played * f.played(lambda fetches, _: fetches.way(pace)[1])
        return (*scaled(computed, works), *scaled(fetched, moved))

    return tuple(way(pace, stream) for pace in range(1, len(GATHER_PACES)) for stream in streams)


def _fetched(f: Facts) -> tuple[Fetched, ...]:
    """What modules need from elsewhere: gathers, what is loaded for them, and checkpoints up and down."""
    fetched = f.played(lambda fetches, _: fetches.elements)
    missed = f.played(lambda fetches, _: fetches.waited)
    ahead, forward, checkpoints = _ahead(f, fetched, missed), in_forward(f), _checkpoint_copies(f)
    # A copy is waited for by the Python thread, behind the gather that comes before it on their stream
    # (`partition_parameters.py:_all_gather_dtype`): where that is not hidden, the copy is not.
    ahead = ahead * (1 - between_nodes(f))
    gather = f.derivation.apply(
        laws.gathered_bytes_per_step,
        "parameters gathered in one micro-step",
        zero_stage=f.plan.zero_stage,
        fetched_params=fetched,
        param_bytes_per_param=f.element,
        dp_degree=f.plan.dp_degree,
    )
    gathers = [
        Demand("gather", "gather", gather),
        Demand("gather", COLLECTIVE, f.stage3 * f.played(_calls)),
    ]
    return (
        (gathers, 1 - ahead, forward),
        (_parameter_loads(f, fetched), 1 - ahead, forward),
        (checkpoints[:1], f.traits.checkpoints_wait, 1.0),
        (checkpoints[1:], f.traits.checkpoints_wait, 0.0),
    )


def _calls(fetched: Fetches, dp_degree: float) -> float:
    return fetched.calls


def _unpacked(f: Facts) -> Demand:
    """Tensors that one gather received together, copied out of it to where they are computed with."""
    copied = f.derivation.apply(
        laws.joined_copy_bytes,
        "parameters gathered together, copied apart",
        zero_stage=f.plan.zero_stage,
        joined_params=f.played(lambda fetched, _: fetched.joined),
        param_bytes_per_param=f.element,
        dp_degree=f.plan.dp_degree,
    )
    return Demand(terms.UNPACKED, f"{f.gpu}.read", copied)


def _ahead(f: Facts, fetched: float, missed: float) -> float:
    """Share of what is gathered that is asked for while something else still computes."""
    on_nvme = f.knobs.params_on_nvme
    foreseen = 1 - missed / maximum(fetched, 1.0)
    asked = where(f.plan.prefetch_depth > 0, foreseen, 0.0) * (1 - on_nvme)
    return (1 - f.traits.collectives_wait) * (asked + f.traits.reads_ahead_of_nvme * on_nvme)


def _parameter_loads(f: Facts, fetched: float) -> list[Demand]:
    """A shard's way to the GPU each time its tensor is fetched: NVMe to DRAM, DRAM to GPU."""
    apply, loads = f.derivation.apply, []
    if f.nvme:
        shards = f.played(lambda fetched, dp: swapped_in(fetched, dp, f.element))
        read = apply(
            laws.swapped_bytes,
            "parameter shards read from NVMe in one micro-step",
            elements=shards,
            bytes_per_param=f.element,
            share=f.params_on(f.nvme),
        )
        loads.append(Demand("parameter read", f"{f.nvme}.swap_read", read))
    if f.host:
        label = "parameter shards copied to the GPU in one micro-step"
        copied = crossing(f, label, fetched, f.element, f.params_on(f.host) + f.params_on(f.nvme))
        loads.append(Demand("parameter copy", f"{f.host}.read", copied))
    return loads


def _checkpoint_copies(f: Facts) -> list[Demand]:
    if not f.host:
        return []
    copied = f.derivation.apply(
        activation_bytes,
        "activation checkpoints of one rank to the host",
        tokens_per_rank=f.tokens,
        layer_count=float(f.workload.model.layer_count),
        activation_bytes_per_token=f.element * f.workload.model.d_model,
        share=f.full * f.checkpoints_on(f.host),
        ranks_per_instance=1.0,
    )
    return [
        Demand(terms.ACTIVATIONS_DOWN, f"{f.host}.write", copied),
        Demand(terms.ACTIVATIONS_UP, f"{f.host}.read", copied),
    ]


def _optimizer_step(f: Facts) -> Segment:
    apply, plan = f.derivation.apply, f.plan
    updated, passed = (
        apply(
            laws.swept_shard_bytes,
            label,
            params=f.trained,
            bytes_per_param=bytes_per_param,
            dp_degree=where(plan.zero_stage >= 1, plan.dp_degree, 1.0),
            share=f.optimizer_on(f.gpu),
        )
        for label, bytes_per_param in (
            ("optimizer state that the GPU updates in HBM", _updated_on_the_gpu(f)),
            ("what the GPU makes of gradients and of what it updated", beside_the_update(f)),
        )
    )
    memory = f"{f.gpu}.read"
    gpu = (Demand("GPU optimizer", memory, updated), Demand(terms.UPDATE_PASSES, memory, passed))
    # Host memory limits the update: one that moves fewer bytes than Adam's counts as fewer parameters.
    pace = f.host_pass / ADAM_BYTES
    on_host = pace * f.optimizer_share_off_gpu * f.trained / plan.dp_degree * f.ranks
    cpu = Demand("CPU optimizer", "cpu_optimizer", on_host)
    if not f.nvme:
        return Segment("optimizer step", 1.0, ((*gpu, cpu), *_copies_by_tile(f)))
    swaps = _optimizer_swaps(f)
    pipelined = f.pipelined
    serial = Demand(cpu.term, cpu.resource, cpu.amount * (1 - pipelined))
    beside = Demand(cpu.term, cpu.resource, cpu.amount * pipelined)
    lines: tuple[tuple[Demand, ...], ...] = (tuple(swaps),)
    if f.traits.swaps_both_ways and pipelined:
        lines = tuple((swap,) for swap in swaps)
    chains = ((*gpu, serial, *line) for line in (*lines, (beside,)))
    return Segment("optimizer step", 1.0, (*chains, *_copies_by_tile(f)))


def _updated_on_the_gpu(f: Facts) -> float:
    """Bytes per parameter of the update in HBM."""
    if f.of_operators:
        return UNFUSED_ACCESSES * f.master
    return f.optimizer_bytes("update on the GPU", f.master, f.master + f.gpu_moments)


def _copies_by_tile(f: Facts) -> tuple[tuple[Demand, ...], ...]:
    """Copies of updated parameters beside the update, as a chain of their own, where a release has them."""
    return (copies_back(f, 1 - f.stage3),) if f.traits.copies_by_tile else ()


def _optimizer_swaps(f: Facts) -> list[Demand]:
    assert f.nvme
    apply = f.derivation.apply
    state = apply(
        laws.swapped_bytes,
        "master weights and moments, read and written once per step",
        elements=f.trained_shards.owned,
        bytes_per_param=f.states,
        share=f.swaps_optimizer,
    )
    gradients = apply(
        laws.swapped_bytes,
        "fp32 gradients read back",
        elements=f.trained_shards.swappable_gradients,
        bytes_per_param=4.0,
        share=f.swaps_optimizer,
    )
    params = apply(
        laws.swapped_bytes,
        "updated 16-bit parameters written back",
        elements=f.trained_shards.swappable_params,
        bytes_per_param=f.element,
        share=f.params_on(f.nvme),
    )
    return [
        Demand("optimizer read", f"{f.nvme}.swap_read", state + gradients),
        Demand("optimizer write", f"{f.nvme}.swap_write", state + params),
    ]


def _afterwards(f: Facts) -> Segment:
    """Updated parameters return to where forward looks for them."""
    apply, plan = f.derivation.apply, f.plan
    once = where((plan.zero_stage >= 1) & (plan.zero_stage < 3), 1.0, 0.0)
    kept, kept_calls = kept_gathers(f)
    updated = apply(
        laws.reduced_bytes,
        "updated parameters gathered once per step (stages 1 and 2)",
        params=f.trained,
        grad_bytes_per_param=f.element,
        dp_degree=plan.dp_degree,
        passes=once,
    )
    calls = apply(
        laws.bucket_passes,
        "updated parameters gathered once per step (stages 1 and 2)",
        params=f.trained,
        bucket_params=maximum(f.knobs.reduce_bucket, 1.0),
        passes=once,
    )
    gather = (
        Demand(terms.UPDATED_GATHER, "gather", updated + kept),
        Demand(terms.UPDATED_GATHER, COLLECTIVE, calls + kept_calls),
    )
    copies = copies_back(f, f.stage3 if f.traits.copies_by_tile else 1.0)
    on_the_host = (*overflow_check(f), *memory_of_operators(f), *memory_of_casts(f))
    return Segment("parameters back", 1.0, ((*gather, *on_the_host, *copies),))
