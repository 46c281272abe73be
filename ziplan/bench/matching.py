"""Which shipped part a node's part is, by the name that its driver or its firmware tells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from ziplan.hardware.shipped import list_profiles, shipped
from ziplan.units import UnitError, parse

NEAR = 0.08
"""How far the memory that CUDA reports may lie from a profile's: a data sheet's 80 GB are 79.25 GiB."""
_TELLING = frozenset(
    ("ti", "super", "nvl", "ada", "pro", "blackwell", "pcie", "geforce", "desktop", "laptop")
)
"""Words that tell one part from another of the same number, on whichever side they stand."""


def words(name: str) -> frozenset[str]:
    """The words of a part's name, a number and its unit being one ("80 GB")."""
    joined = re.sub(r"(\d)\s+(gb|tb)\b", r"\1\2", name.lower())
    joined = re.sub(r"\b(\d+)000gb\b", r"\1tb", joined)
    return frozenset(re.findall(r"[a-z0-9.]+", joined)) - {"nvidia", "amd", "tesla", "generation", "ssd"}


def stated(data: Mapping[str, Any], unit: str, *path: str) -> float | None:
    """A quantity of a shipped part's file; None where it does not state it."""
    found: Any = data
    for step in path:
        found = found.get(step) if isinstance(found, Mapping) else None
    if isinstance(found, Mapping):
        found = found.get("value")
    try:
        return parse(found, unit) if isinstance(found, str) else None
    except UnitError:
        return None


def peak_rates(part: str) -> dict[str, float]:
    """FLOP/s at the most of a shipped GPU, by the precisions that its data sheet has."""
    document = shipped("gpus", part)
    rates = document.data.get("peak_flops_per_s", {}) if document is not None else {}
    found = {precision: stated(rates, "FLOP/s", precision) for precision in rates}
    return {precision: rate for precision, rate in found.items() if rate is not None}


@cache
def gpu_part(name: str, memory_bytes: float | None) -> str:
    """The shipped GPU of a name and a size of memory; empty where none is, or more than one could be.

    Where nobody told the size, that in the name counts ("A100-SXM4-80GB").
    """
    own = words(name)
    memory_bytes = memory_bytes or _memory_in(own)
    found = []
    for part in list_profiles("gpus"):
        document = shipped("gpus", part)
        assert document is not None
        theirs = words(str(document.data.get("name", "")))
        capacity = stated(document.data, "B", "memory", "capacity")
        if memory_bytes and capacity and abs(memory_bytes - capacity) > NEAR * capacity:
            continue
        if _forms(own) and _forms(theirs) and _forms(own) != _forms(theirs):
            continue
        if theirs & _TELLING == own & _TELLING and _models(theirs) and _models(theirs) <= _models(own):
            found.append(part)
    return found[0] if len(found) == 1 else ""


def _memory_in(found: frozenset[str]) -> float | None:
    """Bytes that a GPU's name tells, if one word of it does."""
    told = [word for word in found if re.fullmatch(r"\d{1,4}gb", word)]
    return parse(f"{told[0][:-2]} GB", "B") if len(told) == 1 else None


def _forms(found: frozenset[str]) -> frozenset[str]:
    """The words that are a form of a module ("sxm2")."""
    return frozenset(word for word in found if re.fullmatch(r"sxm\d+", word))


def _models(found: frozenset[str]) -> frozenset[str]:
    """The words that are a model ("a100", "4090"), not a size or the form of a module."""
    kept = (word for word in found if re.search(r"\d", word))
    return frozenset(word for word in kept if not re.fullmatch(r"\d+(gb|tb)|sxm\d*|hbm\d*e?|x\d+", word))


@cache
def drive_part(model: str) -> str:
    """The shipped drive whose whole name is in a drive's model; empty where none is."""
    own, best, most = words(model), "", 0
    for part in list_profiles("drives"):
        document = shipped("drives", part)
        assert document is not None
        theirs = words(str(document.data.get("name", "")))
        # "970 EVO" is in "970 EVO Plus": the longer name is the drive's.
        if theirs <= own and len(theirs) > most:
            best, most = part, len(theirs)
    return best
