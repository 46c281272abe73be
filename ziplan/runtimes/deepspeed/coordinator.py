"""DeepSpeed's parameter coordinator, played visit by visit.

Source: DeepSpeed 0.19.8, `runtime/zero/partitioned_param_coordinator.py` (`fetch_sub_module`,
`release_sub_module`, `__params_to_release`): a module's parameters are gathered when the module is reached,
read ahead while fewer than `max_live` elements are live, and kept after use when the trace needs them again
within `reuse_distance` elements.

What is let go after a module is decided once, in the first micro-step that has a complete trace (the
second), and never again (`__params_to_release` is cached). That micro-step is as all others are where an
optimizer step comes before it, which gathers what is persistent; else it begins without.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from ziplan.runtimes.deepspeed.visits import Part, Visit


class Policy(NamedTuple):
    """The coordinator's settings, in elements of unpartitioned tensors."""

    prefetch_bucket: float
    max_live: float
    reuse_distance: float
    persistence_threshold: float
    decided_bare: bool = False
    """Whether the second micro-step, which decides what is let go, begins with nothing gathered."""
    leaves: tuple[str, ...] = ()
    """Classes of modules that are one module with all that is in them."""


Tensor = tuple[str, int, int]
"""A parameter tensor: its operator's name, which copy of it, which tensor of the copy."""


def _places(modules: Iterable[Iterable[Tensor]]) -> dict[Tensor, list[int]]:
    """The steps at which each tensor is owned by the module that is reached."""
    found: dict[Tensor, list[int]] = defaultdict(list)
    for step, module in enumerate(modules):
        for name in module:
            found[name].append(step)
    return found


