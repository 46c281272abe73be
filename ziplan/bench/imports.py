"""What an importer gives, and how it reads another program's data without trusting it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ziplan.bench.measurement import Measured, MeasuredUnit, Result
from ziplan.bench.topology import FoundDrive, FoundFolder

GB = 1e9
"""A gigabyte as these programs mean it: nvbandwidth and nccl-tests divide bytes by 1e9."""

LARGEST = 1e18
"""Above this nothing is that these programs count, in whatever unit: a damaged number."""


class Imported(NamedTuple):
    """What a program measured: the program and its version, when, on which host if it says so."""

    program: str
    when: str
    results: tuple[Result, ...]
    host: str = ""
    folders: tuple[FoundFolder, ...] = ()
    drives: tuple[FoundDrive, ...] = ()


def number(value: Any) -> float | None:
    """A number from 0 to LARGEST, also where it is written as text; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if 0 <= found <= LARGEST else None


def mapping(value: Any) -> Mapping[str, Any]:
    """A mapping; an empty one where it is something else."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    """A list; an empty one where it is something else."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    """Text; empty where it is something else."""
    return value if isinstance(value, str) else ""


def one(
    name: str, unit: MeasuredUnit, value: float, method: str, when: str, derived: bool = False
) -> Measured:
    """A value of which the program told one number."""
    return Measured(
        name=name,
        unit=unit,
        median=value,
        iqr=0.0,
        minimum=value,
        maximum=value,
        n=1,
        method=method,
        when=when,
        kind="derived" if derived else "measured",
    )
