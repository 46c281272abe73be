"""What a benchmark finds: a measured value with its spread, a waived one with its reason, a fact in words.

The sampling is that of every benchmark: warm up until two windows agree, take at least seven, tell
the median and how far the others lie from it, and try once more where they lie far.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from ziplan.bench.names import unit_of
from ziplan.errors import ZiplanError
from ziplan.hardware.parts import MOST, Part

MeasuredUnit = Literal["B", "B/s", "FLOP/s", "param/s", "s", "1"]
Finite = Annotated[float, Field(ge=0, allow_inf_nan=False)]

SHORTEST_WINDOW = 0.05
"""Seconds that a window lasts at the least: a clock read late by 0.1 ms is then 0.2 %."""
SETTLED = 0.02
"""How far two warm-up windows may lie apart, of the later, for the rate to count as settled."""
MOST_WARM_UPS = 10
UNSTABLE = 0.05
"""IQR over median beyond which a measurement is called unstable."""


class CannotMeasure(ZiplanError):
    """Something that this node, or this user on it, cannot measure; the message is the reason."""


class Measured(Part):
    """A value that was measured: median, spread and how.

    `name` is dotted, from the thing to the quantity ("dram.copy_bandwidth", "gpu.0.hbm.read_bandwidth");
    `ziplan.bench.names` lists those that a profile is made from. `unit` is a base unit, in which all of
    `median`, `iqr` (third less first quartile), `minimum` and `maximum` are. `when` is ISO 8601, UTC.
    `kind` is "derived" where the value follows from another measured one; `method` says how in both cases.
    """

    name: str = Field(min_length=1)
    unit: MeasuredUnit
    median: Finite
    iqr: Finite
    minimum: Finite
    maximum: Finite
    n: int = Field(ge=1)
    unstable: bool = False
    method: str = Field(min_length=1)
    when: str
    kind: Literal["measured", "derived"] = "measured"

    @model_validator(mode="after")
    def _consistent(self) -> Measured:
        unit = unit_of(self.name)
        if unit and unit != self.unit:
            raise ValueError(f"{self.name} is in {unit}, not in {self.unit}")
        if not self.minimum <= self.median <= self.maximum:
            raise ValueError(f"the median of {self.name} is not between its minimum and its maximum")
        if self.unit == "1" and not (self.median.is_integer() and self.median <= MOST):
            raise ValueError(f"{self.name} is a whole number, {MOST} at the most, not {self.median:g}")
        return self


class Waived(Part):
    """A value that was not measured, and why."""

    name: str = Field(min_length=1)
    reason: str = Field(min_length=1)


class Noted(Part):
    """A fact in words that belongs to the node ("gpu.0.name": "NVIDIA H100 80GB HBM3"), and who says so."""

    name: str = Field(min_length=1)
    text: str
    method: str = Field(min_length=1)


Result = Measured | Waived | Noted


class Window(NamedTuple):
    """One timed stretch: `amount` of the base unit (B, FLOP, param) was done in `seconds`."""

    amount: float
    seconds: float


class Sampling(NamedTuple):
    """How many windows are taken; `retry` says whether unstable ones are taken once more."""

    samples: int = 7
    warm_ups: int = MOST_WARM_UPS
    retry: bool = True

    @property
    def tries(self) -> int:
        """How often a measurement is taken at the most."""
        return 2 if self.retry else 1


def now() -> str:
    """This moment as results carry it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def sampled(
    name: str,
    unit: MeasuredUnit,
    window: Callable[[], Window],
    method: str,
    sampling: Sampling = Sampling(),  # noqa: B008 - immutable
) -> Measured:
    """The rate of windows: warmed up, sampled, and sampled once more where it was unstable."""
    _warm_up(window, sampling.warm_ups)

    def measure() -> Measured:
        return summary(name, unit, [_rate(window()) for _ in range(sampling.samples)], method)

    return steadiest(measure, sampling.tries)


def _warm_up(window: Callable[[], Window], most: int) -> None:
    """Run windows until two in a row agree."""
    before = None
    for _ in range(most):
        rate = _rate(window())
        if before is not None and abs(rate - before) <= SETTLED * rate:
            return
        before = rate


def _rate(window: Window) -> float:
    if window.seconds <= 0 or window.amount <= 0:
        raise CannotMeasure(
            f"a window of {window.seconds:g} s did {window.amount:g}: no rate follows from it"
        )
    return window.amount / window.seconds


def summary(
    name: str,
    unit: MeasuredUnit,
    values: Sequence[float],
    method: str,
    kind: Literal["measured", "derived"] = "measured",
) -> Measured:
    """Values as a measurement: median, IQR (quartiles by linear interpolation), least and most."""
    if not values:
        raise CannotMeasure("no window was completed")
    quartiles = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    median, iqr = quartiles[1], quartiles[2] - quartiles[0]
    return Measured(
        name=name,
        unit=unit,
        median=median,
        iqr=iqr,
        minimum=min(values),
        maximum=max(values),
        n=len(values),
        unstable=iqr > UNSTABLE * median,
        method=method,
        when=now(),
        kind=kind,
    )


def relative_spread(measured: Measured) -> float:
    """IQR over median; infinite where the median is nothing."""
    return measured.iqr / measured.median if measured.median else float("inf")


def steadiest(measure: Callable[[], Measured], tries: int) -> Measured:
    """A measurement, taken again while it is unstable and tries are left; the one that spreads least."""
    found = [measure()]
    while found[-1].unstable and len(found) < tries:
        found.append(measure())
    return min(found, key=relative_spread)
