"""What two plans or configs differ in, as data for every form of the answer."""

from __future__ import annotations

from typing import NamedTuple

Value = str | float | int | bool | None
"""A setting's value; None where the key is absent or null."""


class Entry(NamedTuple):
    """One thing that differs: its path within the section, and both values."""

    path: str
    before: Value
    after: Value


class Need(NamedTuple):
    """Bytes that a phase needs of a tier (low, high), in A and in B."""

    tier: str
    phase: str
    before: tuple[float, float]
    after: tuple[float, float]


class Time(NamedTuple):
    """Seconds of one term of the step, or of the whole step; NaN where it is unknown."""

    term: str
    before: float
    after: float


class Difference(NamedTuple):
    """Everything that differs. `predicted` says whether memory, time and what binds were compared too."""

    files: tuple[str, str]
    forms: tuple[str, str]
    placement: tuple[Entry, ...] = ()
    plan: tuple[Entry, ...] = ()
    settings: tuple[Entry, ...] = ()
    memory: tuple[Need, ...] = ()
    time: tuple[Time, ...] = ()
    verdict: Entry | None = None
    binding: Entry | None = None
    predicted: bool = False
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        lists = (self.placement, self.plan, self.settings, self.memory, self.time)
        return not any(lists) and self.verdict is None and self.binding is None
