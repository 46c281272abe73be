"""How DeepSpeed 0.19.8 reads each key of its config: sections, keys, kinds, bounds, defaults, units.

Sections are `strict` where DeepSpeed has a pydantic model (unknown keys are refused) and not where it
looks keys up in a mapping (what it does not know, it does not see). A test holds strict sections against
the classes, field by field, and the others against the look-ups that `DeepSpeedConfig` makes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ziplan.runtimes.deepspeed.reading.kinds import Kind
from ziplan.units import figure

ALL_STAGES = (0, 1, 2, 3)


class Key(NamedTuple):
    """One key of a section.

    `name` is as DeepSpeed documents it, `other` its second spelling. `unit` is what a number counts.
    `stages` are the ZeRO stages in which it does anything. `instead` names what a deprecated key sets.
    `low` is the least value, or what it must be more than where `exclusive`; `high` likewise.
    """

    name: str
    kind: Kind
    default: Any
    effect: str
    unit: str = ""
    other: str = ""
    low: float | None = None
    high: float | None = None
    exclusive: bool = False
    stages: tuple[int, ...] = ALL_STAGES
    instead: str = ""
    section: str = ""
    """Path of the section that its value is."""

    def within(self, value: Any) -> str:
        """What its bounds ask for and `value` is not; empty where it is inside them."""
        if value is None or not isinstance(value, int | float):
            return ""
        above = self.low is None or (value > self.low if self.exclusive else value >= self.low)
        below = self.high is None or (value < self.high if self.exclusive else value <= self.high)
        return "" if above and below else self.bounds

    @property
    def bounds(self) -> str:
        """Its bounds in words; empty where it has none."""
        least, most = ("more than", "less than") if self.exclusive else ("at least", "at most")
        low = f"{least} {figure(self.low)}" if self.low is not None else ""
        high = f"{most} {figure(self.high)}" if self.high is not None else ""
        return " and ".join(filter(None, (low, high)))


class Section(NamedTuple):
    """A mapping of the config: its path, its keys, and the class or function that reads it."""

    path: str
    source: str
    keys: tuple[Key, ...]
    strict: bool = False
    nullable: bool = False
    """Whether null stands for the section without any key."""

    @property
    def names(self) -> dict[str, Key]:
        """Its keys under every spelling."""
        both = [(name, key) for key in self.keys for name in (key.name, key.other) if name]
        return dict(both)


STAGE3 = (3,)
BELOW_STAGE3 = (1, 2)
PARTITIONED = (1, 2, 3)
