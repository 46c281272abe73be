"""DeepSpeed's step, module by module, as its coordinator fetches and releases.

Source: DeepSpeed 0.19.8, `runtime/zero/partitioned_param_coordinator.py` (`fetch_sub_module`,
`release_sub_module`), `runtime/zero/stage3.py` (`reduce_independent_p_g_buckets_and_remove_grads`,
`partition_grads`, `step`), `runtime/activation_checkpointing/offload_activations.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes.deepspeed.coordinator import Tensor
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.gradients import REDUCE, waits
from ziplan.runtimes.deepspeed.hooks import HOOKS
from ziplan.runtimes.deepspeed.leaving import holds
from ziplan.runtimes.deepspeed.shards import shards
from ziplan.runtimes.deepspeed.stops import Fetch, Stop, Trace, trace
from ziplan.runtimes.deepspeed.swept import on_the_reducing_stream
from ziplan.runtimes.deepspeed.traffic import parts_of
from ziplan.runtimes.deepspeed.turns import between_nodes
from ziplan.runtimes.deepspeed.update import OPTIMIZER_BUFFERS, update
from ziplan.runtimes.runtime import COLLECTIVE, PYTHON
from ziplan.runtimes.schedule import Buffers, Held, Parts, Schedule, Stage, Work, Works, shares
from ziplan.runtimes.shared import launches
from ziplan.runtimes.shared.compute import share_of_work, work_flops
from ziplan.runtimes.terms import (
    ACTIVATIONS_DOWN,
    ACTIVATIONS_UP,
    GRADIENT_COPIES,
    GRADIENT_PASSES,
    OTHERS_GRADIENTS,
    UNPACKED,
)
from ziplan.workload.training import Workload

if TYPE_CHECKING:
    from ziplan.runtimes.deepspeed.reading.settings import Settings

GATHERED, SWAPPED_IN = "gathered parameters", "parameter swap buffers"

REDUCES_UNDER_WAY = 2
"""Buckets whose reduction the Python thread leaves behind (`stage3.py:max_param_reduce_events`)."""

STASHED_CHECKPOINTS = 2
"""Activation checkpoints that are copied out at once (`offload_activations.py:max_fwd_stash_count`)."""

MISSED = 0.1
"""Share of gathers on demand that is worth a word; the first modules of a micro-step always have some."""

CONVENTIONS = (
    "in stage 3 the hooks of every module take the Python thread as long, and it runs ahead of the GPU",
    "the Python thread is at the module that the GPU computes: what a module lacks, and what is read "
    "ahead in it, is asked for when the module before has computed; it may really run ahead, and the "
    "estimate takes all that is read ahead as hidden",
    "over several nodes a gather or a sum takes turns with what the GPU computes, as measured",
    "reads of parameters from NVMe and their copies to the GPU hold the Python thread, one after the other; "
    "gathers follow on a stream of their own",
    "gradients are reduced and copied in buckets on one stream beside backward; a micro-step ends when "
    "that stream is empty; copies of gradients that are swapped hold the Python thread",
    "attention's own products, and all that passes through the GPU's memory and is no product, are spread "
    "over the matrices",
)


def schedule(
    cluster: Cluster,
    workload: Workload,
    plan: Plan,
    stated: Settings | None = None,
) -> Schedule:
    """The step of one rank."""
    facts = Facts(Derivation(record=False), cluster, workload, plan, stated)
    step = parts_of(facts)
    micro_step, afterwards = step.micro_step, step.afterwards
    micro = trace(facts, work_flops(Parts(micro_step)))
    stops = micro.stops

    def boundary() -> Parts:
        return Parts(step.at_the_last.segment, step.boundary)

    stages = [
        Stage("last micro-step", 1, lambda _: _Written(facts, stops, Parts(micro_step), boundary()).all()),
        Stage("optimizer step", 1, lambda _: update(facts, Parts(step.optimizer), Parts(afterwards))),
    ]
    if plan.accumulation_steps > 1:
        before = int(plan.accumulation_steps) - 1
        stages.insert(
            0, Stage("micro-step", before, lambda _: _Written(facts, stops, Parts(micro_step)).all())
        )
    return Schedule(tuple(stages), tuple(_buffers(facts, micro)), (*CONVENTIONS, *_on_demand(facts, micro)))


def _on_demand(facts: Facts, micro: Trace) -> Iterable[str]:
    """How much the prefetch misses, where that is a good part."""
    ahead = facts.plan.prefetch_depth and not facts.knobs.params_on_nvme
    if ahead and micro.on_demand > MISSED:
        yield (
            f"{micro.on_demand:.0%} of what is gathered is asked for just before the module that needs it, "
            "the prefetch notwithstanding: what a step begins with, and frozen tensors let go of by "
            "recomputation; computation waits for it"
        )


def _buffers(facts: Facts, micro: Trace) -> Iterable[Buffers]:
    plan = facts.plan
    yield Buffers(GATHERED, micro.peak_live * facts.element, "B", gauge=True)
    yield Buffers(SWAPPED_IN, plan.param_buffer_count if facts.params_on(facts.nvme) else 0.0)
    yield Buffers(OPTIMIZER_BUFFERS, plan.optimizer_buffer_count if facts.swaps_optimizer else 0.0)


class _Written:
    """Writes one micro-step down; with `boundary` the last one, whose gradients go to the optimizer."""

    def __init__(self, f: Facts, stops: Sequence[Stop], parts: Parts, boundary: Parts | None = None) -> None:
        self.f, self.stops, self.parts, self.boundary = f, stops, parts, boundary
        self.works = Works()
        self.before = -1
        self.gathered: dict[Tensor, int] = {}
        self.bucket: list[int] = []
        self.reduced: list[int] = []
        self.waits: list[int] = []
        self.stashed: list[int] = []
        self.in_turn = bool(between_nodes(f))
        self.out, self.back = f"{f.host}.write", f"{f.host}.read"
        self.read_from = f"{f.nvme}.swap_read"
        asked = [fetch for stop in self.stops for fetch in stop.fetches]
        self.elements = sum(fetch.elements for fetch in asked)
        self.calls = len(asked)
        self.joined = sum(fetch.elements for fetch in asked if len(fetch.names) > 1)
        self.read = sum(fetch.read for fetch in asked)
        made = {size for stop in self.stops for size in stop.gradients}
        self.swapped = {size: self._swapped_gradients(size) for size in made}
        self.gradients = sum(sum(stop.gradients) for stop in self.stops)
        self.written = sum(self.swapped[size] for stop in self.stops for size in stop.gradients)
        self.flops = shares([stop.flops for stop in self.stops])

    def all(self) -> Sequence[Work]:
        """The work of the micro-step."""
        last = len(self.stops) - 1
        for place, stop in enumerate(self.stops):
            begins = place == 0 or self.stops[place - 1].layer != stop.layer
            ends = place == last or self.stops[place + 1].layer != stop.layer
            self._visit(place, stop, begins, ends)
        self._flush()
        for parts in (self.parts, self.boundary):
            for demand in parts.rest() if parts is not None else ():
                self.works.add("after backward", *demand, (self.before,), line="reduce")
        return self.works.all

    def _visit(self, place: int, stop: Stop, begins: bool, ends: bool) -> None:
        """One module: what it fetches, what it waits for, what it computes, what leaves with it."""
        launched = self._launch(stop)
        for fetch in stop.fetches:
            self._fetch(stop, fetch)
        waits = {self.gathered[name] for name in stop.needs if name in self.gathered}
        if begins and not stop.forward and stop.layer >= 0:
            waits |= self._checkpoint(stop, ACTIVATIONS_UP, {self.before})
        freed: Held = ((GATHERED, stop.freed), (SWAPPED_IN, stop.freed_buffers)) if stop.freed else ()
        if waits or self.waits or freed or stop.flops or stop.gradients:
            self.before = self._compute(place, stop, {self.before, launched, *waits, *self.waits}, freed)
            self.waits = []
        if ends and stop.forward and stop.layer >= 0:
            self.stashed += self._checkpoint(stop, ACTIVATIONS_DOWN, {self.before})
            self.waits += self.stashed[: -STASHED_CHECKPOINTS or None][-1:]
        for elements in stop.gradients:
            if sum(self.bucket) + elements > self.f.knobs.reduce_bucket:
                self._flush()
            self.bucket.append(elements)
        self.ready = self.before

    def _launch(self, stop: Stop) -> int:
        """The Python thread at a module; it runs ahead of the GPU as far as it can."""
        seconds = self.parts.of(HOOKS, PYTHON, 1 / len(self.stops))
        hooked = self.works.add(stop.name, HOOKS, PYTHON, seconds, line=PYTHON) if seconds else -1
        launched = launches.play(self.works, self.parts, stop.name, 1 / len(self.stops))
        return max(hooked, launched)

    def _compute(self, place: int, stop: Stop, after: set[int], freed: Held) -> int:
        """What the GPU does for a module; what the module lets go is free when all of it is done."""
        work = list(share_of_work(self.f, self.parts, self.flops[place]))
        first, *others = [work[0], *(each for each in work[1:] if each[2])]
        number = self.works.add(stop.name, *first, after, gives=() if others else freed)
        for each in others:
            number = self.works.add(stop.name, *each, (number,), gives=freed if each is others[-1] else ())
        return number

    def _fetch(self, stop: Stop, fetch: Fetch) -> None:
        """A shard's way: read from NVMe, copied to the GPU, gathered; asked for when the GPU gets here."""
        held = ((GATHERED, fetch.elements * self.f.element), (SWAPPED_IN, fetch.swapped))
        asked = self.works.mark(stop.name, (self.before,), takes=held)
        share = fetch.elements / self.elements
        if fetch.read:
            amount = self.parts.of("parameter read", self.read_from, fetch.read / self.read)
            asked = self.works.add(
                stop.name, "parameter read", self.read_from, amount, (asked,), line="thread"
            )
        copied = self.parts.of("parameter copy", self.back, share)
        if copied:
            asked = self.works.add(stop.name, "parameter copy", self.back, copied, (asked,), line="thread")
        for resource, part in (("gather", share), (COLLECTIVE, 1 / self.calls)):
            amount = self.parts.of("gather", resource, part)
            asked = self.works.add(stop.name, "gather", resource, amount, (asked,), line="gather")
        if len(fetch.names) > 1:
            memory = f"{self.f.gpu}.read"
            amount = self.parts.of(UNPACKED, memory, fetch.elements / self.joined)
            asked = self.works.add(stop.name, UNPACKED, memory, amount, (asked,))
        self.gathered.update(dict.fromkeys(fetch.names, asked))
        if self.in_turn:
            self.waits.append(asked)

    def _checkpoint(self, stop: Stop, term: str, after: set[int]) -> set[int]:
        """A layer's checkpoint on its way to the host or back, on a stream of its own."""
        resource = self.out if term == ACTIVATIONS_DOWN else self.back
        amount = self.parts.of(term, resource, 1 / self.f.workload.model.layer_count)
        if not amount:
            return set()
        return {self.works.add(stop.name, term, resource, amount, after, line=f"checkpoints {resource}")}

    def _flush(self) -> None:
        """Reduce what is in the bucket and bring its shards to where they are kept."""
        if not self.bucket:
            return
        share, name = sum(self.bucket) / self.gradients, f"bucket {len(self.reduced)}"
        self._swept(name, share)
        summed = self._reduced(name, self.parts, REDUCE, share)
        self._copied(name, self.parts, share)
        if self.boundary is not None and self.f.reduces_in_backward:
            self._reduced(name, self.boundary, REDUCE, share)
            last = self._copied(name, self.boundary, share)
            written = sum(self.swapped[size] for size in self.bucket)
            if self.f.swaps_optimizer or holds(self.f):
                self.waits += last  # the Python thread waits for the copy (of what is swapped, to a buffer)
            if written:
                resource = f"{self.f.nvme}.swap_write"
                amount = self.boundary.of("gradient write", resource, written / self.written)
                self.works.add(name, "gradient write", resource, amount, last, line="gradients to NVMe")
        self.reduced += self.works.last("reduce")
        if waits(self.f):
            self.waits += self.reduced[-1:]
        else:
            self.waits += summed if self.in_turn else self.reduced[: -REDUCES_UNDER_WAY - 1][-1:]
        self.bucket = []

    def _swept(self, name: str, share: float) -> None:
        """Passes over a bucket's gradients, in turn with what the GPU computes and before the reduction.

        Below stage 3 backward waits for the bucket before (`stage_1_and_2.py:average_tensor`).
        """
        memory, boundary = f"{self.f.gpu}.read", self.boundary if self.f.reduces_in_backward else None
        beside, below = on_the_reducing_stream(self.f), self.f.plan.zero_stage < 3
        for parts in (self.parts, boundary):
            amount = parts.of(GRADIENT_PASSES, memory, share) if parts is not None else 0.0
            for part, behind in ((1 - beside, ()), (beside, self.works.last("reduce") if below else ())):
                if amount * part:
                    after = (self.before, *behind)
                    self.before = self.works.add(name, GRADIENT_PASSES, memory, amount * part, after)
                    self.ready = self.before

    def _reduced(self, name: str, parts: Parts, term: str, share: float) -> tuple[int, ...]:
        """A piece of work on the stream that reduces, where there is any."""
        for resource in parts.resources(term):
            amount = parts.of(term, resource, share)
            self.works.add(name, term, resource, amount, (self.ready,), line="reduce")
        return self.works.last("reduce")

    def _copied(self, name: str, parts: Parts, share: float) -> tuple[int, ...]:
        """Copies of gradients on that stream: a rank's own, and those that it waits for."""
        for term in (*GRADIENT_COPIES, OTHERS_GRADIENTS):
            self._reduced(name, parts, term, share)
        return self.works.last("reduce")

    def _swapped_gradients(self, elements: int) -> float:
        """Elements of the fp32 gradient of a tensor's shard that swap."""
        f = self.f
        if not f.swaps_optimizer:
            return 0.0
        return float(shards(((elements, 1, True),), f.plan.dp_degree, f.element).swappable_gradients)
