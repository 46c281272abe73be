"""The plan as arguments of the Hugging Face Trainer, equal to ds_config.json wherever both say a thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ziplan.plan import Checkpointing
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.knobs import REENTRANT
from ziplan.runtimes.shared.said import has_fused_loss, has_liger
from ziplan.workload.training import Workload

LAYERS = ("rope", "rms_norm", "layer_norm", "swiglu", "geglu")
"""Liger's names of what it has kernels for inside of layers; it passes over those that a family lacks."""


def trainer_refusals(facts: Facts) -> list[str]:
    """What the Trainer cannot do of a plan that DeepSpeed can."""
    reasons = []
    if facts.plan.activation_checkpointing == Checkpointing.SELECTIVE:
        reasons.append("the Trainer recomputes whole layers: use --checkpointing full or none")
    if facts.checkpoints_on(facts.host):
        reasons.append("the Trainer keeps activation checkpoints on the GPU: leave out --allow-tiling")
    return reasons


def by_liger(workload: Workload) -> tuple[str, str]:
    """How the Trainer asks for fused kernels and for a fused loss; empty where Liger lacks the family."""
    if not has_liger(workload):
        return "", ""
    loss = "by Liger's fused_linear_cross_entropy, which holds fewer logits at a time"
    return "by use_liger_kernel of trainer_args.json", loss if has_fused_loss(workload) else ""


def trainer_arguments(facts: Facts, config: Mapping[str, Any]) -> dict[str, Any]:
    """What `HfArgumentParser(TrainingArguments).parse_json_file` takes."""
    optimizer = facts.workload.training.optimizer
    made_here = {"optim": "adamw_bnb_8bit"} if optimizer.kind == "adamw_8bit" else {}
    recomputes = facts.plan.activation_checkpointing == Checkpointing.FULL
    return {
        "deepspeed": "ds_config.json",
        "per_device_train_batch_size": config["train_micro_batch_size_per_gpu"],
        "gradient_accumulation_steps": config["gradient_accumulation_steps"],
        "gradient_checkpointing": recomputes,
        **({"gradient_checkpointing_kwargs": {"use_reentrant": REENTRANT}} if recomputes else {}),
        "bf16": "bf16" in config,
        "fp16": "fp16" in config,
        **made_here,
        **_kernels(facts.workload),
        "learning_rate": optimizer.learning_rate,
        "weight_decay": optimizer.weight_decay,
        "adam_beta1": optimizer.beta1,
        "adam_beta2": optimizer.beta2,
        "adam_epsilon": optimizer.epsilon,
        "max_grad_norm": config["gradient_clipping"],
    }


def _kernels(workload: Workload) -> dict[str, Any]:
    """What computes between products with matrices, and the loss, where that is not transformers' own.

    Liger's other loss, `cross_entropy`, would get logits that transformers has made fp32 of.
    """
    training = workload.training
    arguments: dict[str, Any] = {"torch_compile": True} if training.kernels == "compiled" else {}
    fused, loss = training.kernels == "fused", training.loss == "fused" and has_fused_loss(workload)
    if has_liger(workload) and (fused or loss):
        arguments["use_liger_kernel"] = True
        arguments["liger_kernel_config"] = {
            **({} if fused else dict.fromkeys(LAYERS, False)),
            "cross_entropy": False,
            "fused_linear_cross_entropy": loss,
        }
    return arguments
