"""A micro-step as a list of stops: at each module what its hooks fetch, what it computes, what it lets go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ziplan.runtimes.deepspeed.coordinator import Coordinator, Policy, Tensor
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.fetches import fetches
from ziplan.runtimes.deepspeed.knobs import policy
from ziplan.runtimes.deepspeed.leaves import forward_visits
from ziplan.runtimes.deepspeed.shards import shards
from ziplan.runtimes.deepspeed.tiled import tiled
from ziplan.runtimes.deepspeed.visits import Visit, visits
from ziplan.runtimes.deepspeed.worked import computed
from ziplan.runtimes.shared import sweeps


class Fetch(NamedTuple):
    """One call of the coordinator: so many elements gathered, shard elements read from NVMe, tensors read."""

    names: tuple[Tensor, ...]
    elements: float
    read: float
    swapped: float


class Stop(NamedTuple):
    """What happens at one visit: fetches asked for, FLOPs, what is let go after it, gradients made."""

    name: str
    layer: int
    forward: bool
    flops: float
    needs: tuple[Tensor, ...]
    fetches: tuple[Fetch, ...]
    freed: float
    freed_buffers: float
    gradients: tuple[int, ...]


class Trace(NamedTuple):
    """A micro-step's stops, most elements gathered at once, share of what modules gather for themselves."""

    stops: tuple[Stop, ...]
    peak_live: float
    on_demand: float


def trace(f: Facts, flops: float) -> Trace:
    """One micro-step, which computes so many FLOPs."""
    model, plan = tiled(f.workload.model, int(f.plan.tile_count)), f.plan
    f = replace(f, workload=replace(f.workload, model=model))
    mode, forward = int(plan.activation_checkpointing), sum(forward_visits(model, f.knobs.leaves))
    repeats, dropout = [each.repeat for each in model.sections], f.knobs.dropout
    order = visits(model, repeats, mode, f.reentrant, f.knobs.leaves, dropout)
    known = {(m.operator.name, m.copy): m for row in sweeps.modules(f, flops) for m in row}
    modules = [_whole(visit, known) for visit in order]
    work = computed(order, modules, forward)
    coordinator, peak_live = None, 0.0
    if plan.zero_stage >= 3:
        asked = policy(model, plan, f.knobs)
        coordinator = _Logged(order, asked)
        peak_live = fetches(model, mode, f.reentrant, asked, dropout).peak_live
    stop = _Stops(f, coordinator)
    stops = tuple(
        stop.at(step, visit, modules[step], work[step], step < forward) for step, visit in enumerate(order)
    )
    gathered = coordinator.elements if coordinator is not None else 0.0
    on_demand = coordinator.on_demand / gathered if coordinator is not None and gathered else 0.0
    return Trace(stops, peak_live, on_demand)


class _Module(NamedTuple):
    """What hooks see as one: its name, its layer, and FLOPs of each sweep."""

    name: str
    layer: int
    forward: float
    recompute: float
    backward: float


def _whole(visit: Visit, known: dict[tuple[str, int], sweeps.Module]) -> _Module:
    parts = [known[operator.name, copy] for operator, copy in visit.parts]
    first = parts[0]
    block = first.operator.name.partition(".")[0]
    return _Module(
        f"layer {first.layer} {block}" if visit.leaf else first.name,
        first.layer,
        sum(part.forward for part in parts),
        sum(part.recompute for part in parts),
        sum(part.backward for part in parts),
    )


class _Logged(Coordinator):
    """The coordinator, telling at each visit what it asked for and what it let go."""

    def __init__(self, order: Sequence[Visit], policy: Policy) -> None:
        super().__init__(order, policy)
        self.asked: list[tuple[Tensor, ...]] = []
        self.let_go: set[Tensor] = set()

    def visit(self, step: int) -> None:
        """Reach one module, with a fresh log."""
        self.asked, self.let_go = [], set()
        super().visit(step)

    def gather(self, fetched: Sequence[Tensor]) -> None:
        """Note a fetch."""
        super().gather(fetched)
        if fetched:
            self.asked.append(tuple(fetched))

    def release(self, names: set[Tensor]) -> None:
        """Note what is let go."""
        super().release(names)
        self.let_go |= names


class _Stops:
    """Makes stops, one visit after the other; without a coordinator nothing is fetched."""

    def __init__(self, f: Facts, coordinator: _Logged | None) -> None:
        self.f, self.coordinator = f, coordinator
        self._sizes: dict[int, tuple[float, float]] = {}

    def at(self, step: int, visit: Visit, module: _Module, work: tuple[str, float], forward: bool) -> Stop:
        """The stop at a visit."""
        sweep, flops = work
        asked: tuple[Fetch, ...] = ()
        needs: tuple[Tensor, ...] = ()
        freed = buffers = 0.0
        coordinator = self.coordinator
        if coordinator is not None:
            coordinator.visit(step)
            asked = tuple(self._fetch(coordinator, names) for names in coordinator.asked)
            needs = tuple(coordinator.modules[step])
            freed = sum(coordinator.sizes[name] for name in coordinator.let_go) * self.f.element
            buffers = sum(self._shard(coordinator.sizes[name])[1] for name in coordinator.let_go)
        made = visit.trained if sweep == "backward" else ()
        gradients = tuple(size for operator in made for size in operator.tensors)
        name = f"{module.name} {sweep}"
        return Stop(name, module.layer, forward, flops, needs, asked, freed, buffers, gradients)

    def _fetch(self, coordinator: _Logged, names: tuple[Tensor, ...]) -> Fetch:
        sizes = [coordinator.sizes[name] for name in names]
        swapped = [self._shard(size) for size in sizes]
        return Fetch(names, sum(sizes), sum(read for read, _ in swapped), sum(one for _, one in swapped))

    def _shard(self, elements: int) -> tuple[float, float]:
        """(elements of a tensor's shard that are read from NVMe, 1 where it has a buffer for that)."""
        if elements not in self._sizes:
            f = self.f
            swappable = shards(((elements, 1, True),), f.plan.dp_degree, f.element).swappable_params
            read = float(swappable) if f.params_on(f.nvme) else 0.0
            self._sizes[elements] = read, float(read > 0)
        return self._sizes[elements]
