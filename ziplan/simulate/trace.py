"""What a played step tells: what the GPU waited for, how busy every link was, how full every buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ziplan.hardware.rates import ARITHMETIC
from ziplan.runtimes.schedule import OWN, Work
from ziplan.simulate.engine import Played, Task

Stall = tuple[str, str]
"""(what the GPU had to wait with, the link or the buffers that it waited for)."""


Turns = list[tuple[float, float, int]]
"""(start, end, task) of everything the GPU does, in order."""


class Watched(NamedTuple):
    """A stretch that was played: the work, its tasks, what happened, and the names of links and pools."""

    works: Sequence[Work]
    tasks: Sequence[Task]
    mine: Sequence[int]
    """For each piece of work its task, as the watched rank has it."""
    played: Played
    links: Sequence[str]
    rates: Sequence[float]
    pools: Sequence[str]
    levels: Sequence[Sequence[tuple[float, float]]]
    gpu_tier: str
    ranks: int

    def is_gpu(self, resource: str) -> bool:
        """Whether it is the GPU itself that works on a resource."""
        place = resource.partition(".")[0]
        return place in ARITHMETIC or place == self.gpu_tier

    def on_gpu(self, work: Work) -> bool:
        """Whether the GPU itself works."""
        return work.amount > 0 and self.is_gpu(work.resource)


@dataclass(frozen=True)
class Tally:
    """Sums over a stretch of a step; they add up, but for the high-water marks.

    `busy` is seconds of each link at its full rate; `moved` the amount of each resource, as one
    rank's share; `stalls` are seconds in which the GPU did nothing.
    """

    span: float = 0.0
    computing: float = 0.0
    stalls: Mapping[Stall, float] = field(default_factory=dict)
    busy: Mapping[str, float] = field(default_factory=dict)
    moved: Mapping[str, float] = field(default_factory=dict)
    high_water: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.span + other.span,
            self.computing + other.computing,
            _sum(self.stalls, other.stalls),
            _sum(self.busy, other.busy),
            _sum(self.moved, other.moved),
            {
                name: max(self.high_water.get(name, 0.0), other.high_water.get(name, 0.0))
                for name in {**self.high_water, **other.high_water}
            },
        )

    def __mul__(self, times: float) -> Tally:
        return Tally(
            self.span * times,
            self.computing * times,
            {key: value * times for key, value in self.stalls.items()},
            {key: value * times for key, value in self.busy.items()},
            {key: value * times for key, value in self.moved.items()},
            self.high_water,
        )

    def peaks_of(self, other: Tally) -> Tally:
        """The same sums with another's high-water marks."""
        return Tally(self.span, self.computing, self.stalls, self.busy, self.moved, other.high_water)

    @property
    def stalls_by_cause(self) -> dict[str, float]:
        """Seconds in which the GPU waited, by what it waited for, longest first."""
        causes: dict[str, float] = {}
        for (_, cause), seconds in self.stalls.items():
            causes[cause] = causes.get(cause, 0.0) + seconds
        return dict(sorted(causes.items(), key=lambda each: (-each[1], each[0])))

    @property
    def stalled(self) -> float:
        """All seconds in which the GPU waited."""
        return sum(self.stalls.values())


def _sum(one: Mapping[Stall, float] | Mapping[str, float], other: Mapping, /) -> dict:  # type: ignore[type-arg]
    total = dict(one)
    for key, value in other.items():
        total[key] = total.get(key, 0.0) + value
    return total


def tally(watched: Watched) -> Tally:
    """Everything that is counted of a stretch."""
    played = watched.played
    busy: dict[str, float] = dict.fromkeys(watched.links, 0.0)
    for task in watched.tasks:
        for link, taken in task.uses:
            busy[watched.links[link]] += task.work * taken / watched.rates[link]
    moved: dict[str, float] = {}
    for work in watched.works:
        if work.resource:
            # What an owner moves for all is its own once in so many layers.
            share = 1.0 if work.owner == OWN else 1.0 / watched.ranks
            moved[work.resource] = moved.get(work.resource, 0.0) + work.amount * share
    on_gpu = _on_gpu(watched)
    stalls: dict[Stall, float] = {}
    for module, cause, begin, end in _waits(watched, on_gpu):
        stalls[module, cause] = stalls.get((module, cause), 0.0) + end - begin
    return Tally(
        span=played.span,
        computing=sum(end - begin for begin, end in _computing(on_gpu)),
        stalls=stalls,
        busy=busy,
        moved=moved,
        high_water={
            name: max((level for _, level in levels), default=0.0)
            for name, levels in zip(watched.pools, watched.levels, strict=True)
        },
    )


def _on_gpu(watched: Watched) -> Turns:
    """What the GPU does, in order."""
    start, finish = watched.played.start, watched.played.finish
    there = {resource: watched.is_gpu(resource) for resource in {work.resource for work in watched.works}}
    return sorted(
        (start[task], finish[task], task)
        for work, task in zip(watched.works, watched.mine, strict=True)
        if work.amount > 0 and there[work.resource]
    )


def _computing(on_gpu: Turns) -> Iterator[tuple[float, float]]:
    """Stretches in which the GPU works."""
    reached = 0.0
    for begin, end, _ in on_gpu:
        if end > reached:
            yield max(begin, reached), end
            reached = end


def waits(watched: Watched) -> Iterator[tuple[str, str, float, float]]:
    """(who waited, for what, from, to) for every stretch in which the GPU did nothing.

    A gap before a module's compute is walked back along what the module waited for: whatever was
    last to be done, the link that held that back, and what it had itself waited for.
    """
    yield from _waits(watched, _on_gpu(watched))


def _waits(watched: Watched, on_gpu: Turns) -> Iterator[tuple[str, str, float, float]]:
    played, reached = watched.played, 0.0
    for begin, end, task in on_gpu:
        if begin > reached:
            for _, cause, since, until in _causes(watched, task, reached, begin):
                yield watched.tasks[task].name, cause, since, until
        reached = max(reached, end)
    if played.span > reached:
        last = max(range(len(watched.tasks)), key=lambda number: (played.finish[number], -number))
        # Nothing of the GPU's waits here: the work that comes last is named itself.
        for at, cause, begin, end in _causes(watched, last, reached, played.span):
            yield watched.tasks[at].name, cause, begin, end


def _causes(watched: Watched, task: int, begin: float, end: float) -> Iterator[tuple[int, str, float, float]]:
    """(task that took it, what held that back, from, to): what the time before a task's end went into."""
    played, tasks, at = watched.played, watched.tasks, task
    while end > begin:
        for cause, since, until in _held(watched, at, begin, end):
            yield at, cause, since, until
        end = min(end, played.start[at])
        if played.ready[at] < end:
            pool = next(pool for pool, _ in tasks[at].takes)
            yield at, watched.pools[pool % len(watched.pools)], max(begin, played.ready[at]), end
            end = max(begin, played.ready[at])
        if not tasks[at].after:
            return
        at = max(tasks[at].after, key=lambda before: (played.finish[before], -before))


def _held(watched: Watched, task: int, begin: float, end: float) -> Iterator[tuple[str, float, float]]:
    """The links that held a task back between two instants."""
    played = watched.played
    limits = played.limits[task]
    end = min(end, played.finish[task])
    for place, (since, link) in enumerate(limits):
        until = limits[place + 1][0] if place + 1 < len(limits) else played.finish[task]
        first, last = max(begin, since), min(end, until)
        if last > first:
            yield watched.links[link], first, last
