"""What `--vary PATH=VALUES` says: a field by its path, and the values that it takes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from math import isfinite, prod

from ziplan.errors import BadInput
from ziplan.report.sweep import Axis
from ziplan.units import UnitError, parse

MOST_POINTS = 100_000
"""Points that one sweep may have: about half an hour on one core."""

BASE_UNITS = ("B", "B/s", "FLOP/s", "param/s", "s", "USD", "token", "param")
"""Units that the ends of a range may be written in, to tell how many of one make the other."""

_END = r"(?P<{0}>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*(?P<{0}_unit>[A-Za-z][A-Za-z/]*)?"
_RANGE = re.compile(
    rf"\s*{_END.format('low')}\s*\.\.\s*{_END.format('high')}\s*(?::\s*{_END.format('step')}\s*)?"
)
_EXAMPLE = "for example --vary nodes=1,2,4, --vary training.micro_batch_size=1..64 (doubling) or 1..8:1"
_ROUNDING = 1e-9
"""Share of a range's end by which a value may exceed it: a sum of steps is not exact."""


def axes_of(texts: Sequence[str]) -> tuple[Axis, ...]:
    """The axes of a grid; BadInput where one is not PATH=VALUES or there are too many points."""
    axes = tuple(_axis(text) for text in texts)
    paths = [axis.path for axis in axes]
    for path in paths:
        if paths.count(path) > 1:
            raise BadInput.of(f"--vary {path} is given twice", help=f"list all values: --vary {path}=1,2,4")
    points = prod(len(axis.values) for axis in axes)
    if points > MOST_POINTS:
        raise BadInput.of(
            f"the grid has {points:,} points, more than {MOST_POINTS:,}",
            help="take fewer values of an axis: 1..64 doubles, 1..64:8 steps by 8",
        )
    return axes


def _axis(text: str) -> Axis:
    path, equals, listed = text.partition("=")
    parts = [part.strip() for part in listed.split(",")]
    if not equals or not path.strip() or not all(parts):
        raise BadInput.of(f"--vary {text!r:.80} is not PATH=VALUES", help=_EXAMPLE)
    path = path.strip()
    values = dict.fromkeys(value for part in parts for value in _values(path, part))
    return Axis(path, tuple(values))


def _values(path: str, text: str) -> Iterator[str]:
    """One value as it is written, or those of a range."""
    match = _RANGE.fullmatch(text)
    if match is None:
        if ".." in text:
            raise _no_range(path, text, "is not a range")
        yield text
        return
    unit = match["low_unit"] or match["high_unit"] or ""
    low, high = float(match["low"]), float(match["high"]) * _worth(path, text, match["high_unit"], unit)
    step = None
    if match["step"] is not None:
        step = float(match["step"]) * _worth(path, text, match["step_unit"], unit)
    if not isfinite(high) or high < low or (step is None and low == 0) or step == 0:
        raise _no_range(path, text, "has no end")
    if step is not None and (high - low) / step >= MOST_POINTS:
        raise _no_range(path, text, f"has more than {MOST_POINTS:,} values")
    number, count = low, 0
    while number <= high * (1 + _ROUNDING):
        yield f"{number:.12g} {unit}".strip()
        count += 1
        number = 2 * number if step is None else low + count * step


def _worth(path: str, text: str, written: str | None, unit: str) -> float:
    """How many of `unit` one of the unit as written is; one written without counts in `unit`."""
    if written is None or written == unit:
        return 1.0
    for base in BASE_UNITS:
        with contextlib.suppress(UnitError):
            return parse(f"1 {written}", base) / parse(f"1 {unit}", base)
    raise _no_range(path, text, f"is in {written!r} and in {unit!r}")


def _no_range(path: str, text: str, why: str) -> BadInput:
    return BadInput.of(f"--vary {path}: {text!r:.60} {why}", help=_EXAMPLE)
