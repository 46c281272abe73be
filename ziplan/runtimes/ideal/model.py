"""The ideal runtime: what the article's mechanisms would do if nothing were in their way.

Every tensor is striped over all ranks, a layer is fetched while the one before it computes,
gradients leave beside backward, and only the optimizer pass stands alone: it needs all
gradients, so nothing of the step is left to hide it behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ziplan.errors import CannotEmit
from ziplan.hardware.cluster import Cluster
from ziplan.laws.counts import tokens_per_rank
from ziplan.laws.law import Derivation, minimum, where
from ziplan.laws.memory import activation_bytes, logits_bytes, sharded_bytes
from ziplan.laws.partition import allgather_bytes
from ziplan.laws.prefetch import resident_layer_bytes
from ziplan.laws.traffic import parameter_traffic, streamed_bytes_per_param
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes.refusal import Refusal, undivided
from ziplan.runtimes.runtime import RUNNING, Axis, Demand, Ledger, Segment
from ziplan.runtimes.shared.compute import micro_step_flops
from ziplan.runtimes.shared.facts import ELEMENT_BYTES, FP32_BYTES, Facts
from ziplan.workload.optimizers import state_bytes
from ziplan.workload.training import Workload

PARAM_BYTES, GRAD_BYTES = 2.0, 2.0
"""16-bit parameters and gradients: with an fp32 master weight and Adam's moments the article's 16 bytes."""

PARAM_LOADS = 2.0
"""Climbs per micro-step: once for forward, once for recomputation and backward together."""

LOGIT_BYTES = 10.0
"""Per token and vocabulary entry: 16-bit logits, their fp32 copy and the softmax."""


def ledger(derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan) -> Ledger:
    """States at 16 bytes per parameter (2 where frozen), the layers in flight, activations and logits."""
    book, model = Ledger(derivation), workload.model
    kinds = (
        ("parameters", "params", PARAM_BYTES),
        ("gradients", "grads", GRAD_BYTES),
        ("optimizer state", "optimizer", _state_bytes(workload)),
    )
    for name, tier in cluster.node.tiers.items():
        ranks = 1.0 if tier.scope == "gpu" else minimum(float(cluster.node.gpus_per_node), plan.dp_degree)
        for title, field, bytes_per_param in kinds:
            params = model.params if field == "params" else model.trainable_params
            amount = derivation.apply(
                sharded_bytes,
                f"{title} on {name}",
                params=float(params),
                state_bytes_per_param=bytes_per_param,
                dp_degree=plan.dp_degree,
                share=getattr(plan.placement, field).get(name, 0.0),
                ranks_per_instance=ranks,
            )
            book.add(title, name, RUNNING, amount, knob=f"placement.{field}")
    _working_set(book, derivation, cluster, workload, plan)
    return book


def _working_set(
    book: Ledger, derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan
) -> None:
    model, acts, hbm = workload.model, workload.activations, cluster.node.gpu_tier
    layers = derivation.apply(
        resident_layer_bytes,
        "layer in use and layers ahead",
        prefetch_depth=plan.prefetch_depth,
        layer_bytes=PARAM_BYTES * float(model.layer_params) / plan.tile_count,
    )
    book.add("layers in flight", hbm, ("forward", "backward"), layers, knob="prefetch_depth, tile_count")
    tokens = _tokens(derivation, workload, plan)
    checkpoint = PARAM_BYTES * model.d_model
    whole = acts.none_low - acts.frozen_inputs + acts.attention_scores_low * workload.training.longest
    full, selective = _mode(plan, Checkpointing.FULL), _mode(plan, Checkpointing.SELECTIVE)
    parts = (
        (
            "activations",
            # Without backward only what is alive inside one layer is there.
            float(model.layer_count) if model.trainable_params else 1.0,
            full * checkpoint
            + selective * (acts.selective_low - acts.selective_frozen_inputs)
            + (1 - full - selective) * whole,
            ("forward", "backward"),
        ),
        ("recomputed layer", 1.0, full * whole, ("backward",)),
    )
    for name, count, per_token, phases in parts:
        amount = derivation.apply(
            activation_bytes,
            name,
            tokens_per_rank=tokens,
            layer_count=count,
            activation_bytes_per_token=per_token,
            share=1.0,
            ranks_per_instance=1.0,
        )
        book.add(name, hbm, phases, amount, knob="micro_batch_size, activation_checkpointing")
    logits = derivation.apply(
        logits_bytes,
        "logits and loss",
        tokens_per_rank=tokens,
        vocab_size=model.logits_share * float(model.vocab_size),
        logit_bytes_per_token=LOGIT_BYTES,
    )
    book.add("logits and loss", hbm, ("forward",), logits, knob="micro_batch_size, sequence_length")


def _state_bytes(workload: Workload) -> float:
    """Bytes per trained parameter of a master weight and of the optimizer's own state (12 with Adam)."""
    master = ELEMENT_BYTES[workload.training.master_precision]
    own = state_bytes(workload.model, workload.training.optimizer.kind) / max(1, workload.trainable_params)
    return master + own * master / FP32_BYTES


def _mode(plan: Plan, mode: Checkpointing) -> float:
    return where(plan.activation_checkpointing == mode, 1.0, 0.0)


