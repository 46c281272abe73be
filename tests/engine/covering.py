"""Few settings that cover many: in every row each factor has a value, and any few of them meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Row = tuple[Any, ...]
Part = tuple[tuple[int, Any], ...]
"""Values of some factors, each with its factor's place."""


def all_rows(factors: Mapping[str, Sequence[Any]], settled: Callable[..., Row | None]) -> list[Row]:
    """The product of the factors, each row settled; None is a row that cannot be, and two alike are one."""
    found = (settled(*row) for row in product(*factors.values()))
    return list(dict.fromkeys(row for row in found if row is not None))


def covering(rows: Sequence[Row], strength: int, chosen: Sequence[Row] = ()) -> list[Row]:
    """Rows such that any `strength` values that meet in one of `rows` meet in one of these or of `chosen`.

    Greedy, so not the fewest there are; the same rows give the same choice.
    """
    parts = {row: _parts(row, strength) for row in rows}
    missing = set().union(*parts.values()).difference(*(_parts(row, strength) for row in chosen))
    picked = []
    while missing:
        best = max(rows, key=lambda row: len(parts[row] & missing))
        picked.append(best)
        missing -= parts[best]
    return picked


def _parts(row: Row, strength: int) -> frozenset[Part]:
    return frozenset(combinations(enumerate(row), strength))
