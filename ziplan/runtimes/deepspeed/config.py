"""The files that make DeepSpeed run a plan, in DeepSpeed's own units. Never "auto"."""

from __future__ import annotations

import json
import math
from typing import Any

from ziplan.errors import CannotEmit
from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes.deepspeed.accelerate import accelerate_config
from ziplan.runtimes.deepspeed.facts import PIPELINED_BUFFERS, Facts
from ziplan.runtimes.deepspeed.huggingface import trainer_arguments, trainer_refusals
from ziplan.runtimes.deepspeed.knobs import AIO, PERSISTENCE_THRESHOLD
from ziplan.runtimes.deepspeed.launch import launch_files
from ziplan.runtimes.deepspeed.space import refusals
from ziplan.runtimes.deepspeed.tiled import pieces
from ziplan.runtimes.deepspeed.twin_flow import ratio_of
from ziplan.workload.load import LOSS_SCALE_POWER
from ziplan.workload.training import Workload

NVME_PATH = "/local_nvme"
"""Where the drives of a node are mounted, unless the caller says otherwise."""


TRAINERS = ("none", "huggingface", "accelerate")
"""Who runs the training loop: a script of one's own, the Hugging Face Trainer, or one with accelerate."""


def emit(
    cluster: Cluster, workload: Workload, plan: Plan, nvme_path: str = NVME_PATH, trainer: str = "none"
) -> dict[str, str]:
    """`ds_config.json`, launch lines, what the trainer reads and, where tiling is chosen, what to tile."""
    reasons = refusals(cluster, workload, plan)
    if reasons:
        raise CannotEmit("DeepSpeed cannot run this plan: " + "; ".join(reasons))
    facts = Facts(Derivation(record=False), cluster, workload, plan)
    document = config(facts, nvme_path)
    files = {
        "ds_config.json": _json(document),
        **_trainer_files(facts, document, trainer),
        **launch_files(facts, trainer),
    }
    if plan.tile_count > 1:
        files["tiling.md"] = _tiling(facts)
    if workload.companions:
        from ziplan.runtimes.deepspeed.beside import companion_configs  # few jobs have several models

        others = companion_configs(cluster, workload, plan, nvme_path)
        files |= {name: _json(other) for name, other in others.items()}
    return files


def _trainer_files(facts: Facts, document: dict[str, Any], trainer: str) -> dict[str, str]:
    if trainer not in TRAINERS:
        raise CannotEmit(f"unknown trainer {trainer!r}: known are {', '.join(TRAINERS)}")
    if trainer == "accelerate":
        return {"accelerate_config.yaml": accelerate_config(facts)}
    if trainer == "none":
        return {}
    reasons = trainer_refusals(facts)
    if reasons:
        raise CannotEmit("the Trainer cannot run this plan: " + "; ".join(reasons))
    return {"trainer_args.json": _json(trainer_arguments(facts, document))}


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


def config(facts: Facts, nvme_path: str) -> dict[str, Any]:
    """The DeepSpeed config as a mapping."""
    plan, precision = facts.plan, facts.workload.precision
    document: dict[str, Any] = {
        "train_batch_size": int(plan.micro_batch_size * plan.accumulation_steps * plan.dp_degree),
        "train_micro_batch_size_per_gpu": int(plan.micro_batch_size),
        "gradient_accumulation_steps": int(plan.accumulation_steps),
        "gradient_clipping": facts.clipped,
        **_precision(precision, facts.workload.training.master_precision),
        **_optimizer(facts),
        "zero_optimization": _zero(facts, nvme_path),
    }
    if facts.params_on(facts.nvme) or facts.optimizer_on(facts.nvme):
        document["aio"] = dict(AIO)
    if facts.checkpoints_on(facts.host):
        document["activation_checkpointing"] = {
            "partition_activations": False,
            "cpu_checkpointing": True,
            "contiguous_memory_optimization": False,
        }
    return document


