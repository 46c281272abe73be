"""The grid of plans: every axis along a dimension of its own, so that arrays stay small.

A quantity that depends on one axis is worked out once per choice of that axis, not once per
plan; numpy's broadcasting brings the axes together only where a formula does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ziplan.plan import Placement, Plan
from ziplan.runtimes.runtime import Axis

CHUNK = 1 << 15
"""Plans evaluated at once: about 256 kB an array, which stays in a core's cache."""


class Grid(NamedTuple):
    """Search axes, and what is common to every plan."""

    axes: tuple[Axis, ...]
    common: Mapping[str, float]

    @property
    def shape(self) -> tuple[int, ...]:
        """Choices of each axis."""
        return tuple(len(axis.choices) for axis in self.axes)

    @property
    def size(self) -> int:
        """Plans in the grid."""
        return prod(self.shape)

    def plan(self, place: Sequence[int]) -> Plan:
        """The plan at one place of the grid, as scalars."""
        chosen: dict[str, Any] = dict(self.common)
        for axis, index in zip(self.axes, place, strict=True):
            chosen.update(axis.choices[index])
        return Plan(**chosen)

    def plans(self, axes: Sequence[Sequence[int]] | None = None) -> Plan:
        """All plans (or those at the given choices of each axis) as one plan of arrays."""
        values: dict[str, Any] = dict(self.common)
        for number, axis in enumerate(self.axes):
            chosen = [axis.choices[i] for i in axes[number]] if axes else list(axis.choices)
            shape = tuple(len(chosen) if other == number else 1 for other in range(len(self.axes)))
            for name in chosen[0]:
                column = [choice[name] for choice in chosen]
                values[name] = (
                    _placements(column, shape)
                    if isinstance(column[0], Placement)
                    else np.asarray(column, dtype=float).reshape(shape)
                )
        return Plan(**values)

    def chunks(self) -> Iterator[list[range]]:
        """The grid cut along its first axes into pieces of at most CHUNK plans."""
        pieces = [range(length) for length in self.shape]
        yield from _cut(pieces, 0)


def _cut(pieces: list[range], axis: int) -> Iterator[list[range]]:
    size = prod(len(piece) for piece in pieces)
    if size <= CHUNK or axis == len(pieces):
        yield pieces
        return
    others = size // len(pieces[axis])
    step = max(1, CHUNK // others)
    for start in range(pieces[axis].start, pieces[axis].stop, step):
        part = range(start, min(start + step, pieces[axis].stop))
        yield from _cut([*pieces[:axis], part, *pieces[axis + 1 :]], axis + 1)


def _placements(column: Sequence[Placement], shape: tuple[int, ...]) -> Placement:
    """One placement whose fractions are arrays along the axis."""
    stacked: dict[str, Any] = {}
    for field in fields(Placement):
        homes = [getattr(placement, field.name) for placement in column]
        tiers = list(dict.fromkeys(tier for home in homes for tier in home))
        stacked[field.name] = {
            tier: np.asarray([home.get(tier, 0.0) for home in homes], dtype=float).reshape(shape)
            for tier in tiers
        }
    return Placement(**stacked)
