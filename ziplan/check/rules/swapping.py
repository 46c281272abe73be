"""ZP121 to ZP123: what is to live on NVMe and is too small to go there."""

from __future__ import annotations

from collections.abc import Iterator

from ziplan.check.case import Case
from ziplan.check.finding import Hit, Number, Rule
from ziplan.check.rules.capacity import size

KEPT_ON_GPU = 0.02
"""Share of a GPU from which on gradients that stay on it are worth a word."""


def unswappable(case: Case) -> Iterator[Hit]:
    """Most of a rank's shards are below the size that DeepSpeed swaps."""
    facts = case.facts
    if facts is None or not case.share("params", case.nvme):
        return
    kept = facts.shards.owned - facts.shards.swappable_params
    if kept <= 0.5 * facts.shards.owned:
        return
    yield Hit(
        f"{kept / facts.shards.owned:.0%} of the parameters on NVMe stay in DRAM: the shards of "
        f"{facts.plan.dp_degree:,.0f} ranks are smaller than what swaps",
        key="aio.block_size",
        field="dp_degree",
        fix="keep parameters in DRAM (device cpu), or use fewer ranks",
        number=Number(kept, "param"),
    )


def gradients_kept(case: Case) -> Iterator[Hit]:
    """Gradient shards that cannot swap wait on the GPU."""
    line = case.line("gradients that cannot swap", case.gpu)
    share = line.high / case.available(case.gpu) if line is not None else 0.0
    if line is not None and share >= KEPT_ON_GPU:
        yield Hit(
            f"{size(line.high)} of fp32 gradients stay on every GPU until the step ({share:.0%} of it): "
            "their shards "
            "are too small to swap, or no multiple of the alignment",
            key="aio.block_size",
            field="dp_degree",
            fix="ranks that divide the matrices into multiples of 256 elements; a block_size of 1 MiB",
            number=Number(line.high, "B", line.step),
        )


def states_kept(case: Case) -> Iterator[Hit]:
    """The optimizer is on NVMe by the config, and its sub-groups are too small to go there."""
    facts = case.facts
    if facts is None or not case.share("optimizer", case.nvme) or facts.swappable:
        return
    yield Hit(
        f"the optimizer's state stays in DRAM: the largest sub-group of a rank has {facts.sub_group:,.0f} "
        "elements, "
        "less than what swaps",
        key="zero_optimization.sub_group_size",
        field="sub_group_params",
        fix='write "device": "cpu" for what is going to happen, or make sub_group_size larger',
        number=Number(facts.sub_group, "param"),
    )


SWAPPING = (
    Rule(
        "ZP121",
        "Parameter shards are too small to swap",
        "warning",
        unswappable,
        "Parameters are to live on NVMe, and more than half of a rank's are in shards below max(1 MiB, "
        "block_size).",
        "They stay in pinned DRAM, which the plan wanted to relieve, and the drives do nothing.",
        "a 7B model over 64 ranks: a 4096 x 4096 matrix is 0.5 MB on each",
        "offload_param to the CPU, or fewer ranks.",
    ),
    Rule(
        "ZP122",
        "Gradients that cannot swap stay on the GPU",
        "warning",
        gradients_kept,
        "With the optimizer on NVMe, fp32 gradient shards that are small or unaligned take over 2 % of a "
        "GPU.",
        "They cost up to 4 bytes per parameter of the rank, on the GPU, from backward to the step.",
        "seven ranks: no shard is a multiple of 256 elements, so every gradient stays",
        "Numbers of ranks that divide the matrices evenly; block_size 1 MiB; intra_op_parallelism 1.",
    ),
    Rule(
        "ZP123",
        "Optimizer sub-groups are too small to swap",
        "warning",
        states_kept,
        "offload_optimizer says nvme, and the largest sub-group in fp32 is below max(1 MiB, block_size).",
        "The state stays in DRAM: nothing is saved there, and nothing goes to the drive.",
        "adapters of rank 8 over 64 ranks",
        '"device": "cpu".',
    ),
)
