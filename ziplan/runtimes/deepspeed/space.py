"""What DeepSpeed can be asked to do: the search space, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation, maximum, where
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.gpu import gpu_ledger
from ziplan.runtimes.deepspeed.optimizers import bf16_refused, refused
from ziplan.runtimes.deepspeed.twin_flow import whole_groups
from ziplan.runtimes.refusal import Refusal, cannot_run, misplaced, undivided
from ziplan.runtimes.runtime import RUNNING, Axis, Ledger
from ziplan.workload.training import Workload

SUB_GROUPS = (1e9, 1e8, 1e7)
"""Sizes of the optimizer's tile, best first: larger ones make fewer, longer requests."""

LEAST_SHARE = 1e-3
"""The smallest share of the optimizer that it means something to have on the other side of the link."""

READ_AHEAD = ({"prefetch_depth": 1.0}, {"prefetch_depth": 0.0})
"""A layer is read ahead, or nothing is, which takes less memory.

Over several nodes the second is as fast, as far as is known (`Traits.network_waits`), but no run is published
that reads nothing ahead: where both fit and cost the same, the first is taken.
"""

SPARE_BUFFERS = 2
"""Parameter swap buffers beyond the most that are live: the fetch under way and its successor."""


def axes(cluster: Cluster, workload: Workload, code_changes: bool = False) -> Sequence[Axis]:
    """The axes that are DeepSpeed's own. `code_changes` adds what needs the user's model changed."""
    names = Facts(Derivation(record=False), cluster, workload, Plan(dp_degree=1.0))
    fixed = workload.training.activation_checkpointing
    modes = ("none", "full") if fixed == "auto" else (fixed,)
    tiles = (1.0, 2.0, 4.0, 8.0, 16.0) if code_changes else (1.0,)
    return (
        Axis("placement", tuple(_placements(names, code_changes))),
        Axis(
            "checkpointing", tuple({"activation_checkpointing": float(Checkpointing.named(m))} for m in modes)
        ),
        Axis("prefetch", READ_AHEAD),
        Axis("sub-group", tuple({"sub_group_params": size} for size in SUB_GROUPS)),
        Axis("tiles", tuple({"tile_count": count} for count in tiles)),
    )


def _placements(names: Facts, code_changes: bool) -> list[Mapping[str, Any]]:
    """Stages and devices that DeepSpeed takes together with the optimizer, the least offloaded first."""
    choices: list[Mapping[str, Any]] = []
    why_not: list[Refusal] = []
    for choice in _every_placement(names.gpu, names.host, names.nvme, code_changes):
        plan = replace(names.plan, **choice)
        why_not = _optimizer_refused(Facts(names.derivation, names.cluster, names.workload, plan))
        choices += [] if why_not else [choice]
    if not choices:
        raise cannot_run("DeepSpeed", why_not, "ZP021")
    return choices


def _every_placement(
    gpu: str, host: str | None, nvme: str | None, code_changes: bool
) -> list[Mapping[str, Any]]:
    outer = [tier for tier in (host, nvme) if tier]
    choices = [_choice(stage, gpu, gpu, gpu) for stage in (0, 1, 2, 3)]
    # Below stage 3 the optimizer can go to the host and nothing else can go anywhere.
    choices += [_choice(stage, gpu, host, gpu) for stage in (1, 2) if host]
    choices += [_choice(3, gpu, tier, gpu) for tier in outer]
    choices += [_choice(3, params, tier, gpu) for params in outer for tier in (gpu, *outer)]
    if host:
        choices += [_twin_flow(params, gpu, host) for params in (gpu, host)]
    # Only an optimizer on NVMe has a swap to pipeline.
    choices += [{**c, "optimizer_buffer_count": 12.0} for c in list(choices) if _homes(c)[1] == nvme]
    if code_changes and host:
        choices += [
            {**c, "placement": replace(c["placement"], checkpoints={host: 1.0})} for c in list(choices)
        ]
    return choices


def _choice(stage: int, params: str, optimizer: str, checkpoints: str) -> Mapping[str, Any]:
    placement = Placement({params: 1.0}, {optimizer: 1.0}, {optimizer: 1.0}, {checkpoints: 1.0})
    return {"zero_stage": float(stage), "placement": placement, "optimizer_buffer_count": 4.0}


def _twin_flow(params: str, gpu: str, host: str) -> Mapping[str, Any]:
    """An optimizer on both sides; `settle` finds the share."""
    both = {gpu: 0.5, host: 0.5}
    return {**_choice(3, params, host, gpu), "placement": Placement({params: 1.0}, both, both, {gpu: 1.0})}


def _homes(choice: Mapping[str, Any]) -> tuple[str, str]:
    placement: Placement = choice["placement"]
    return next(iter(placement.params)), next(iter(placement.optimizer))


def homes(cluster: Cluster, plan: Plan) -> Sequence[str]:
    """All that a machine has."""
    return list(cluster.node.tiers)


