"""The file that makes Megatron-LM run a plan: the arguments of `pretrain_gpt.py`."""

from __future__ import annotations

from ziplan.errors import CannotEmit
from ziplan.hardware.cluster import Cluster
from ziplan.plan import Checkpointing, Plan
from ziplan.runtimes.megatron import zero
from ziplan.runtimes.megatron.gpt import gpt_of, otherwise
from ziplan.runtimes.megatron.space import refusals
from ziplan.runtimes.shared.said import ALLOCATOR, allocator_notes, allocator_setting
from ziplan.workload.training import Training, Workload

BACKENDS = {"flash": "flash", "eager": "unfused"}
"""Its names (`AttnBackend`) of what computes attention."""

UNFUSED = (
    *("--no-bias-gelu-fusion", "--no-bias-swiglu-fusion", "--no-bias-dropout-fusion"),
    *("--no-rope-fusion", "--no-masked-softmax-fusion"),
)
"""What has each operator of a layer run by itself, but for norms."""


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
    said = workload.training.dropout is not None
    where_to = [f"--nproc_per_node {gpus}", f"--nnodes {nodes}"]
    if nodes > 1:
        where_to += ["--node_rank $NODE_RANK", "--master_addr $HEAD_NODE", "--master_port 29500"]
    return [
        "#!/usr/bin/env bash",
        f"# {workload.model.name}, {workload.model.params:,} parameters, its vocabulary not padded.",
        "# Add what a plan does not say: data, tokenizer, learning rate, and what of your model has no",
        f"# parameters (how positions are rotated, windows of attention{'' if said else ', dropout'}).",
        *(f"# {line}" for line in _not_asked(workload)),
        *(f"# {line}" for line in allocator_notes(workload.training)),
        f"export {ALLOCATOR}={allocator_setting(workload.training)}",
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
    return [*arguments, *_kernels(training)]


def _kernels(training: Training) -> list[str]:
    """What computes attention, what lies between products, and the loss (`megatron/training/arguments.py`).

    Fusions are on unless they are turned off; dropout is 0.1 unless another number is given.
    """
    chosen = {
        f"--attention-backend {BACKENDS[training.attention]}": True,
        "--attention-softmax-in-fp32": training.attention == "eager" and training.softmax == "fp32",
        "--cross-entropy-loss-fusion": training.loss == "fused",
        "--attention-dropout 0 --hidden-dropout 0": training.dropout is False,
        "--clip-grad 0.0": training.gradient_clipping is False,
    }
    unfused = UNFUSED if training.kernels == "eager" else ()
    return [*(argument for argument, asked in chosen.items() if asked), *unfused]


def _not_asked(workload: Workload) -> list[str]:
    """What was predicted with and no argument asks for."""
    training = workload.training
    said = []
    if training.kernels == "eager":
        said.append("Predicted with eager kernels; norms stay fused, which no argument turns off.")
    if training.kernels == "compiled":
        said.append("Predicted with kernels that torch.compile makes; Megatron-LM's own fuse what they do.")
    if training.optimizer.fused is False:
        said.append("Predicted with a fused AdamW, which Megatron-LM has no argument to do without.")
    if training.loss == "upcast":
        said.append("Predicted with a loss of an fp32 copy of the logits; Megatron-LM's is in its place.")
    return said
