"""The model that DeepSpeed sees where wide linears are `TiledLinear`s: each tile is a module of its own.

Source: DeepSpeed 0.19.8, `runtime/zero/tiling.py`. Only linears of layers are split, which is what the
emitted tiling.md asks for: a table of tokens, a head or a stack of experts is gathered whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import ceil

import numpy as np

from ziplan.laws.law import where
from ziplan.runtimes.runtime import total
from ziplan.workload.model import Model, Operator


def pieces(model: Model, tile_count: int) -> dict[str, int]:
    """Pieces of each linear that is split: as many of the widest, of others so many that none is wider."""
    linears = [o for o in model.operators if o.kind == "linear" and o.block]
    widest = max((o.matmul_params for o in linears), default=0)
    counts = {o.name: min(ceil(tile_count * o.matmul_params / widest), o.out_features) for o in linears}
    return {name: count for name, count in counts.items() if count > 1}


@lru_cache(maxsize=32)
def tiled(model: Model, tile_count: int) -> Model:
    """The model with its wide linears in tiles."""
    counts = pieces(model, tile_count) if tile_count > 1 else {}
    if not counts:
        return model

    def split(operator: Operator) -> list[Operator]:
        return _tiles(operator, counts.get(operator.name, 1))

    def in_turn(operator: Operator) -> list[Operator]:
        return [tile for tile in split(operator) for _ in range(tile.count // operator.count)]

    sections = tuple(
        replace(
            section,
            layers=tuple(tuple(tile for o in layer for tile in in_turn(o)) for layer in section.layers),
        )
        for section in model.structure
    )
    operators = tuple(tile for operator in model.operators for tile in split(operator))
    return replace(model, operators=operators, structure=sections)


def _tiles(operator: Operator, count: int) -> list[Operator]:
    """Rows that so many tiles do not divide make the first of them one wider (`partition_uniform`)."""
    rows, wider = divmod(operator.out_features, count)
    kinds = ((rows + 1, wider), (rows, count - wider))
    return [
        replace(operator, out_features=height, count=times * operator.count)
        for height, times in kinds
        if times
    ]


def by_tiles(model: Model, tile_count: float, measure: Callable[[Model], float]) -> float:
    """`measure` of the model in so many tiles, or for each plan of a grid in its own number of them."""
    counts = sorted({int(count) for count in np.ravel(tile_count)})
    if len(counts) == 1:
        return measure(tiled(model, counts[0]))
    return total(where(tile_count == count, measure(tiled(model, count)), 0.0) for count in counts)
