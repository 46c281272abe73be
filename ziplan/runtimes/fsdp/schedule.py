"""FSDP2's step, group by group: one `fully_shard` a layer and one of the root.

Source: PyTorch 2.13, `torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py` (`unshard`,
`wait_for_unshard`, `_backward_prefetch`, `post_backward`), `_fsdp_state.py`
(`_root_pre_forward`, `_root_post_backward_final_callback`), `_fsdp_collectives.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes.fsdp.facts import Facts
from ziplan.runtimes.fsdp.traffic import program
from ziplan.runtimes.runtime import COLLECTIVE
from ziplan.runtimes.schedule import Parts, Schedule, Stage, Work, Works, shares
from ziplan.runtimes.shared import launches
from ziplan.runtimes.shared.compute import share_of_work, work_flops
from ziplan.runtimes.shared.facts import READ_AND_WRITTEN
from ziplan.runtimes.shared.sweeps import Module, modules
from ziplan.runtimes.terms import GRADIENT_PASSES, GRADIENTS_DOWN, PACKED, SUMMED, UNPACKED
from ziplan.workload.training import Workload

GROUPS_AHEAD = 2
"""In forward a group's gather waits for the group two before it to be copied out (`wait_for_unshard`)."""

CONVENTIONS = (
    "in forward a layer's copy and gather begin when the layer two before it begins to compute, in backward "
    "when the one after it does",
    "gathers and reduce-scatters share one communicator and take turns in the order in which they are issued",
    "shards are cast and copied together beside computation, and sums are cast and added beside it; copies "
    "out of what was gathered and into what is summed take turns with it",
    "backward goes on when the reduction before the last is done; where gradients are added on the host, "
    "when they are added",
    "attention's own products, and all that passes through the GPU's memory and is no product, are spread "
    "over the matrices",
)


def schedule(cluster: Cluster, workload: Workload, plan: Plan) -> Schedule:
    """The step of one rank; every tensor is sharded over all ranks."""
    facts = Facts(Derivation(record=False), cluster, workload, plan)
    micro_step, optimizer = program(facts.derivation, cluster, workload, plan)
    units = _units(modules(facts, work_flops(Parts(micro_step))))
    first = Stage(
        "first micro-step", 1, lambda _: _Written(facts, Parts(micro_step), units, adds=False).all()
    )
    others = Stage(
        "micro-step",
        int(plan.accumulation_steps) - 1,
        lambda _: _Written(facts, Parts(micro_step), units, adds=True).all(),
    )
    update = Stage("optimizer step", 1, lambda _: _update(Parts(optimizer)))
    return Schedule((first, *([others] if others.repeats else []), update), (), CONVENTIONS)


class _Unit(NamedTuple):
    """A layer, or a stretch of the root's own modules; bytes are those that are copied from the host."""

    name: str
    place: int
    layer: int
    params: float
    trained: float
    forward: float
    backward: float

    def copied(self, f: Facts) -> float:
        """Bytes as they are held on the host."""
        return f.master * self.trained + f.element * (self.params - self.trained)

    def packed(self, f: Facts) -> float:
        """Bytes that are cast, and copied together, to be gathered."""
        return f.recast * self.trained + READ_AND_WRITTEN * f.element * self.params


def _units(rows: Sequence[Sequence[Module]]) -> list[_Unit]:
    return [
        _Unit(
            f"layer {row[0].layer}" if row[0].layer >= 0 else row[0].name,
            place,
            row[0].layer,
            float(sum(module.operator.params for module in row)),
            float(sum(module.operator.params for module in row if module.operator.trainable)),
            sum(module.forward for module in row),
            sum(module.recompute + module.backward for module in row),
        )
        for place, row in enumerate(rows)
    ]


