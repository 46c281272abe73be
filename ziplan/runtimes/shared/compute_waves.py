"""What matrix products leave of a GPU idle: tiles and waves that are not full, product by product."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziplan.hardware.rates import counts_waves
from ziplan.laws.counts import step_flops
from ziplan.laws.tiles import idle_flops, wave_stretch
from ziplan.runtimes.runtime import total
from ziplan.runtimes.shared.facts import Facts
from ziplan.workload.model import Model, Operator

TILE_LENGTH, TILE_WIDTH = 256.0, 128.0
"""Rows and columns of the tile that a multiprocessor computes at best (NVIDIA's guide to matrix products,
section Typical Tile Dimensions)."""

SMALL_TILE_SHARE = 0.95
"""Rate of tiles of 128 x 128 over that of 256 x 128.

From the A100's 73 products of 2,304 rows, depth 4,096 and 1,536 to 6,144 columns that arXiv:2401.14489
measured (https://github.com/EleutherAI/cookbook, sizing/results/gemm_data/mm/ksweep_high/a100.out): of shares
in steps of 0.05 the one whose largest error is least, 17 %, where one rate for all is up to 28 % off. Its
square results, which were not used (mm/m_sweep/a100.out), are met to 3 % from 2,048 rows on; at 512 the law
is 15 % slow, at 1,024 it is 1.7 times too fast. No such table of an H100 is known: the same is taken.
"""

ALIGNED = ((8, 1.0), (2, 0.6), (1, 0.29))
"""Rate of a product with a matrix by the largest of these numbers that divides both of its sides.

Tensor cores take rows of 16 bytes, 8 elements in 16 bits. From products of 8,192 rows with matrices of 51,200
by 14,272 to 14,400 and of 51,136 to 51,264 by 14,336 on an A100: 258 and 228 TFLOP/s, 172 and 138 where one
side is a multiple of 2 or 4 only, 72 and 75 where it is odd (arXiv:2401.14489; EleutherAI/cookbook on GitHub,
sizing/results/transformer_data/vocab_h_sweep.out, vocab_v_sweep.out). The vocabulary of GPT-2 is odd: runs
padded to 50,304 were seen to be a quarter faster (https://x.com/karpathy/status/1621578354024677377).
"""

Result = Callable[[Facts, Operator], tuple[float, float]]
"""Rows and columns of what a product with a module's matrix computes."""


def idle_of(f: Facts, model: Model, sweep: float, recomputed: float) -> float:
    """FLOPs that a micro-step's products with a model's matrices leave undone; 0 where waves are not counted.

    `sweep` is the FLOPs per parameter and token of a product, `recomputed` the share of those of layers
    that are repeated. Left out are products of experts, which are as large as the router makes them, and
    those narrower than a tile, which have kernels of their own.
    """
    wide = [
        o for o in model.operators if o.kind == "linear" and min(o.in_features, o.out_features) >= TILE_WIDTH
    ]
    if not wide or not counts_waves(f.cluster.node, f.workload.precision):
        return 0.0
    blocks = [o for o in wide if o.block]
    reached = f.by_reach(lambda swept: swept.layers)
    sweeps = (
        ("forward", 1.0, wide, _of_outputs),
        ("recomputation", recomputed, blocks, _of_outputs),
        ("gradients of inputs", reached, wide, _of_inputs),
        ("gradients of weights", 1.0, [o for o in wide if o.trainable], _of_weights),
    )
    return total(
        share * _idle(f, name, sweep, operators, result) for name, share, operators, result in sweeps
    )


def _idle(f: Facts, name: str, sweep: float, operators: Sequence[Operator], result: Result) -> float:
    """Idle FLOPs of one product with each matrix; its stretch is the mean over all, by their FLOPs."""
    params = float(sum(o.matmul_params * o.count for o in operators))
    if not params:
        return 0.0
    stretch = total(
        o.matmul_params * o.count / params * _stretch(f, *result(f, o)) / aligned(f, o) for o in operators
    )
    flops = step_flops(params=params, tokens_per_rank=f.tokens, flops_per_param_token=sweep)
    return f.derivation.apply(
        idle_flops, f"tiles and waves that are not full, {name}", flops=flops, wave_stretch=stretch
    )


def aligned(f: Facts, operator: Operator) -> float:
    """Share of the rate of aligned products that those with a module's matrix run at."""
    if f.pads_vocabulary and not operator.block:
        return 1.0
    sides = operator.in_features, operator.out_features
    return next(share for step, share in ALIGNED if not any(side % step for side in sides))


def _stretch(f: Facts, rows: float, columns: float) -> float:
    return wave_stretch(
        rows=rows,
        columns=columns,
        tile_length=TILE_LENGTH,
        tile_width=TILE_WIDTH,
        small_tile_share=SMALL_TILE_SHARE,
        multiprocessors=float(f.cluster.node.gpu.multiprocessors or 0),
    )


def _of_outputs(f: Facts, operator: Operator) -> tuple[float, float]:
    """Rows and columns of a linear's output."""
    return f.tokens * operator.active_share, float(operator.out_features)


def _of_inputs(f: Facts, operator: Operator) -> tuple[float, float]:
    return f.tokens * operator.active_share, float(operator.in_features)


def _of_weights(_: Facts, operator: Operator) -> tuple[float, float]:
    return float(operator.in_features), float(operator.out_features)