class Coordinator:
    """State of the played coordinator: what is live, what the trace still holds."""

    def __init__(self, order: Sequence[Visit], policy: Policy, bare: bool = False) -> None:
        """`bare`: nothing persistent is gathered when the micro-step begins; it counts as the rest does."""
        self.policy = policy
        self._known: dict[tuple[str, int], dict[Tensor, int]] = {}
        self.order = order
        self.modules = [self._tensors(visit) for visit in order]
        self.fetched = [self._of(visit.fetched) for visit in order]
        self.sizes = {name: size for module in self.modules for name, size in module.items()}
        own = [{} if visit.leaf else module for visit, module in zip(order, self.modules, strict=True)]
        both = list(zip(self.fetched, own, strict=True))
        self._before = [0, *accumulate(sum(each.values()) + sum(module.values()) for each, module in both)]
        self._uses = _places([(*each, *module) for each, module in both])
        self.persistent = {n for n, size in self.sizes.items() if size <= policy.persistence_threshold}
        self.stays = set[Tensor]() if bare else self.persistent
        kept = (module for visit, module in zip(order, self.modules, strict=True) if visit.lets_go == ())
        self.leftover = {name for module in kept for name in module} - self.persistent
        """What the last modules of backward do not let go, but backward when it has ended."""
        self.live: set[Tensor] = set()
        self.live_elements = 0
        # Before the module of each visit comes what the one around it fetches.
        traced = (module for both in zip(self.fetched, self.modules, strict=True) for module in both)
        self.ahead = deque((name, place) for place, module in enumerate(traced) for name in module)
        self.fetched_for: dict[Tensor, int] = {}
        # Only what is read ahead, past tensors that are live, makes a difference to what is let go.
        self.decided: dict[int, set[Tensor]] = {}
        if policy.decided_bare and policy.prefetch_bucket > 0 and not bare:
            first = Coordinator(order, policy, bare=True)
            first.micro_step()
            self.decided = first.decided
        self.counts: Counter[int] = Counter()
        self.elements = 0.0
        self.on_demand = 0.0
        self.calls = self.joined = self.joined_tensors = 0.0
        self.peak_live = 0.0
        self.peak_tensors = 0
        self.largest_fetch = 0.0

    def _tensors(self, visit: Visit) -> dict[Tensor, int]:
        """Tensors that a module computes with; every visit to it finds the same."""
        return self._of(visit.parts) if visit.leaf else self._of_part(visit.parts[0])

    def _of(self, parts: Sequence[Part]) -> dict[Tensor, int]:
        return {name: size for part in parts for name, size in self._of_part(part).items()}

    def _of_part(self, part: Part) -> dict[Tensor, int]:
        operator, copy = part
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
        """Reach one module: fetch it, read ahead, use it, release what nothing near needs.

        Those without parameters that come before it read ahead as well, and so may one that is around it
        after it has fetched what it looks at.
        """
        visit = self.order[step]
        needed = self.fetched[step] | self.modules[step]
        lacking = [name for name in needed if name not in self.live and name not in self.stays]
        self.on_demand += sum([needed[name] for name in lacking])
        for _ in range(visit.others):
            if not self._read_ahead():
                break
        if visit.fetched:
            self._fetch(2 * step, self.fetched[step])
        self._fetch(2 * step + 1, self.modules[step])
        if visit.left:
            if step not in self.decided:
                self.decided[step] = self._releasable(step)
            self.release(self.decided[step] & self.live)
        if visit.freed:
            self.release((self._of(visit.freed).keys() & self.live) - self.persistent)
        if step == len(self.order) - 1:
            self.release(self.live & self.leftover)

    def _fetch(self, place: int, module: dict[Tensor, int]) -> None:
        missing = [name for name in module if name not in self.live and name not in self.stays]
        self.gather(missing)
        self._take_from_trace([name for name in module if self.fetched_for.get(name, -1) < place])
        self._read_ahead()

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
        self.counts.update([self.sizes[name] for name in fetched])
        self.peak_live = max(self.peak_live, self.live_elements)
        self.peak_tensors = max(self.peak_tensors, len(self.live))

    def release(self, names: set[Tensor]) -> None:
        """Let these tensors go."""
        if not names:
            return
        self.live -= names
        self.live_elements -= sum([self.sizes[name] for name in names])

    def _take_from_trace(self, names: Sequence[Tensor]) -> None:
        taken: set[Tensor] = set()
        while self.ahead and len(taken) < len(names):
            name, place = self.ahead.popleft()
            self.fetched_for[name] = place
            taken.add(name)

    def _read_ahead(self) -> bool:
        """Gather what comes next, as far as there is room; whether anything was."""
        if self.policy.prefetch_bucket <= 0 or not self.ahead:
            return False
        room = min(self.policy.max_live - self.live_elements, self.policy.prefetch_bucket)
        chosen: list[Tensor] = []
        elements = 0
        while self.ahead and elements < room:
            name, place = self.ahead.popleft()
            self.fetched_for[name] = max(self.fetched_for.get(name, -1), place)
            if name not in self.stays and name not in self.live and name not in chosen:
                chosen.append(name)
                elements += self.sizes[name]
        self.gather(chosen)
        return bool(chosen)

    def _releasable(self, step: int) -> set[Tensor]:
        visit = self.order[step]
        own = self.modules[step] if visit.lets_go is None else self._of(visit.lets_go)
        module = set(own) - self.persistent
        if not module:
            return module
        # What was read ahead for a later visit stays, but not for the very next of all modules.
        last = 2 * (step + self._next_at_once(step)) + 1
        names = {name for name in module if self.fetched_for.get(name, -1) <= last}
        unneeded = self._unneeded_after_leaf if self.order[step].leaf else self._unneeded
        return unneeded(names, step)

    def _next_at_once(self, step: int) -> bool:
        """Whether nothing is reached between this visit and the next: its own backward, once recomputed."""
        if step + 1 == len(self.order):
            return False
        following = self.order[step + 1]
        return self.order[step].leaf or (following.others == 0 and not following.fetched)

    def _unneeded(self, names: set[Tensor], step: int) -> set[Tensor]:
        """Those that no module within the reuse distance owns itself: what is in a leaf counts nowhere.

        `__params_to_release` looks into the modules that come by the one that it lets go of.
        """
        begin, distance = self._before[step + 1], self.policy.reuse_distance
        kept = set()
        for name in names:
            steps = self._uses.get(name, ())
            place = bisect_right(steps, step)
            if place < len(steps) and self._before[steps[place]] - begin < distance:
                kept.add(name)
        return names - kept

    def _unneeded_after_leaf(self, names: set[Tensor], step: int) -> set[Tensor]:
        """The same after a leaf, where all that is in the modules that come counts.

        What is in a module that is in another counts with both.
        """
        names, traversed = set(names), 0
        for later in range(step + 1, len(self.modules)):
            for tensors in (*self._around(later), self.modules[later]):
                if not names or traversed >= self.policy.reuse_distance:
                    return names
                names.difference_update(tensors)
                traversed += sum(tensors.values())
        return names

    def _around(self, step: int) -> Iterator[dict[Tensor, int]]:
        """Modules around a visit that are reached just before it, by all that is in them."""
        for parts in self.order[step].entered:
            yield {name: size for part in parts for name, size in self._of_part(part).items()}
