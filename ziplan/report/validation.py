"""What holding predictions against published runs says, as data for every form of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """One published run and its prediction; times are of one optimizer step."""

    id: str
    source: str
    url: str
    locator: str
    published: str
    runtime: str
    kind: str
    quality: str
    calibration: bool
    predicted: float
    measured: float | None
    terms: Mapping[str, float]
    verdict: str
    outcome: str
    assumed: Sequence[str] = ()
    notes: str = ""

    @property
    def error(self) -> float | None:
        """Predicted over measured step time, less 1; None where no time was measured."""
        return None if self.measured is None else self.predicted / self.measured - 1

    @property
    def factor(self) -> float | None:
        """Measured over predicted step time."""
        return None if self.measured is None else self.measured / self.predicted

    @property
    def scored(self) -> bool:
        """Whether the time counts: one was measured, and nothing was fitted to it."""
        return self.measured is not None and not self.calibration

    @property
    def binding(self) -> str:
        """The term that the predicted step spends most of its time on."""
        return max(self.terms, key=lambda name: self.terms[name])

    @property
    def hit(self) -> bool | None:
        """Whether the verdict was right; None where it abstained (tight, unknown)."""
        said = {"fits": "fits", "does_not_fit": "oom"}.get(self.verdict)
        return None if said is None else said == self.outcome


@dataclass(frozen=True)
class Unpredicted:
    """A published run that is not predicted, and why."""

    id: str
    source: str
    url: str
    locator: str
    reason: str


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


@dataclass(frozen=True)
class Validation:
    """All runs, the scores by runtime and kind, and the runs that could not be predicted."""

    runs: Sequence[Run]
    scores: Sequence[Score]
    unpredicted: Sequence[Unpredicted] = ()

    def with_verdict(self, hit: bool | None) -> list[Run]:
        """The runs whose verdict was right (True), wrong (False) or abstained (None)."""
        return [run for run in self.runs if run.hit is hit]