class _Written:
    """Writes one micro-step down; `adds` where gradients are added to those of an earlier one."""

    def __init__(self, f: Facts, parts: Parts, units: Sequence[_Unit], adds: bool) -> None:
        self.f, self.parts, self.units, self.adds = f, parts, units, adds
        self.works, self.before = Works(), -1
        self.layers = [unit for unit in units if unit.layer >= 0]
        own = [unit for unit in units if unit.layer < 0]
        self.root = _Unit("root", -1, -1, sum(u.params for u in own), sum(u.trained for u in own), 0.0, 0.0)
        # A layer that backward does not reach is not gathered again, but the last one is: ahead, for
        # the root.
        self.left = [unit for unit in self.layers if unit.backward] or self.layers[-1:]
        fetched = [self.root, *self.layers, *self.left]
        self.params, self.gathers = sum(unit.params for unit in fetched), len(fetched)
        self.reductions = 1 + sum(1 for unit in self.left if unit.trained)
        self.copied = sum(unit.copied(f) for unit in fetched)
        self.packed = sum(unit.packed(f) for unit in fetched)
        self.trained = sum(unit.trained for unit in (self.root, *self.layers))
        flops = shares([flops for unit in units for flops in (unit.forward, unit.backward)])
        self.forward, self.backward = flops[::2], flops[1::2]
        self.offloaded = bool(f.offloaded)
        self.reduced: list[int] = []
        self.begun: list[int] = []
        self.ready: dict[int, int] = {}

    def all(self) -> Sequence[Work]:
        """The work of the micro-step."""
        root = self._unpack(self.root, "root forward", self._gather(self.root, "forward", -1))
        for unit in self.units:
            self._forward(unit, root)
        for unit in reversed(self.units):
            self._backward(unit)
        self._reduce(self.root)
        for demand in self.parts.rest():
            if demand.term != "gradient accumulation":
                self.works.add("after backward", *demand, (self.before,), line="reduce")
        return self.works.all

    def _forward(self, unit: _Unit, root: int) -> None:
        """A layer is gathered ahead; what is the root's own finds its group gathered."""
        name = f"{unit.name} forward"
        needs = root
        if unit.layer >= 0:
            after = self.begun[-GROUPS_AHEAD] if len(self.begun) >= GROUPS_AHEAD else -1
            needs = self._gather(unit, "forward", after)
        begins = self.works.mark(name, (self.before, root, needs))
        if unit.layer >= 0:
            begins = self._unpack(unit, name, begins)
            self.begun.append(begins)
        self.before = self._compute(name, self.forward[unit.place], begins)

    def _backward(self, unit: _Unit) -> None:
        """A layer's gather begins when the layer after it begins to compute; its gradients leave with it."""
        name = f"{unit.name} backward"
        if self.left and self.left[-1] is unit:
            self.ready[unit.layer] = self._gather(self.left.pop(), "backward", self.before)
        ready = self.ready.pop(unit.layer, -1)
        begins = self.works.mark(name, (self.before, ready, *self.reduced[:-1][-1:]))
        if ready >= 0:
            begins = self._unpack(unit, name, begins)
        if self.left and not self.ready:
            ahead = self.left.pop()
            self.ready[ahead.layer] = self._gather(ahead, "backward", begins)
        self.before = self._compute(name, self.backward[unit.place], begins)
        if unit.layer >= 0 and unit.trained:
            self._reduce(unit)

    def _compute(self, name: str, share: float, begins: int) -> int:
        launched = launches.play(self.works, self.parts, name, share)
        for work in share_of_work(self.f, self.parts, share):
            begins = self.works.add(name, *work, (begins, launched))
        return begins

    def _gather(self, unit: _Unit, sweep: str, after: int) -> int:
        """A group's shards copied from the host where they are kept there, then gathered."""
        name = f"{unit.name} {sweep}"
        asked = after
        for resource in self.parts.resources("parameter copy"):
            share = unit.copied(self.f) / self.copied
            amount = self.parts.of("parameter copy", resource, share)
            asked = self.works.add(name, "parameter copy", resource, amount, (asked,), line="copy in")
        asked = self._passed(name, PACKED, unit.packed(self.f) / self.packed, (asked,), line="copy in")
        for resource, share in (("gather", unit.params / self.params), (COLLECTIVE, 1 / self.gathers)):
            amount = self.parts.of("gather", resource, share)
            asked = self.works.add(name, "gather", resource, amount, (asked,), line="communicator")
        return asked

    def _unpack(self, unit: _Unit, name: str, gathered: int) -> int:
        """A group copied out of what was gathered."""
        return self._passed(name, UNPACKED, unit.params / self.params, (gathered,))

    def _passed(self, name: str, term: str, share: float, after: tuple[int, ...], line: str = "") -> int:
        """A pass through the GPU's memory, where there is one; what is waited for after it."""
        memory = f"{self.f.gpu}.read"
        amount = self.parts.of(term, memory, share)
        return self.works.add(name, term, memory, amount, after, line=line) if amount else after[0]

    def _reduce(self, unit: _Unit) -> None:
        """A group's gradients: reduce-scattered, copied to the host, and there added to earlier ones."""
        name = f"{unit.name} gradients"
        share = unit.trained / self.trained if self.trained else 0.0
        self.before = self._passed(name, GRADIENT_PASSES, share, (self.before,))
        after: tuple[int, ...] = (self.before, *self.works.last("out"))
        for resource, part in (("gather", share), (COLLECTIVE, 1 / self.reductions)):
            amount = self.parts.of("gradient reduce", resource, part)
            last = self.works.add(name, "gradient reduce", resource, amount, after, line="communicator")
            after = (last,)
        last = self._passed(name, SUMMED, share, (last,), line="out")
        for resource in self.parts.resources(GRADIENTS_DOWN):
            copied = self.parts.of(GRADIENTS_DOWN, resource, share)
            last = self.works.add(name, GRADIENTS_DOWN, resource, copied, (last,), line="out")
        steps = self.f.plan.accumulation_steps
        if self.adds and self.offloaded and steps > 1:
            # The program spreads what all micro-steps but the first add over all of them.
            share *= steps / (steps - 1)
            added = self.parts.of("gradient accumulation", "cpu_optimizer", share)
            last = self.works.add(name, "gradient accumulation", "cpu_optimizer", added, (last,))
            self.before = self.works.mark(name, (last, self.before))
        self.reduced.append(last)


def _update(parts: Parts) -> Sequence[Work]:
    """The optimizer's pass, after which nothing is left."""
    works, last = Works(), -1
    for demand in parts.rest():
        last = works.add("optimizer", *demand, (last,))
    return works.all
