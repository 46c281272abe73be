"""How often DeepSpeed stage 3 fetches each parameter, and how much of the model is live at once.

The parameter coordinator is played visit by visit (`coordinator.py`). The grain is one module, not one
layer. Layers are alike, so a few are played and the rest extrapolated exactly. Where there are leaves all are
played: what is kept beside them differs a little from layer to layer, for as many as thirty of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

from ziplan.runtimes.deepspeed.coordinator import Policy
from ziplan.runtimes.deepspeed.leaves import forward_visits, leaf_block
from ziplan.runtimes.deepspeed.paced import NO_WAYS, Paced, Ways
from ziplan.runtimes.deepspeed.visits import Visit, visits
from ziplan.runtimes.deepspeed.worked import Products, computed
from ziplan.workload.model import Model, Section

PLAYED_LAYERS = 6
"""Layers played beyond those kept or read ahead; the count of the last one is repeated for the others."""


class Fetches(NamedTuple):
    """What one micro-step fetches.

    `by_size` counts fetches of tensors by their elements, tensors of equal size together; `elements` is
    their sum in elements; `peak_live` the most elements gathered at once; `peak_tensors` the most
    parameter tensors; `largest_fetch` the most elements that one call gathers of several
    tensors (one alone needs no buffer beside it). Persistent tensors count in none of them.
    """

    by_size: dict[int, float]
    elements: float
    peak_live: float
    peak_tensors: int
    largest_fetch: float
    on_demand: float = 0.0
    """Elements gathered just before the module that needs them, with nothing to compute meanwhile."""
    calls: float = 0.0
    """Gathers: of one tensor, or of several at once."""
    joined: float = 0.0
    """Elements that were gathered several tensors at once, and are copied out of what was received."""
    joined_tensors: float = 0.0
    """How many such tensors."""
    work: float = 0.0
    """Parameters that multiply, all sweeps together."""
    ways: Ways = NO_WAYS
    """Of what the longest ways through the micro-step are made (`paced.py`)."""

    @property
    def waited(self) -> float:
        """Elements that computation waits for however fast they come: none is read ahead far enough."""
        return float(self.ways[0][1])

    def way(self, pace: int) -> tuple[float, float]:
        """Shares of a micro-step's work and of what it gathers that are on the longest way at a pace."""
        parts = zip(self.ways[pace], (self.work, self.elements), strict=True)
        works, gathers = (min(1.0, float(part) / max(whole, 1.0)) for part, whole in parts)
        return works, gathers


TALLIES = ("elements", "on_demand", "calls", "joined", "joined_tensors", "work", "ways")
"""Counts of a micro-step that grow with each layer."""


def fetches(
    model: Model, checkpointing: int, reentrant: bool, policy: Policy, dropout: bool | None = None
) -> Fetches:
    """Play one micro-step of steady state (the trace is complete); `dropout` as in `visits`."""
    return _fetches(model, checkpointing, reentrant, policy, dropout)


@lru_cache(maxsize=64)
def _fetches(
    model: Model, checkpointing: int, reentrant: bool, policy: Policy, dropout: bool | None
) -> Fetches:
    leaves = leaf_block(model, policy.leaves) is not None
    times = [section.repeat if leaves else _played(section, policy) for section in model.sections]

    def play(repeats: Sequence[int]) -> Fetches:
        return fetches_of(model, repeats, checkpointing, reentrant, policy, dropout)

    played = play(times)
    counts, tallies = dict(played.by_size), {name: getattr(played, name) for name in TALLIES}
    for place, section in enumerate(model.sections):
        more = section.repeat - times[place]
        if not more:
            continue
        shorter = play([count - (place == other) for other, count in enumerate(times)])
        for size, count in played.by_size.items():
            counts[size] += more * (count - shorter.by_size.get(size, 0.0))
        for name in TALLIES:
            tallies[name] = tallies[name] + more * (getattr(played, name) - getattr(shorter, name))
    return played._replace(by_size=counts, **tallies)


@lru_cache(maxsize=64)
def _order(model: Model, repeats: tuple[int, ...], *how: Any) -> tuple[Visit, ...]:
    """Visits, which many policies have in common."""
    return tuple(visits(model, repeats, *how))


def _played(section: Section, policy: Policy) -> int:
    """How often a section is played: often enough that one time more is like the time before."""
    ahead = policy.max_live if policy.prefetch_bucket > 0 else 0.0
    period = sum(operator.params for layer in section.layers for operator in layer)
    kept = max(ahead, policy.reuse_distance) / max(1, period)
    beyond = ceil(PLAYED_LAYERS / len(section.layers))
    return min(section.repeat, beyond + ceil(min(kept, section.repeat)))


def fetches_of(
    model: Model,
    repeats: Sequence[int],
    checkpointing: int,
    reentrant: bool,
    policy: Policy,
    dropout: bool | None = None,
) -> Fetches:
    """The same with each section played as often as `repeats` says, and nothing extrapolated."""
    order = _order(model, tuple(repeats), checkpointing, reentrant, policy.leaves, dropout)
    products = [Products(visit, checkpointing) for visit in order]
    work = [each for _, each in computed(order, products, sum(forward_visits(model, policy.leaves, repeats)))]
    played = Paced(order, policy, work)
    played.micro_step()
    return Fetches(
        dict(played.counts),
        played.elements,
        played.peak_live,
        played.peak_tensors,
        played.largest_fetch,
        played.on_demand,
        played.calls,
        played.joined,
        played.joined_tensors,
        sum(work),
        played.ways,
    )
