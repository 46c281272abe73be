"""How often DeepSpeed stage 3 fetches each parameter, and how much of the model is live at once.

The parameter coordinator is played visit by visit, as
`runtime/zero/partitioned_param_coordinator.py` (`fetch_sub_module`, `release_sub_module`,
`__params_to_release`) does it: a module's parameters are gathered when the module is reached,
read ahead while fewer than `max_live` elements are live, and kept after use when the trace
needs them again within `reuse_distance` elements. The grain is one module, not one layer.
Layers are alike, so a few are played and the rest extrapolated exactly.

What is let go after a module is decided once, in the first micro-step that has a complete trace (the
second), and never again (`__params_to_release` is cached). That micro-step is as all others are where an
optimizer step comes before it, which gathers what is persistent; else it begins without.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from ziplan.plan import Checkpointing
from ziplan.workload.gradients import Reach, reaches
from ziplan.workload.model import Model, Operator, Section

PLAYED_LAYERS = 6
"""Layers played beyond those kept or read ahead; the count of the last one is repeated for the others."""


class Policy(NamedTuple):
    """The coordinator's settings, in elements of unpartitioned tensors."""

    prefetch_bucket: float
    max_live: float
    reuse_distance: float
    persistence_threshold: float
    decided_bare: bool = False
    """Whether the second micro-step, which decides what is let go, begins with nothing gathered."""


class Fetches(NamedTuple):
    """What one micro-step fetches.

    `by_operator` counts fetches summed over all copies of an operator; `elements` is their
    sum in elements; `peak_live` the most elements gathered at once; `peak_tensors` the most
    parameter tensors; `largest_fetch` the most elements that one call gathers of several
    tensors (one alone needs no buffer beside it). Persistent tensors count in none of them.
    """

    by_operator: dict[str, float]
    elements: float
    peak_live: float
    peak_tensors: int
    largest_fetch: float
    on_demand: float = 0.0
    """Elements that a module gathers for itself when it is reached, nothing having read them ahead."""
    calls: float = 0.0
    """Gathers: of one tensor, or of several at once."""
    joined: float = 0.0
    """Elements that were gathered several tensors at once, and are copied out of what was received."""
    joined_tensors: float = 0.0
    """How many such tensors."""


TALLIES = ("elements", "on_demand", "calls", "joined", "joined_tensors")
"""Counts of a micro-step that grow with each layer."""


def fetches(model: Model, checkpointing: int, reentrant: bool, policy: Policy) -> Fetches:
    """Play one micro-step of steady state (the trace is complete)."""
    return _fetches(model, checkpointing, reentrant, policy)


@lru_cache(maxsize=64)
def _fetches(model: Model, checkpointing: int, reentrant: bool, policy: Policy) -> Fetches:
    times = [_played(section, policy) for section in model.sections]

    def play(repeats: Sequence[int]) -> Fetches:
        return _play(visits(model.sections, repeats, checkpointing, reentrant), policy)

    played = play(times)
    counts, tallies = dict(played.by_operator), {name: getattr(played, name) for name in TALLIES}
    for place, section in enumerate(model.sections):
        more = section.repeat - times[place]
        if not more:
            continue
        shorter = play([count - (place == other) for other, count in enumerate(times)])
        for name, count in played.by_operator.items():
            counts[name] += more * (count - shorter.by_operator.get(name, 0.0))
        for name in TALLIES:
            tallies[name] += more * (getattr(played, name) - getattr(shorter, name))
    return played._replace(by_operator=counts, **tallies)


def _played(section: Section, policy: Policy) -> int:
    """How often a section is played: often enough that one time more is like the time before."""
    ahead = policy.max_live if policy.prefetch_bucket > 0 else 0.0
    period = sum(operator.params for layer in section.layers for operator in layer)
    kept = max(ahead, policy.reuse_distance) / max(1, period)
    beyond = ceil(PLAYED_LAYERS / len(section.layers))
    return min(section.repeat, beyond + ceil(min(kept, section.repeat)))


