"""The ideal runtime's step, layer by layer.

A layer is streamed: its slices are gathered as they arrive, into one of `prefetch_depth` buffers
beside that of the layer in use, which is free again when the layer has computed. Layers are fetched
in the order in which they are needed, over the turn from forward to backward and over the ends of
micro-steps, as buffers allow. Gradients leave behind backward. The optimizer's pass stands alone, in
sub-groups: one is read while another is updated and a third written.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes.ideal.model import ledger, program
from ziplan.runtimes.runtime import Ledger
from ziplan.runtimes.schedule import OWN, Buffers, Held, Parts, Schedule, Stage, Work, Works, shares
from ziplan.runtimes.shared.facts import Facts
from ziplan.runtimes.shared.sweeps import Module, modules
from ziplan.workload.training import Workload

LAYERS, STATES = "layer buffers", "optimizer buffers"
PASS_BUFFERS = 3.0
"""Sub-groups of optimizer state in memory at once: one coming, one at work, one going."""


class Unit(NamedTuple):
    """What is fetched at once: a layer, or what lies before or after the layers."""

    name: str
    place: int
    params: float
    trained: float
    forward: float
    backward: float
    block: bool


def schedule(
    cluster: Cluster,
    workload: Workload,
    plan: Plan,
    owner_broadcast: bool = False,
    over_the_turn: bool = True,
) -> Schedule:
    """The step of one rank.

    With `owner_broadcast` a layer is read whole by the rank that owns it, over that rank's links,
    and the broadcast costs nothing (the article's comparison). Without `over_the_turn` backward's
    first fetch waits until forward has ended.
    """
    facts = Facts(Derivation(record=False), cluster, workload, plan)
    micro_step, update = program(facts.derivation, cluster, workload, plan)
    book = ledger(facts.derivation, cluster, workload, plan)
    player = _MicroSteps(facts, Parts(micro_step), book, owner_broadcast, over_the_turn)
    sub_groups = max(1, ceil(facts.trained / plan.dp_degree / plan.sub_group_params))
    return Schedule(
        stages=(
            Stage("micro-step", int(plan.accumulation_steps), player.works, carries=True),
            Stage("optimizer step", 1, lambda _: _update(facts, Parts(update), sub_groups)),
        ),
        buffers=(
            Buffers(LAYERS, plan.prefetch_depth + 1),
            Buffers(STATES, PASS_BUFFERS),
            Buffers(facts.gpu, cluster.node.tiers[facts.gpu].capacity, "B", gauge=True, held=player.resident),
        ),
        conventions=_conventions(owner_broadcast, over_the_turn),
    )


def _conventions(owner_broadcast: bool, over_the_turn: bool) -> tuple[str, ...]:
    fetched = (
        "a layer is read whole by its owner, the next by the next rank; its broadcast costs nothing"
        if owner_broadcast
        else "a layer's slices are read by all ranks at once and gathered as they arrive"
    )
    turn = "runs on over" if over_the_turn else "stops at"
    return (
        fetched,
        "prefetch_depth counts buffers beside that of the layer in use",
        f"prefetch {turn} the turn from forward to backward, and runs on from micro-step to micro-step",
        "the optimizer holds three sub-groups at once: one coming, one at work, one going",
    )


class _MicroSteps:
    """Writes micro-steps down, as many as asked."""

    def __init__(
        self, facts: Facts, parts: Parts, book: Ledger, owner_broadcast: bool, over_the_turn: bool
    ) -> None:
        self.facts, self.parts = facts, parts
        self.owner_broadcast, self.over_the_turn = owner_broadcast, over_the_turn
        self.units = _units(modules(facts, parts.of("compute", "gpu", 1.0)))
        self.fetched = shares([unit.params for unit in self.units])
        self.left = shares([unit.trained for unit in self.units])
        lines = {line.name: float(line.high) for line in book.lines if line.tier == facts.gpu}
        blocks = sum(unit.block for unit in self.units)
        self.kept = lines["activations"] / blocks
        self.recomputed, self.logits = lines["recomputed layer"], lines["logits and loss"]
        moving = ("layers in flight", "activations", "recomputed layer", "logits and loss")
        self.resident = sum(amount for name, amount in lines.items() if name not in moving)
        buffers = facts.plan.prefetch_depth + 1
        self.buffer = ((LAYERS, 1.0), (facts.gpu, lines["layers in flight"] / buffers))

    def works(self, count: int) -> Sequence[Work]:
        """So many micro-steps one after the other, each reaching into the next."""
        works, done = Works(), -1
        for _ in range(count):
            for unit in self.units:
                done = self._swept(works, unit, done, forward=True)
            turn = done
            for unit in reversed(self.units):
                done = self._swept(works, unit, done, forward=False, turn=turn)
        return works.all

    def _swept(self, works: Works, unit: Unit, before: int, forward: bool, turn: int = -1) -> int:
        """One unit's fetch and compute in one sweep, and what leaves; the place of its compute."""
        name = f"{unit.name} {'forward' if forward else 'backward'}"
        waits = () if forward or self.over_the_turn else (turn,)
        fetched = self._fetch(works, unit, name, waits)
        takes, gives = self._activations(unit, forward)
        flops = unit.forward if forward else unit.backward
        # A checkpoint stays from forward on; a recomputed layer's activations come and go with it.
        number = works.add(
            name,
            "compute",
            "gpu",
            flops,
            (*fetched, before),
            takes=takes,
            gives=(*self.buffer, *gives),
        )
        if not forward:
            for resource in self.parts.resources("gradient stream"):
                amount = self.parts.of("gradient stream", resource, self.left[unit.place])
                works.add(name, "gradient stream", resource, amount, (number,), line=resource)
        return number

    def _activations(self, unit: Unit, forward: bool) -> tuple[Held, Held]:
        """GPU memory that a unit's compute takes at its start and gives back at its end."""
        gpu = self.facts.gpu
        if not unit.block:
            logits = self.logits if unit.forward and forward else 0.0
            return ((gpu, logits),), ((gpu, logits),)
        if forward:
            return ((gpu, self.kept),), ()
        return ((gpu, self.recomputed),), ((gpu, self.recomputed + self.kept),)

    def _fetch(self, works: Works, unit: Unit, name: str, waits: tuple[int, ...]) -> list[int]:
        """A buffer, and everything that fills it; the places of what must be done before it is full."""
        begun = works.mark(name, waits, takes=self.buffer)
        # Half of what climbs in a micro-step climbs in each sweep.
        share = self.fetched[unit.place] / 2
        owner, whole = OWN, 1.0
        if self.owner_broadcast:
            ranks = int(self.facts.plan.dp_degree)
            owner, whole = unit.place % ranks, float(ranks)
        full = [begun]
        for resource in self.parts.resources("parameter stream"):
            amount = self.parts.of("parameter stream", resource, share) * whole
            line = f"{resource} {owner}"
            full.append(
                works.add(name, "parameter stream", resource, amount, (begun,), line=line, owner=owner)
            )
        if not self.owner_broadcast:
            amount = self.parts.of("gather", "gather", share)
            full.append(works.add(name, "gather", "gather", amount, (begun,), line="gather"))
        return full


def _units(rows: Sequence[Sequence[Module]]) -> list[Unit]:
    """A unit for each layer and for what lies between; parameters that are another's count with those."""
    units = []
    for place, row in enumerate(rows):
        layer = row[0].layer
        block = layer >= 0
        units.append(
            Unit(
                name=f"layer {layer}" if block else row[0].name,
                place=place,
                params=float(sum(module.operator.params for module in row)),
                trained=float(sum(m.operator.params for m in row if m.operator.trainable)),
                forward=sum(module.forward for module in row),
                backward=sum(module.recompute + module.backward for module in row),
                block=block,
            )
        )
    return units


def _update(facts: Facts, parts: Parts, sub_groups: int) -> Sequence[Work]:
    """The optimizer's pass: sub-groups read, updated and written, each kind of work in order."""
    works, share = Works(), 1 / sub_groups
    outer = [name for name in facts.cluster.node.tiers if name != facts.gpu]
    for number in range(sub_groups):
        name = f"sub-group {number}"
        on_gpu = f"{facts.gpu}.read"
        works.add(name, "GPU optimizer", on_gpu, parts.of("GPU optimizer", on_gpu, share), line="gpu")
        ready = works.mark(name, (), takes=((STATES, 1.0),))
        read = [ready]
        for tier in outer:
            amount = parts.of("optimizer read", f"{tier}.swap_read", share)
            if amount:
                read.append(
                    works.add(
                        name, "optimizer read", f"{tier}.swap_read", amount, (ready,), line=f"{tier} in"
                    )
                )
        updated = works.add(
            name,
            "CPU optimizer",
            "cpu_optimizer",
            parts.of("CPU optimizer", "cpu_optimizer", share),
            read,
            line="cpu",
        )
        written = [updated]
        for tier in outer:
            amount = parts.of("optimizer write", f"{tier}.swap_write", share)
            if amount:
                place = works.add(
                    name, "optimizer write", f"{tier}.swap_write", amount, (updated,), line=f"{tier} out"
                )
                written.append(place)
        works.mark(name, written, gives=((STATES, 1.0),))
    return works.all
