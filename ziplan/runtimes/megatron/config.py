"""The file that makes Megatron-LM run a plan: the arguments of `pretrain_gpt.py`."""

from __future__ import annotations

from ziplan.errors import CannotEmit
from ziplan.hardware.cluster import Cluster
from ziplan.plan import Checkpointing, Plan
from ziplan.runtimes.megatron import zero
from ziplan.runtimes.megatron.gpt import gpt_of, otherwise
from ziplan.runtimes.megatron.space import refusals
from ziplan.workload.training import Workload


def emit(
    cluster: Cluster, workload: Workload, plan: Plan, nvme_path: str = "", trainer: str = "none"
) -> dict[str, str]:
    """`launch.sh`: degrees, batch, precision and sizes as planned; data and schedule are yours."""
    if trainer != "none":
        raise CannotEmit(f"Megatron-LM has no files for the trainer {trainer!r}: use none")
    if zero.used(plan):
        raise CannotEmit(
            "DeepSpeed's stages 2 and 3 below Megatron-LM are predicted, no files are written for them"
        )
    reasons = refusals(cluster, workload, plan)
    other = otherwise(workload.model)
    if other:
        raise CannotEmit("predicted, but pretrain_gpt.py would train another model: " + "; ".join(other))
    if reasons:
        raise CannotEmit("Megatron-LM cannot run this plan: " + "; ".join(reasons))
    return {"launch.sh": "\n".join(_script(cluster, workload, plan)) + "\n"}


def _script(cluster: Cluster, workload: Workload, plan: Plan) -> list[str]:
    everyone = int(plan.gpus)
    gpus = min(cluster.node.gpus_per_node, everyone)
    nodes = -(-everyone // gpus)
    where_to = [f"--nproc_per_node {gpus}", f"--nnodes {nodes}"]
    if nodes > 1:
        where_to += ["--node_rank $NODE_RANK", "--master_addr $HEAD_NODE", "--master_port 29500"]
    return [
        "#!/usr/bin/env bash",
        f"# {workload.model.name}, {workload.model.params:,} parameters, its vocabulary not padded.",
        "# Add what a plan does not say: data, tokenizer, learning rate, and what of your model has no",
        "# parameters (how positions are rotated, windows of attention, dropout).",
        "export CUDA_DEVICE_MAX_CONNECTIONS=1",
        f"torchrun {' '.join(where_to)} pretrain_gpt.py \\",
        *(f"    {argument} \\" for argument in _arguments(workload, plan)),
        '    "$@"',
    ]


def _arguments(workload: Workload, plan: Plan) -> list[str]:
    model, training, made = workload.model, workload.training, gpt_of(workload.model)
    sequences = int(plan.micro_batch_size * plan.accumulation_steps * plan.dp_degree)
    longest = made.positions or model.max_sequence_length or training.sequence_length
    arguments = [
        f"--num-layers {model.layer_count}",
        f"--hidden-size {model.d_model}",
        f"--num-attention-heads {model.attention_heads}",
        f"--seq-length {training.sequence_length}",
        f"--max-position-embeddings {longest}",
        f"--micro-batch-size {int(plan.micro_batch_size)}",
        f"--global-batch-size {sequences}",
        f"--tensor-model-parallel-size {int(plan.tp_degree)}",
        f"--pipeline-model-parallel-size {int(plan.pp_degree)}",
        *made.arguments,
    ]
    if plan.vpp_degree > 1:
        arguments.append(f"--num-virtual-stages-per-pipeline-rank {int(plan.vpp_degree)}")
    if workload.precision != "fp32":
        arguments.append(f"--{workload.precision}")
    if plan.zero_stage >= 1:
        arguments.append("--use-distributed-optimizer")
    if plan.activation_checkpointing == Checkpointing.FULL:
        arguments += [
            "--recompute-granularity full",
            "--recompute-method uniform",
            "--recompute-num-layers 1",
        ]
    if plan.activation_checkpointing == Checkpointing.SELECTIVE:
        arguments += ["--recompute-activations", *["--sequence-parallel"] * (plan.tp_degree > 1)]
    return arguments
