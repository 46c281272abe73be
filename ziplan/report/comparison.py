"""What a comparison of a few clusters found, as data for every form of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ziplan.hardware.cluster import Price
from ziplan.report.sweep import Outcome
from ziplan.solve.problem import Baseline, Change
from ziplan.solve.relief import Relief


class Budget(NamedTuple):
    """What so many tokens take: seconds, GPU-seconds of all GPUs, and dollars where a price is stated."""

    time: float
    gpu_time: float
    dollars: float | None


class Option(NamedTuple):
    """One cluster, or the first one under changes (path to text).

    `plain` is the budget on the GPUs that plain stage 3 needs, None where that is not timed. A refused
    option (a batch that it cannot take) has reasons in place of everything else.
    """

    name: str
    changes: Mapping[str, str]
    outcome: Outcome | None = None
    budget: Budget | None = None
    baseline: Baseline | None = None
    plain: Budget | None = None
    offloads: bool = False
    reliefs: tuple[Relief, ...] = ()
    fixes: tuple[Change, ...] = ()
    """Single changes that would make it fit or a step shorter, as `fit` tells them."""
    price: Price | None = None
    refused: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The verdict on it; "refused" where its inputs contradict each other."""
        return self.outcome.verdict if self.outcome else "refused"

    @property
    def usable(self) -> bool:
        """Whether it may fit and its time is known."""
        return self.budget is not None and self.verdict in ("fits", "tight")


class Comparison(NamedTuple):
    """Options for one model; `fastest` and `cheapest` are places among them, None where none is usable.

    Cheapest counts dollars where every usable option has a price (`priced`), else GPU time.
    """

    model: str
    tokens: float
    options: tuple[Option, ...]
    fastest: int | None
    cheapest: int | None
    priced: bool