def settle(cluster: Cluster, workload: Workload, plan: Plan) -> Plan:
    """The fields that follow from the others.

    Swap buffers are as many as tensors are ever live at once (more only cost pinned memory),
    and none where nothing swaps; parameters on NVMe are never prefetched, because DeepSpeed
    0.19.8 asserts in its second iteration when they are.
    """
    facts = Facts(Derivation(record=False), cluster, workload, plan)
    if np.any(facts.twin_flow):
        plan = replace(plan, placement=_share_of_host(facts))
        facts = replace(facts, plan=plan)
    on_nvme = facts.knobs.params_on_nvme
    live = facts.played(lambda fetched, _: float(fetched.peak_tensors))
    return replace(
        plan,
        prefetch_depth=plan.prefetch_depth
        * (1 - on_nvme)
        * facts.stage3
        * where(plan.tile_count > 1, 0.0, 1.0),
        param_buffer_count=where(on_nvme > 0, live + SPARE_BUFFERS, 0.0),
        optimizer_buffer_count=where(facts.swaps_optimizer > 0, plan.optimizer_buffer_count, 0.0),
    )


def _share_of_host(facts: Facts) -> Placement:
    """The placement with the smallest share of the optimizer on the host that the GPU's memory allows.

    What a GPU needs falls along a line with that share, by the state of a rank, so the share at
    which it just fits follows from the need at any other one. It acts on whole sub-groups, the last
    of which can be next to nothing; next to none or all of them on the host are other placements.
    """
    placement, capacity = facts.plan.placement, facts.cluster.node.tiers[facts.gpu].capacity
    book = _gpu_of_the_job(facts)
    lacking = maximum(*(book.need(facts.gpu, phase)[1] for phase in RUNNING)) - capacity
    whole = facts.on_gpu_in_twin_flow * facts.trained / facts.plan.dp_degree
    share = maximum(facts.optimizer_on(facts.host) + lacking / whole, LEAST_SHARE)
    groups = whole_groups(facts.workload.model, facts.plan.dp_degree, facts.plan.sub_group_params, share)
    stepped = where(groups > 1 - LEAST_SHARE, 1.0, groups)
    host = where(facts.twin_flow > 0, stepped, facts.optimizer_on(facts.host))
    gpu = where(facts.twin_flow > 0, 1 - stepped, facts.optimizer_on(facts.gpu))
    assert facts.host
    homes = {**placement.optimizer, facts.host: host, facts.gpu: gpu}
    return replace(placement, grads=homes, optimizer=homes)


def _optimizer_refused(facts: Facts) -> list[Refusal]:
    """Why the optimizer cannot run where one plan wants it, or in the precision of its state."""
    training, stage = facts.workload.training, int(facts.plan.zero_stage)
    homes = facts.plan.placement.optimizer
    off_gpu = any(share for tier, share in homes.items() if tier != facts.gpu)
    on_both = off_gpu and bool(homes.get(facts.gpu, 0.0))
    reasons = refused(training.optimizer.kind, stage, off_gpu, on_both)
    if training.master_precision == "bf16":
        swapped = bool(facts.nvme and homes.get(facts.nvme, 0.0))
        reasons += bf16_refused(training.optimizer.kind, facts.workload.precision, stage, swapped, on_both)
    return reasons


def _gpu_of_the_job(facts: Facts) -> Ledger:
    """The lines of one GPU's memory, those of the models beside the trained one included."""
    if not facts.workload.companions:
        return gpu_ledger(facts)
    from ziplan.runtimes.shared.companions import engines_of, job_ledger  # few jobs have several models

    def of_gpu(derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan) -> Ledger:
        return gpu_ledger(Facts(derivation, cluster, workload, plan))

    others = engines_of(settle, facts.cluster, facts.workload, facts.plan)
    return job_ledger(of_gpu, facts.derivation, facts.cluster, facts.workload, facts.plan, others)


def refusals(cluster: Cluster, workload: Workload, plan: Plan) -> list[Refusal]:
    """Why DeepSpeed cannot run this plan."""
    facts = Facts(Derivation(record=False), cluster, workload, plan)
    reasons = [*undivided(plan), *_params_refused(facts), *_stage_refused(facts), *_optimizer_refused(facts)]
    if plan.placement.grads != plan.placement.optimizer:
        remedy = "placement.grads: as placement.optimizer is"
        reasons.append(Refusal("gradients live where the optimizer lives", "placement", "grads", help=remedy))
    return reasons


def _params_refused(f: Facts) -> list[Refusal]:
    """Why parameters cannot live where one plan wants them."""
    stage, on_gpu = int(f.plan.zero_stage), f.params_on(f.gpu)
    if stage < 3 and on_gpu < 1:
        said = f"zero_stage {stage} keeps all parameters on the GPU: offload_param needs stage 3"
        return [misplaced(said, "params", f.gpu, otherwise=", or zero_stage: 3")]
    if stage == 3 and 0 < on_gpu < 1:
        said = "offload_param has no share: parameters are all on the GPU, or all off it"
        return [misplaced(said, "params", f.gpu, f.host, f.nvme)]
    return []


def _stage_refused(f: Facts) -> list[Refusal]:
    """Why the optimizer cannot live where one plan wants it in its stage."""
    stage, reasons = int(f.plan.zero_stage), []
    if stage < 3 and f.optimizer_on(f.nvme) > 0:
        said = f"zero_stage {stage} has no NVMe offload of the optimizer: it needs stage 3"
        reasons.append(misplaced(said, "optimizer", f.gpu, f.host, otherwise=", or zero_stage: 3"))
    if stage < 1 and f.optimizer_off_gpu:
        said = "zero_stage 0 has no optimizer offload: it needs stage 1 or higher"
        reasons.append(misplaced(said, "optimizer", f.gpu, otherwise=", or zero_stage: 1 or higher"))
    return reasons
