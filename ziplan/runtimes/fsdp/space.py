"""What FSDP2 can be asked to do: the search space, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes.fsdp.facts import Facts
from ziplan.runtimes.fsdp.optimizers import OPTIMIZERS, REFUSED
from ziplan.runtimes.refusal import (
    MASTER_PRECISION,
    OPTIMIZER,
    Refusal,
    cannot_run,
    misplaced,
    undivided,
)
from ziplan.runtimes.runtime import Axis
from ziplan.workload.training import Workload


def axes(cluster: Cluster, workload: Workload, code_changes: bool = False) -> Sequence[Axis]:
    """All state on the GPU or all of it on the host; layers recomputed or not."""
    facts = Facts(Derivation(record=False), cluster, workload, Plan(dp_degree=1.0))
    reasons = _optimizer_refused(workload)
    if reasons:
        raise cannot_run("FSDP2", reasons, "ZP021")
    fixed = workload.training.activation_checkpointing
    modes = ("none", "full") if fixed == "auto" else (fixed,)
    homes = [facts.gpu, *([facts.host] if facts.host else [])]
    return (
        Axis("placement", tuple(_choice(home, facts.gpu) for home in homes)),
        Axis(
            "checkpointing", tuple({"activation_checkpointing": float(Checkpointing.named(m))} for m in modes)
        ),
    )


def _choice(home: str, gpu: str) -> Mapping[str, Any]:
    """`CPUOffloadPolicy` takes parameters, gradients and optimizer state together, or none."""
    return {"zero_stage": 3.0, "placement": Placement({home: 1.0}, {home: 1.0}, {home: 1.0}, {gpu: 1.0})}


def homes(cluster: Cluster, plan: Plan) -> Sequence[str]:
    """GPU and host: `CPUOffloadPolicy` knows no other."""
    return [name for name, tier in cluster.node.tiers.items() if tier.medium != "nvme"]


def settle(cluster: Cluster, workload: Workload, plan: Plan) -> Plan:
    """FSDP2 always gathers one group ahead, and swaps nothing."""
    return replace(plan, prefetch_depth=1.0, param_buffer_count=0.0, optimizer_buffer_count=0.0)


def refusals(cluster: Cluster, workload: Workload, plan: Plan) -> list[Refusal]:
    """Why FSDP2 cannot run this plan, or why what is written here does not."""
    facts = Facts(Derivation(record=False), cluster, workload, plan)
    reasons = undivided(plan)
    if plan.zero_stage != 3:
        said = "fully_shard divides parameters, gradients and optimizer state together: zero_stage 3 only"
        reasons.append(Refusal(said, "zero_stage", help="zero_stage: 3"))
    for key, (only, why) in ONLY.items():
        if getattr(plan, key) != only:
            reasons.append(Refusal(f"FSDP2 {why}: {key} {only} only", key, help=f"{key}: {only}"))
    selective = plan.activation_checkpointing == Checkpointing.SELECTIVE
    if selective and workload.training.attention == "eager":
        said = "eager attention is no function that could be recomputed alone: use none or full"
        reasons.append(Refusal(said, MODE, help=f"{MODE}: full, or --attention flash"))
    return reasons + _optimizer_refused(workload) + _misplaced(facts)


MODE = "activation_checkpointing"

ONLY = {
    "prefetch_depth": (1, "gathers one group ahead, no more and no less"),
    "tile_count": (1, "has no tiling"),
    "param_buffer_count": (0, "has no swap buffers"),
    "optimizer_buffer_count": (0, "has no swap buffers"),
}
"""Keys of a plan with the one value that FSDP2 takes, and why."""


def _optimizer_refused(workload: Workload) -> list[Refusal]:
    training, reasons = workload.training, []
    if training.optimizer.kind not in OPTIMIZERS:
        kind = training.optimizer.kind
        said = f"{kind} is not planned with FSDP2: {REFUSED[kind]}"
        reasons.append(Refusal(said, *OPTIMIZER, help="--optimizer adamw"))
    if training.master_precision not in ("fp32", workload.precision):
        kept, computed = training.master_precision, workload.precision
        said = f"parameters kept in {kept} and computed with in {computed} are not planned with FSDP2"
        remedy = f"training.master_precision: fp32, or --precision {kept}"
        reasons.append(Refusal(said, *MASTER_PRECISION, help=remedy))
    return reasons


def _misplaced(f: Facts) -> list[Refusal]:
    """What lives where FSDP2 cannot put it."""
    placement, reasons = f.plan.placement, []
    states = [placement.params, placement.grads, placement.optimizer]
    homes = " or ".join(f"{{{tier}: 1.0}}" for tier in (f.gpu, f.host) if tier)
    together = f"placement: {homes} for each of params, grads and optimizer"
    held = [{tier: share for tier, share in state.items() if share} for state in states]
    if any(f.cluster.node.tiers[tier].medium == "nvme" for state in held for tier in state):
        reasons.append(Refusal("FSDP2 has no NVMe offload: hbm or dram only", "placement", help=together))
    if not held[0] == held[1] == held[2] or len(held[0]) != 1:
        said = "CPUOffloadPolicy takes parameters, gradients and optimizer state together: one tier for all"
        reasons.append(Refusal(said, "placement", help=together))
    if any(share for tier, share in placement.checkpoints.items() if tier != f.gpu):
        reasons.append(misplaced("activation checkpoints stay on the GPU", "checkpoints", f.gpu))
    return reasons