Tensor = tuple[str, int, int]
"""A parameter tensor: its operator's name, which copy of it, which tensor of the copy."""


class Visit(NamedTuple):
    """A module reached by forward or backward: its operator, which copy, whether it is left again at once.

    With it go the frozen tensors of `freed`, modules that were recomputed while backward was in it.
    """

    operator: Operator
    copy: int
    left: bool = True
    freed: tuple[Visit, ...] = ()


def visits(
    sections: Sequence[Section], repeats: Sequence[int], checkpointing: int, reentrant: bool
) -> list[Visit]:
    """Forward through the sections and back, each played as often as `repeats` says."""
    copies: Counter[str] = Counter()
    stretches: list[tuple[bool, list[Visit]]] = []
    for section, times in zip(sections, repeats, strict=True):
        stretches += [
            (section.block, [_next(operator, copies) for operator in layer])
            for layer in section.layers * times
        ]
    forward = [visit for _, modules in stretches for visit in modules]
    backward: list[Visit] = []
    full = checkpointing == Checkpointing.FULL
    # transformers gives the embedding's output a gradient where it recomputes layers.
    flows = reaches([tuple(visit.operator for visit in modules) for _, modules in stretches], full)
    for (block, modules), flow in zip(reversed(stretches), reversed(flows), strict=True):
        backward += _backward(modules, flow, block and full, reentrant)
    return forward + backward


def _backward(modules: list[Visit], flow: Sequence[Reach], recomputed: bool, reentrant: bool) -> list[Visit]:
    """Backward through one layer: only modules whose output has a gradient are reached."""
    reached = [visit for visit, reach in zip(modules, flow, strict=True) if reach.output]
    if not reached or not recomputed:
        return reached[::-1]
    if reentrant:
        return modules + reached[::-1]
    # Backward reaches the last module first and stays in it while the layer is recomputed; what is
    # frozen and was gathered for that is let go with it (`release_sub_module`: ds_recompute_parameters).
    frozen = tuple(visit for visit in modules if not visit.operator.trainable)
    last = modules[-1]
    return [last._replace(left=False), *modules[:-1], last._replace(freed=frozen), *reached[-2::-1]]


def _next(operator: Operator, copies: Counter[str]) -> Visit:
    copies[operator.name] += 1
    return Visit(operator, copies[operator.name] - 1)


def _play(order: Sequence[Visit], policy: Policy) -> Fetches:
    coordinator = Coordinator(order, policy)
    coordinator.micro_step()
    return coordinator.result()


