"""How a matrix product fills a GPU: whole tiles, handed out in whole waves over its multiprocessors."""

from __future__ import annotations

from ziplan.laws.law import ceil, law, minimum
from ziplan.units import Count, Flops, Ratio


@law(
    "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/ "
    "sec. Dimension Quantization Effects; arXiv:2401.14489 sec. III"
)
def wave_stretch(
    rows: Count,
    columns: Count,
    tile_length: Count,
    tile_width: Count,
    small_tile_share: Ratio,
    multiprocessors: Count,
) -> Ratio:
    """Time of a product with a result of so many rows and columns, over that in which whole waves compute it.

    Each multiprocessor computes one tile of the result at a time, however little of the tile is in the
    result, and the last wave takes as long as any. The library takes the best of a long tile lying, a long
    one standing and a square one as wide, whose rate is `small_tile_share` of theirs.
    """
    return (
        minimum(
            ceil(ceil(rows / tile_length) * ceil(columns / tile_width) / multiprocessors) * tile_length,
            ceil(ceil(rows / tile_width) * ceil(columns / tile_length) / multiprocessors) * tile_length,
            ceil(ceil(rows / tile_width) * ceil(columns / tile_width) / multiprocessors)
            * tile_width
            / small_tile_share,
        )
        * tile_width
        * multiprocessors
        / (rows * columns)
    )


@law(
    "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/ "
    "sec. Dimension Quantization Effects"
)
def idle_flops(flops: Flops, wave_stretch: Ratio) -> Flops:
    """FLOPs that the GPU could have done while its products waited for waves and tiles that are not full."""
    return flops * (wave_stretch - 1)
