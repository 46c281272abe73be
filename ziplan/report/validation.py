"""What holding predictions against published runs says, as data for every form of the answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MEMORY = {"hbm": "GPU memory", "dram": "host memory", "nvme": "NVMe"}
"""Media of tiers in words."""

OTHER_ENDS = {
    "config_error": "configuration refused or ignored",
    "swap_buffer_error": "swap buffers too small",
    "hang": "hung",
}
"""Ends of a run that no prediction of memory or time speaks of, in words."""


@dataclass(frozen=True)
class Place:
    """Where memory runs out first: the medium of the tier, and the phase."""

    tier: str
    phase: str


@dataclass(frozen=True)
class Peak:
    """The most bytes that were seen used of one instance of a tier, and what is predicted."""

    tier: str
    measured: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        """Whether the measured peak is within the predicted interval."""
        return self.low <= self.measured <= self.high


@dataclass(frozen=True)
class Run:
    """One published run and its prediction; times are of one optimizer step.

    `predicted` is None where nobody states a rate that the time depends on. The verdict is that
    on memory. `tier` and `phases` are where a run went out of memory, as far as the source tells,
    `shortage` is where it is predicted to.
    """

    id: str
    source: str
    url: str
    locator: str
    published: str
    runtime: str
    kind: str
    quality: str
    calibration: bool
    predicted: float | None
    measured: float | None
    terms: Mapping[str, float]
    verdict: str
    outcome: str
    assumed: Sequence[str] = ()
    notes: str = ""
    own_url: str = ""
    tier: str | None = None
    phases: Sequence[str] = ()
    shortage: Place | None = None
    peaks: Sequence[Peak] = ()
    released: bool = True
    """Whether what ran it is software that others can have, as what plans are made for."""

    @property
    def error(self) -> float | None:
        """Predicted over measured step time, less 1; None where either is missing."""
        if self.measured is None or self.predicted is None:
            return None
        return self.predicted / self.measured - 1

    @property
    def factor(self) -> float | None:
        """Measured over predicted step time."""
        if self.measured is None or self.predicted is None:
            return None
        return self.measured / self.predicted

    @property
    def scored(self) -> bool:
        """Whether the time counts: one was measured, and nothing was fitted to it."""
        return self.error is not None and not self.calibration

    @property
    def binding(self) -> str:
        """The term that the predicted step spends most of its time on; empty where none is known."""
        return max(self.terms, key=lambda name: self.terms[name], default="")

    @property
    def hit(self) -> bool | None:
        """Whether the verdict was right; None where it abstained (tight)."""
        said = {"fits": "fits", "does_not_fit": "oom"}.get(self.verdict)
        return None if said is None else said == self.outcome

    @property
    def same_tier(self) -> bool | None:
        """Of a hit whose source says which memory ran out: whether the prediction says the same."""
        if self.shortage is None or self.tier is None or not self.hit:
            return None
        return self.shortage.tier == self.tier

    @property
    def same_phase(self) -> bool | None:
        """Of a hit whose source says when memory ran out: whether the prediction says the same."""
        if self.shortage is None or self.outcome != "oom" or not self.phases or not self.hit:
            return None
        return self.shortage.phase in self.phases


@dataclass(frozen=True)
class Unpredicted:
    """A published run that is not predicted, and why; `outcome` is how it ended."""

    id: str
    source: str
    url: str
    locator: str
    reason: str
    outcome: str
    tier: str | None = None
    own_url: str = ""


class Range(NamedTuple):
    """Measured over predicted step time of so many runs."""

    runs: int
    low: float
    high: float


class Errors(NamedTuple):
    """Errors of step times: the median and the ninetieth percentile of their sizes, and their mean."""

    median: float
    p90: float
    bias: float


@dataclass(frozen=True)
class Score:
    """How far off the step times of one kind of run were."""

    runtime: str
    kind: str
    count: int
    median_error: float
    p90_error: float
    bias: float
    worst: str
    worst_error: float
    low: float
    """Low end of measured over predicted: the least, or the tenth percentile of many."""
    high: float
    """High end of measured over predicted: the greatest, or the ninetieth percentile of many."""
    interval: Range | None = None
    """The same of the runs of software that was released; None where there is none."""
    own_source: int = 0
    """How many of the runs are of a page that a parameter was taken from, off another run of it."""
    elsewhere: Errors | None = None
    """How far off the other runs were; None where there is none."""


@dataclass(frozen=True)
class Tally:
    """How the predictions of runs that ended alike came out."""

    ending: str
    runs: Sequence[Run]
    unpredicted: int

    def judged(self, hit: bool | None) -> int:
        """Runs whose verdict was right (True), wrong (False) or abstained (None)."""
        return sum(run.hit is hit for run in self.runs)

    @property
    def tiers(self) -> tuple[int, int]:
        """Of the hits whose source names the tier: (those where the prediction names it too, all)."""
        return _shares(run.same_tier for run in self.runs)

    @property
    def phases(self) -> tuple[int, int]:
        """Of the hits whose source names the phase: (those where the prediction names it too, all)."""
        return _shares(run.same_phase for run in self.runs)


def _shares(answers: Iterable[bool | None]) -> tuple[int, int]:
    told = [answer for answer in answers if answer is not None]
    return sum(told), len(told)


@dataclass(frozen=True)
class Validation:
    """All runs, the scores by runtime and kind, and the runs that could not be predicted."""

    runs: Sequence[Run]
    scores: Sequence[Score]
    unpredicted: Sequence[Unpredicted] = ()

    def with_verdict(self, hit: bool | None) -> list[Run]:
        """The runs whose verdict was right (True), wrong (False) or abstained (None)."""
        return [run for run in self.runs if run.hit is hit]

    def tallies(self) -> list[Tally]:
        """All runs by how they ended: those that ran, what went out of memory, and the rest."""
        endings: dict[str, tuple[list[Run], list[Unpredicted]]] = {}
        order = [ending("fits", None), *(ending("oom", tier) for tier in MEMORY), ending("oom", None)]
        for name in (*order, *OTHER_ENDS.values()):
            endings[name] = ([], [])
        for run in self.runs:
            endings[ending(run.outcome, run.tier)][0].append(run)
        for each in self.unpredicted:
            endings[ending(each.outcome, each.tier)][1].append(each)
        return [Tally(name, runs, len(others)) for name, (runs, others) in endings.items() if runs or others]


def ending(outcome: str, tier: str | None) -> str:
    """How a run ended, in words."""
    if outcome == "fits":
        return "ran"
    if outcome == "oom":
        return f"out of {MEMORY[tier]}" if tier else "out of memory, not said which"
    return OTHER_ENDS[outcome]