def _precision(precision: str, master: str) -> dict[str, Any]:
    if precision == "fp32":
        return {"data_types": {"grad_accum_dtype": "fp32"}}
    enabled: dict[str, Any] = {"enabled": True}
    if precision == "fp16":
        enabled |= {"loss_scale": 0, "initial_scale_power": LOSS_SCALE_POWER}
        enabled |= {"loss_scale_window": 1000, "hysteresis": 2}
    if master == "bf16":
        enabled |= {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    return {precision: enabled, "data_types": {"grad_accum_dtype": precision}}


def _optimizer(facts: Facts) -> dict[str, Any]:
    """The optimizer's section: none where train.py has to make it, and a flag where it is not DeepSpeed's."""
    settings, supported = facts.workload.training.optimizer, facts.optimizer
    section: dict[str, Any] = {} if supported.tested else {"zero_allow_untested_optimizer": True}
    if supported.config_type is None:
        return section
    values: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    if settings.kind in ("adamw", "lion"):
        values["betas"] = [settings.beta1, settings.beta2]
    if settings.kind == "adamw":
        values["eps"] = settings.epsilon
    if facts.of_operators:
        values["torch_adam"] = True
    return {**section, "optimizer": {"type": supported.config_type, "params": values}}


def _zero(facts: Facts, nvme_path: str) -> dict[str, Any]:
    stage = int(facts.plan.zero_stage)
    section: dict[str, Any] = {"stage": stage}
    if stage == 0:
        return section
    bucket = math.ceil(facts.knobs.reduce_bucket)
    section |= {
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_scatter": True,
        "reduce_bucket_size": bucket,
    }
    if stage < 3:
        section |= {"allgather_partitions": True, "allgather_bucket_size": bucket}
        if facts.optimizer_off_gpu:
            # Else one rank copies its gradients to the host at a time.
            section |= {"round_robin_gradients": True}
    else:
        section |= {
            "sub_group_size": int(facts.plan.sub_group_params),
            "stage3_prefetch_bucket_size": math.ceil(facts.knobs.prefetch_bucket),
            "stage3_max_live_parameters": math.ceil(facts.knobs.max_live),
            "stage3_max_reuse_distance": math.ceil(facts.knobs.reuse_distance),
            "stage3_param_persistence_threshold": PERSISTENCE_THRESHOLD,
            "stage3_gather_16bit_weights_on_model_save": False,
        }
    return section | _offload(facts, nvme_path)


def _offload(facts: Facts, nvme_path: str) -> dict[str, Any]:
    plan, section = facts.plan, {}
    if facts.params_on(facts.host):
        section["offload_param"] = {"device": "cpu", "pin_memory": True}
    elif facts.params_on(facts.nvme):
        section["offload_param"] = {
            "device": "nvme",
            "nvme_path": nvme_path,
            "pin_memory": True,
            "buffer_count": int(plan.param_buffer_count),
            # Elements of one rank's shard, not bytes.
            "buffer_size": math.ceil(facts.shards.largest),
            "max_in_cpu": 0,
        }
    if facts.optimizer_on(facts.nvme):
        pipelined = plan.optimizer_buffer_count >= PIPELINED_BUFFERS
        section["offload_optimizer"] = {
            "device": "nvme",
            "nvme_path": nvme_path,
            "pin_memory": True,
            "buffer_count": int(plan.optimizer_buffer_count),
            "pipeline_read": pipelined,
            "pipeline_write": pipelined,
            "fast_init": False,
        }
    elif facts.optimizer_on(facts.host):
        section["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if facts.plan.zero_stage >= 3:
            share = facts.optimizer_on(facts.host)
            section["offload_optimizer"]["ratio"] = ratio_of(
                facts.workload.model, plan.dp_degree, plan.sub_group_params, share
            )
    return section


def _tiling(facts: Facts) -> str:
    counts = pieces(facts.workload.model, int(facts.plan.tile_count))
    rows = [f"- `{name}`: `out_splits={count}, in_splits=1`" for name, count in counts.items()]
    return "\n".join(
        [
            "# Tile these operators",
            "",
            "This plan fits only when the widest linears are split into tiles that are gathered one at a",
            "time. Replace each with `deepspeed.zero.TiledLinear` before the engine is made:",
            "",
            *rows,
            "",
        ]
    )