def _tokens(derivation: Derivation, workload: Workload, plan: Plan) -> float:
    return derivation.apply(
        tokens_per_rank,
        micro_batch_size=plan.micro_batch_size,
        sequence_length=float(workload.training.longest),
    )


def program(derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan) -> Sequence[Segment]:
    """Everything of a micro-step at once; then the optimizer pass."""
    streamed = derivation.apply(
        streamed_bytes_per_param,
        param_bytes_per_param=PARAM_BYTES,
        # Without backward once.
        param_loads=PARAM_LOADS if workload.model.trainable_params else 1.0,
    )
    climbed = derivation.apply(
        parameter_traffic,
        "parameters climbing in one micro-step",
        params=float(workload.model.params),
        streamed_bytes_per_param=streamed,
    )
    trained = float(workload.model.trainable_params / workload.model.params)
    gathered = derivation.apply(
        allgather_bytes, "received from other ranks", gathered_bytes=climbed, dp_degree=plan.dp_degree
    )
    chains = [
        (Demand("compute", "gpu", micro_step_flops(Facts(derivation, cluster, workload, plan))),),
        (Demand("gather", "gather", gathered),),
        *(chain for name in _outer(cluster) for chain in _streams(plan, name, climbed, trained)),
    ]
    return (Segment("micro-step", plan.accumulation_steps, tuple(chains)), _pass(cluster, workload, plan))


def _outer(cluster: Cluster) -> list[str]:
    return [name for name, tier in cluster.node.tiers.items() if tier.scope == "node"]


def _streams(plan: Plan, tier: str, climbed: float, trained: float) -> list[tuple[Demand, ...]]:
    """Each direction of a tier's link is a chain of its own; `trained` is the share that has gradients."""
    params, grads = plan.placement.params.get(tier, 0.0), plan.placement.grads.get(tier, 0.0)
    down = trained * climbed / PARAM_LOADS * (GRAD_BYTES / PARAM_BYTES)
    return [
        (Demand("parameter stream", f"{tier}.read", params * climbed / plan.dp_degree),),
        (Demand("gradient stream", f"{tier}.write", grads * down / plan.dp_degree),),
    ]


def _pass(cluster: Cluster, workload: Workload, plan: Plan) -> Segment:
    """The optimizer reads and writes its state where that lives, and updates beside it."""
    params = float(workload.model.trainable_params)
    ranks = minimum(float(cluster.node.gpus_per_node), plan.dp_degree)
    demands = [
        Demand(
            "GPU optimizer",
            f"{cluster.node.gpu_tier}.read",
            _state(plan, cluster.node.gpu_tier) * 2 * _state_bytes(workload) * params / plan.dp_degree,
        )
    ]
    updating = 0.0
    for name in _outer(cluster):
        share = _state(plan, name)
        updating = updating + share * params / plan.dp_degree * ranks
        if cluster.node.tiers[name].medium == "nvme":
            moved = share * _state_bytes(workload) * params / plan.dp_degree
            demands += [
                Demand("optimizer read", f"{name}.swap_read", moved),
                Demand("optimizer write", f"{name}.swap_write", moved),
            ]
    return Segment(
        "optimizer step", 1.0, (tuple(demands), (Demand("CPU optimizer", "cpu_optimizer", updating),))
    )


def _state(plan: Plan, tier: str) -> float:
    return plan.placement.optimizer.get(tier, 0.0)


def axes(cluster: Cluster, workload: Workload, code_changes: bool = False) -> Sequence[Axis]:
    """Every home of parameters and of gradients with the optimizer; depth and tiles."""
    names, gpu = list(cluster.node.tiers), {cluster.node.gpu_tier: 1.0}
    fixed = workload.training.activation_checkpointing
    modes = ("none", "full") if fixed == "auto" else (fixed,)
    homes: list[Mapping[str, Any]] = [
        {"zero_stage": 3.0, "placement": Placement({p: 1.0}, {o: 1.0}, {o: 1.0}, gpu)}
        for p in names
        for o in names
    ]
    tiles = (1.0, 2.0, 4.0, 8.0, 16.0) if code_changes else (1.0,)
    return (
        Axis("placement", tuple(homes)),
        Axis(
            "checkpointing", tuple({"activation_checkpointing": float(Checkpointing.named(m))} for m in modes)
        ),
        Axis("prefetch", ({"prefetch_depth": 1.0},)),
        Axis("tiles", tuple({"tile_count": count} for count in tiles)),
    )


def homes(cluster: Cluster, plan: Plan) -> Sequence[str]:
    """Any tier."""
    return list(cluster.node.tiers)


def settle(cluster: Cluster, workload: Workload, plan: Plan) -> Plan:
    """Nothing follows from the rest here."""
    return plan


def refusals(cluster: Cluster, workload: Workload, plan: Plan) -> list[Refusal]:
    """The article's runtime is stage 3 without tensor or pipeline parallelism."""
    reasons = []
    if plan.zero_stage != 3:
        reasons.append(Refusal("the ideal runtime is stage 3", "zero_stage", help="zero_stage: 3"))
    return reasons + undivided(plan)


def emit(
    cluster: Cluster, workload: Workload, plan: Plan, nvme_path: str = "", trainer: str = "none"
) -> dict[str, str]:
    """There is no such runtime to configure."""
    raise CannotEmit(
        "the ideal runtime is a bound, not a program: plan with --runtime deepspeed to get a config"
    )
