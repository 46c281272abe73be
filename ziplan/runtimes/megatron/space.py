"""What Megatron can be asked to do here: the search space, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ziplan.hardware.cluster import Cluster
from ziplan.plan import Checkpointing, Plan
from ziplan.runtimes import deepspeed
from ziplan.runtimes.megatron import zero
from ziplan.runtimes.refusal import MASTER_PRECISION, OPTIMIZER, Refusal, cannot_run, misplaced
from ziplan.runtimes.runtime import Axis
from ziplan.workload.training import Workload


def axes(cluster: Cluster, workload: Workload, code_changes: bool = False) -> Sequence[Axis]:
    """With or without the distributed optimizer; degrees above 1 come from a plan, not from a search."""
    reasons = _training_refused(workload)
    if reasons:
        raise cannot_run("Megatron-LM", reasons, "ZP021")
    fixed = workload.training.activation_checkpointing
    modes: tuple[str, ...] = ("none", "selective", "full") if fixed == "auto" else (fixed,)
    return (
        Axis("degrees", ({"tp_degree": 1.0, "pp_degree": 1.0, "vpp_degree": 1.0},)),
        Axis("distributed optimizer", ({"zero_stage": 1.0}, {"zero_stage": 0.0})),
        Axis(
            "checkpointing", tuple({"activation_checkpointing": float(Checkpointing.named(m))} for m in modes)
        ),
    )


def homes(cluster: Cluster, plan: Plan) -> Sequence[str]:
    """The GPU alone, or where DeepSpeed's stages put things."""
    return deepspeed.homes(cluster, plan) if zero.used(plan) else [cluster.node.gpu_tier]


def settle(cluster: Cluster, workload: Workload, plan: Plan) -> Plan:
    """Nothing is gathered ahead, and nothing swapped, but by DeepSpeed."""
    if zero.used(plan):
        return zero.settle(cluster, workload, plan)
    return replace(plan, prefetch_depth=0.0, param_buffer_count=0.0, optimizer_buffer_count=0.0)


def refusals(cluster: Cluster, workload: Workload, plan: Plan) -> list[Refusal]:
    """Why Megatron cannot run this plan, or why what is written here does not."""
    reasons = _training_refused(workload)
    if zero.used(plan):
        divided = _undividable(cluster, workload, plan)
        return reasons + (divided or zero.refusals(cluster, workload, plan))
    if plan.tile_count != 1:
        said = "Megatron-LM has no tiling: tile_count 1 only"
        reasons.append(Refusal(said, "tile_count", help="tile_count: 1"))
    reasons += _off_gpu(plan, cluster.node.gpu_tier)
    return reasons + _undividable(cluster, workload, plan)


def _off_gpu(plan: Plan, gpu: str) -> list[Refusal]:
    """What a plan below stage 2 has elsewhere than on the GPU: the first state that is."""
    said = "below stage 2 everything stays on the GPU with Megatron-LM as it is planned here"
    for state, home in vars(plan.placement).items():
        if any(share for tier, share in home.items() if tier != gpu):
            return [misplaced(said, state, gpu)]
    return []


def _training_refused(workload: Workload) -> list[Refusal]:
    model, training, reasons = workload.model, workload.training, []
    elsewhere = "--runtime deepspeed"
    if training.optimizer.kind != "adamw":
        said = f"{training.optimizer.kind} is not planned with Megatron-LM: adamw only"
        reasons.append(Refusal(said, *OPTIMIZER, help="--optimizer adamw"))
    if training.master_precision != "fp32":
        said = "Megatron-LM steps fp32 weights: master_precision fp32 only"
        reasons.append(Refusal(said, *MASTER_PRECISION, help="training.master_precision: fp32"))
    if model.trainable_params != model.params:
        said = "frozen parameters and adapters are not planned with Megatron-LM"
        reasons.append(Refusal(said, "planned_for", "trainable", help=elsewhere))
    if workload.companions:
        reasons.append(Refusal("one model a job is planned with Megatron-LM", "runtime", help=elsewhere))
    if model.active_params != model.params:
        said = "experts, which Megatron-LM can divide in further ways, are not planned with it"
        reasons.append(Refusal(said, "runtime", help=elsewhere))
    return reasons


def _undividable(cluster: Cluster, workload: Workload, plan: Plan) -> list[Refusal]:
    """Degrees that do not divide what they have to."""
    model, node, reasons = workload.model, cluster.node, []
    tp, pp, dp = int(plan.tp_degree), int(plan.pp_degree), int(plan.dp_degree)
    pieces = int(plan.vpp_degree)
    if model.attention_heads % tp:
        said = f"tp_degree {tp} does not divide {model.attention_heads} attention heads"
        reasons.append(Refusal(said, "tp_degree", help=_divisor("tp_degree", model.attention_heads)))
    elif model.key_value_heads % tp:
        # `megatron/core/transformer/transformer_config.py:__post_init__`
        said = (
            f"tp_degree {tp} does not divide the {model.key_value_heads} heads of keys and values, "
            "which Megatron-LM asks for"
        )
        reasons.append(Refusal(said, "tp_degree", help=_divisor("tp_degree", model.key_value_heads)))
    if model.layer_count % pp:
        said = f"pp_degree {pp} does not divide {model.layer_count} layers"
        reasons.append(Refusal(said, "pp_degree", help=_divisor("pp_degree", model.layer_count)))
    elif pieces > 1:
        reasons += _interleaved(model.layer_count, pp, pieces, int(plan.accumulation_steps))
    if node.gpus_per_node % tp:
        said = (
            f"tp_degree {tp} does not divide the {node.gpus_per_node} GPUs of a node: "
            "tensor parallelism is planned within a node"
        )
        reasons.append(Refusal(said, "tp_degree", help=_divisor("tp_degree", node.gpus_per_node)))
    if tp * pp * dp > cluster.gpu_count:
        asked = f"tp_degree {tp} x pp_degree {pp} x dp_degree {dp}"
        said = f"{asked} are more than the {cluster.gpu_count} GPUs there are"
        reasons.append(Refusal(said, "dp_degree", help="smaller degrees, or more nodes"))
    return reasons


def _divisor(key: str, whole: int) -> str:
    return f"{key}: a divisor of {whole}"


def _interleaved(layers: int, pp: int, pieces: int, steps: int) -> list[Refusal]:
    """Why stages cannot be cut into pieces (`megatron/training/arguments.py:validate_args`).

    Micro-batches go through a piece in groups of as many as there are stages, unless another size is
    asked for (`pipeline_parallel/schedules.py:forward_backward_pipelining_with_interleaving`).
    """
    if pp == 1:
        said = f"vpp_degree {pieces} cuts stages into pieces, and pp_degree 1 has none"
        return [Refusal(said, "vpp_degree", help="vpp_degree: 1")]
    if layers % (pp * pieces):
        said = f"vpp_degree {pieces} does not divide the {layers // pp} layers of a stage"
        return [Refusal(said, "vpp_degree", help=_divisor("vpp_degree", layers // pp))]
    if steps % pp:
        said = (
            f"accumulation_steps {steps} are no multiple of pp_degree {pp}, "
            "which interleaved stages (vpp_degree) ask for"
        )
        remedy = f"accumulation_steps: a multiple of {pp}, or vpp_degree: 1"
        return [Refusal(said, "accumulation_steps", help=remedy)]
    return []
