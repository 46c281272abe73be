"""What must be said of a plan under FSDP2, whatever else it answers."""

from __future__ import annotations

from ziplan.plan import Plan
from ziplan.runtimes.fsdp.groups import groups, padding
from ziplan.workload.training import Workload

WORTH_SAYING = 1.05
"""Elements held over the model's own, from which on padding is told of."""


def notes(workload: Workload, plan: Plan) -> list[str]:
    """How much padding there is, where it is much: few rows over many ranks, as stacked experts have."""
    model = workload.model
    held = groups(model, plan.dp_degree).all / model.params
    if held < WORTH_SAYING:
        return []
    ranks, worst = int(plan.dp_degree), max(padding(model, plan.dp_degree), key=lambda each: each.elements)
    return [
        f"fully_shard pads the first dimension of every tensor to a multiple of {ranks:,} ranks: "
        f"{held:.2f} times the model's parameters are held and sent ({worst.name} has {worst.rows:,} rows); "
        "sharded over fewer ranks, or along another dimension by shard_placement_fn, there is less"
    ]