class Coordinator:
    """State of the played coordinator: what is live, what the trace still holds."""

    def __init__(self, order: Sequence[Visit], policy: Policy, bare: bool = False) -> None:
        """`bare`: nothing persistent is gathered when the micro-step begins; it counts as the rest does."""
        self.policy = policy
        self._known: dict[tuple[str, int], dict[Tensor, int]] = {}
        self.modules = [self._tensors(visit) for visit in order]
        self.left = [visit.left for visit in order]
        self.freed = [visit.freed for visit in order]
        self.sizes = {name: size for module in self.modules for name, size in module.items()}
        self.totals = [sum(module.values()) for module in self.modules]
        self.persistent = {n for n, size in self.sizes.items() if size <= policy.persistence_threshold}
        self.stays = set[Tensor]() if bare else self.persistent
        self.gathered = [[name for name in module if name not in self.stays] for module in self.modules]
        self.live: set[Tensor] = set()
        self.live_elements = 0
        self.ahead = deque((name, step) for step, module in enumerate(self.modules) for name in module)
        self.fetched_for: dict[Tensor, int] = {}
        # Only what is read ahead, past tensors that are live, makes a difference to what is let go.
        self.decided: dict[int, set[Tensor]] = {}
        if policy.decided_bare and policy.prefetch_bucket > 0 and not bare:
            first = Coordinator(order, policy, bare=True)
            first.micro_step()
            self.decided = first.decided
        self.counts: Counter[str] = Counter()
        self.elements = 0.0
        self.on_demand = 0.0
        self.calls = self.joined = self.joined_tensors = 0.0
        self.peak_live = 0.0
        self.peak_tensors = 0
        self.largest_fetch = 0.0

    def _tensors(self, visit: Visit) -> dict[Tensor, int]:
        """Tensors that a module computes with; every visit to it finds the same."""
        operator, copy = visit.operator, visit.copy
        tensors = self._known.get((operator.name, copy))
        if tensors is None:
            tensors = {(operator.name, copy, i): size for i, size in enumerate(operator.tensors)}
            if operator.shared_with:
                tensors[(operator.shared_with, 0, 0)] = operator.in_features * operator.out_features
            self._known[(operator.name, copy)] = tensors
        return tensors

    def micro_step(self) -> None:
        """Reach all modules."""
        for step in range(len(self.modules)):
            self.visit(step)
        # Nothing is needed beyond the end of the trace, so every micro-step starts as the first did.
        assert not self.live - self.persistent

    def visit(self, step: int) -> None:
        """Reach one module: fetch it, read ahead, use it, release what nothing near needs."""
        module, before = self.modules[step], self.elements
        self.gather([name for name in self.gathered[step] if name not in self.live])
        self.on_demand += self.elements - before
        self._take_from_trace([name for name in module if self.fetched_for.get(name, -1) < step])
        self._read_ahead()
        if self.left[step]:
            if step not in self.decided:
                self.decided[step] = self._releasable(step)
            self.release(self.decided[step] & self.live)
        if self.freed[step]:
            freed = {name for visit in self.freed[step] for name in self._tensors(visit)}
            self.release((freed & self.live) - self.persistent)

    def gather(self, fetched: Sequence[Tensor]) -> None:
        """Fetch these tensors in one call."""
        if not fetched:
            return
        elements = sum([self.sizes[name] for name in fetched])
        self.live.update(fetched)
        self.live_elements += elements
        self.elements += elements
        self.calls += 1
        if len(fetched) > 1:
            self.largest_fetch = max(self.largest_fetch, elements)
            self.joined += elements
            self.joined_tensors += len(fetched)
        for operator, _, number in fetched:
            self.counts[operator] += number == 0
        self.peak_live = max(self.peak_live, self.live_elements)
        self.peak_tensors = max(self.peak_tensors, len(self.live))

    def release(self, names: set[Tensor]) -> None:
        """Let these tensors go."""
        self.live -= names
        self.live_elements -= sum([self.sizes[name] for name in names])

    def _take_from_trace(self, names: Sequence[Tensor]) -> None:
        taken: set[Tensor] = set()
        while self.ahead and len(taken) < len(names):
            name, step = self.ahead.popleft()
            self.fetched_for[name] = step
            taken.add(name)

    def _read_ahead(self) -> None:
        if self.policy.prefetch_bucket <= 0:
            return
        room = min(self.policy.max_live - self.live_elements, self.policy.prefetch_bucket)
        chosen: list[Tensor] = []
        elements = 0
        while self.ahead and elements < room:
            name, step = self.ahead.popleft()
            self.fetched_for[name] = max(self.fetched_for.get(name, -1), step)
            if name not in self.stays and name not in self.live and name not in chosen:
                chosen.append(name)
                elements += self.sizes[name]
        self.gather(chosen)

    def _releasable(self, step: int) -> set[Tensor]:
        module = set(self.modules[step]) - self.persistent
        names = {name for name in module if self.fetched_for.get(name, -1) <= step}
        traversed, later = 0, step + 1
        while names and traversed < self.policy.reuse_distance and later < len(self.modules):
            names.difference_update(self.modules[later])
            traversed += self.totals[later]
            later += 1
        return names

    def result(self) -> Fetches:
        """The tally of the last micro-step."""
        return Fetches(
            dict(self.counts),
            self.elements,
            self.peak_live,
            self.peak_tensors,
            self.largest_fetch,
            self.on_demand,
            self.calls,
            self.joined,
            self.joined_tensors,
        )
