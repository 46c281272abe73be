"""The margin of a tier over ranks and tokens, each cell solved: it collapses from both ends."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from ziplan.errors import BadInput
from ziplan.estimate import Estimate
from ziplan.report.figures import tokens_per_rank
from ziplan.report.margin_map import Cell, MarginMap
from ziplan.solve import Problem, best_plan
from ziplan.study.sweep import Pose

FEWER, MORE = 4, 5
"""Halvings and doublings of a sequence's tokens that the map has."""

MOST_COLUMNS = 10
LEAST_TOKENS = 16
"""Tokens of a sequence below which no row goes."""


def margin_map(pose: Pose, problem: Problem, best: Estimate) -> MarginMap:
    """Ranks from one GPU to twice the cluster's, tokens from a part of a sequence to many sequences."""
    tier = map_tier(best, problem.runtime.homes(problem.cluster, best.plan))
    ranks, tokens = _ranks(problem), _tokens(problem.workload.training.sequence_length)
    per_node = problem.cluster.node.gpus_per_node
    length = problem.workload.training.sequence_length
    cells = tuple(tuple(_cell(pose, tier, per_node, length, dp, count) for dp in ranks) for count in tokens)
    mine = int(tokens_per_rank(best)), int(best.plan.dp_degree)
    inside = mine[0] in tokens and mine[1] in ranks
    here = (tokens.index(mine[0]), ranks.index(mine[1])) if inside else None
    return MarginMap(tier, ranks, tokens, cells, here)


def map_tier(best: Estimate, homes: Sequence[str]) -> str:
    """The tier that holds parameters and is hidden least; of all outside the GPU where none holds any.

    `homes` are those that the runtime can keep states in.
    """
    if all(best.cluster.node.tiers[name].scope == "gpu" for name in homes):
        raise BadInput.of(f"--map: {best.runtime} keeps everything on the GPU, so that nothing is streamed")
    margins = {
        name: test.hiding_margin
        for name, test in best.tiers.items()
        if name in homes and best.cluster.node.tiers[name].scope == "node" and isfinite(test.hiding_margin)
    }
    if not margins and best.unknown:
        raise BadInput.of(
            f"--map: margins are unknown without {' and '.join(best.unknown)}",
            help=f"state it, for example --set {best.unknown[0]}=VALUE",
        )
    if not margins:
        raise BadInput.of(
            "--map: no tier outside the GPU has a stated bandwidth",
            help="state it, for example --set tiers.nvme.read_bandwidth='6 GB/s'",
        )
    used = [name for name in margins if best.plan.placement.params.get(name, 0.0) > 0]
    return min(used or margins, key=lambda name: margins[name])


def _ranks(problem: Problem) -> tuple[int, ...]:
    """One GPU of a node, two, and so on; whole nodes beyond, where they can be connected."""
    node, nodes = problem.cluster.node, problem.cluster.nodes
    within = [2**power for power in range(16) if 2**power < node.gpus_per_node]
    most = 2 * nodes if node.network is not None else nodes
    counts = sorted({nodes, *(2**power for power in range(20) if 2**power <= most)})
    return tuple([*within, *(count * node.gpus_per_node for count in counts)][-MOST_COLUMNS:])


def _tokens(length: int) -> tuple[int, ...]:
    """Parts of a sequence, one, and several, by powers of two."""
    parts = [length // 2**power for power in range(FEWER, 0, -1)]
    return tuple(dict.fromkeys([each for each in parts if each >= LEAST_TOKENS])) + tuple(
        length * 2**power for power in range(MORE + 1)
    )


def _cell(pose: Pose, tier: str, per_node: int, length: int, ranks: int, tokens: int) -> Cell:
    """The best plan of so many ranks and tokens, one micro-step a step."""
    micro = max(1, tokens // length)
    changes = {
        "nodes": str(max(1, ranks // per_node)),
        "gpus_per_node": str(min(ranks, per_node)),
        "training.sequence_length": str(tokens // micro),
        "training.micro_batch_size": str(micro),
        "training.accumulation_steps": "1",
        "training.global_batch_size": str(micro * ranks),
    }
    try:
        best = best_plan(pose(changes))
    except BadInput:
        return Cell("refused")
    return Cell(best.verdict, float(best.tiers[tier].hiding_margin))
