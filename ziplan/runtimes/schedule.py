"""A step as a runtime really runs it: which piece of work follows which, and which buffers it holds.

The amounts are those of the step program (`Segment`), given out in parts: a schedule says when, and
never how much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ziplan.runtimes.runtime import Demand, Segment

Held = tuple[tuple[str, float], ...]
"""(name of the buffers, how many of them, or bytes)."""

OWN = -1
"""The rank that everything is seen from."""


class Work(NamedTuple):
    """A piece of work on one resource, named as in `Demand`.

    `module` is what it is done for: a layer, a module, a sub-group. `after` names pieces by their
    place in the stage. Buffers are taken at its start and given back at its end. `owner` is the
    rank whose links it crosses where that is another than one's own.
    """

    module: str
    term: str
    resource: str
    amount: float
    after: tuple[int, ...] = ()
    takes: Held = ()
    gives: Held = ()
    owner: int = OWN


class Buffers(NamedTuple):
    """Buffers that run out, or with `gauge` memory whose use is only watched.

    `unit` is "1" where they are counted and "B" where they are bytes. `held` is what is taken all
    the time; `capacity` counts it.
    """

    name: str
    capacity: float
    unit: str = "1"
    gauge: bool = False
    held: float = 0.0


class Stage(NamedTuple):
    """A stretch of the step that begins when all before it is done, so many times in a row.

    `works(n)` is the work of n repetitions. Where `carries` is false a repetition begins when the
    one before has ended, so all are alike; where it is true one may reach into the next.
    """

    name: str
    repeats: int
    works: Callable[[int], Sequence[Work]]
    carries: bool = False


class Schedule(NamedTuple):
    """The stages of a step in order, the buffers in play, and what was taken for granted."""

    stages: tuple[Stage, ...]
    buffers: tuple[Buffers, ...]
    conventions: tuple[str, ...]


class Parts:
    """The demands of a segment, to be given out in parts."""

    def __init__(self, *segments: Segment) -> None:
        self._amounts: dict[tuple[str, str], float] = {}
        self._given: set[tuple[str, str]] = set()
        for segment in segments:
            # One that stands in several chains is one piece of work.
            for demand in {id(d): d for chain in segment.chains for d in chain}.values():
                key = demand.term, demand.resource
                self._amounts[key] = self._amounts.get(key, 0.0) + float(demand.amount)

    def of(self, term: str, resource: str, share: float) -> float:
        """So large a share of a demand; 0 where there is none."""
        self._given.add((term, resource))
        return self._amounts.get((term, resource), 0.0) * share

    def resources(self, term: str) -> list[str]:
        """The resources on which there is anything of a term."""
        return [resource for (name, resource), amount in self._amounts.items() if name == term and amount > 0]

    def rest(self) -> list[Demand]:
        """Demands of which nothing was given out."""
        return [
            Demand(*key, amount)
            for key, amount in self._amounts.items()
            if key not in self._given and amount > 0
        ]


class Works:
    """The work of a stage while it is written down; lines are what runs in the order it was put there."""

    def __init__(self) -> None:
        self.all: list[Work] = []
        self._last: dict[str, int] = {}

    def add(
        self,
        module: str,
        term: str,
        resource: str,
        amount: float,
        after: Iterable[int] = (),
        *,
        line: str = "",
        takes: Held = (),
        gives: Held = (),
        owner: int = OWN,
    ) -> int:
        """Write a piece of work down behind the last one of its line; its place in the stage."""
        places = [place for place in after if place >= 0]
        if line in self._last:
            places.append(self._last[line])
        if len(places) > 1:
            places = sorted(set(places))
        number = len(self.all)
        self.all.append(Work(module, term, resource, amount, tuple(places), takes, gives, owner))
        if line:
            self._last[line] = number
        return number

    def mark(self, module: str, after: Iterable[int], *, takes: Held = (), gives: Held = ()) -> int:
        """A point that is reached when all of these are done, and nothing to do there."""
        return self.add(module, "", "", 0.0, after, takes=takes, gives=gives)

    def last(self, line: str) -> tuple[int, ...]:
        """The last piece of a line, if any."""
        return (self._last[line],) if line in self._last else ()


def shares(weights: Sequence[float]) -> list[float]:
    """Each weight's share of all; equal ones where all are 0."""
    whole = sum(weights)
    return [weight / whole if whole else 1 / len(weights) for weight in weights]
