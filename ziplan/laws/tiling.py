"""Operators bigger than the device, run tile by tile."""

from __future__ import annotations

from ziplan.laws.law import ceil, law, maximum
from ziplan.units import Bytes, Count


@law("article: Memory-centric tiling: operators bigger than the device")
def tile_bytes(operator_bytes: Bytes, tile_count: Count) -> Bytes:
    """Bytes of one tile of an operator."""
    return operator_bytes / tile_count


@law("article: Memory-centric tiling: operators bigger than the device")
def tiled_working_bytes(operator_bytes: Bytes, tile_count: Count, tile_buffer_count: Count) -> Bytes:
    """Bytes resident while an operator runs in tiles: 2 buffers when the next tile is in flight."""
    return tile_buffer_count * operator_bytes / tile_count


@law("article: Memory-centric tiling: operators bigger than the device")
def tile_count(operator_bytes: Bytes, tile_buffer_count: Count, available_bytes: Bytes) -> Count:
    """The fewest tiles whose buffers fit in the memory available (which must be above 0)."""
    return maximum(1, ceil(tile_buffer_count * operator_bytes / available_bytes))
