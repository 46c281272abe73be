"""The plan that a config amounts to on a machine, and the training settings that it states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, NamedTuple

from ziplan.hardware.cluster import Cluster
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes.deepspeed.reading.computed import (
    OfConfig,
    kernels_and_loss,
    optimizer_of,
    remarks_on,
)
from ziplan.runtimes.deepspeed.reading.huggingface import TrainerArguments
from ziplan.runtimes.deepspeed.reading.read import Reading
from ziplan.runtimes.deepspeed.reading.remarks import Notes, Remark, RemarkKind
from ziplan.runtimes.deepspeed.reading.settings import Settings
from ziplan.runtimes.deepspeed.reading.unplanned import OPTIMIZERS
from ziplan.runtimes.deepspeed.shards import sub_groups
from ziplan.runtimes.deepspeed.twin_flow import share_on_host
from ziplan.workload.training import Workload

ARGUMENT_NAMES = {
    "learning_rate": ("lr",),
    "weight_decay": ("weight_decay",),
    "epsilon": ("eps",),
}
"""ziplan's names of an optimizer's settings, to DeepSpeed's."""


class Settled(NamedTuple):
    """The plan, None where the machine or the config lacks what decides it, and what is said of that."""

    plan: Plan | None
    remarks: tuple[Remark, ...] = ()


def stated_training(reading: Reading, family: str = "") -> dict[str, Any]:
    """What the config says of training of a family's model, under the names of model.yaml's `training:`."""
    settings = reading.settings
    if settings is None:
        return {}
    training: dict[str, Any] = {"precision": settings.types.compute}
    if reading.batch is not None:
        training["micro_batch_size"] = reading.batch.micro_batch_size
        training["accumulation_steps"] = reading.batch.accumulation_steps
    if optimizer := _optimizer(settings):
        training["optimizer"] = optimizer
    if settings.gradient_clipping == 0:
        training["gradient_clipping"] = False
    if settings.stage == 3 and settings.gather_16bit_weights_on_model_save:
        training["saving"] = "gathered"
    if (zero_init := _zero_init(reading, settings)) is not None:
        training["loading"] = {"zero_init": zero_init}
    if reading.arguments is not None:
        training |= _of_arguments(reading.arguments, settings, family)
    return training


def _of_arguments(arguments: TrainerArguments, settings: Settings, family: str) -> dict[str, Any]:
    """What the Trainer's arguments say of training."""
    said: dict[str, Any] = {
        "activation_checkpointing": "full" if arguments.recomputes else "none",
        "data_workers": arguments.dataloader_num_workers,
        **kernels_and_loss(arguments, family),
    }
    of_config = _of_config(settings)
    if "optim" in arguments.stated and not of_config.names_optimizer:
        made = optimizer_of(arguments, of_config.offloaded)
        said |= {"optimizer": made} if made else {}
    return said


def _of_config(settings: Settings) -> OfConfig:
    name = settings.optimizer.name
    offloaded = settings.stage > 0 and settings.offload_optimizer.device != "none"
    return OfConfig(settings.stage, name is not None, OPTIMIZERS.get((name or "").lower()), offloaded)


def _optimizer(settings: Settings) -> dict[str, Any]:
    """The optimizer under ziplan's names; what is no number that it takes is left out."""
    kind = OPTIMIZERS.get((settings.optimizer.name or "").lower())
    if kind is None:
        return {}
    values: dict[str, Any] = {"kind": kind}
    params = settings.optimizer.params
    if kind == "adamw" and params.get("torch_adam"):
        values["fused"] = False
    for name, (theirs,) in ARGUMENT_NAMES.items():
        if isinstance(params.get(theirs), int | float):
            values[name] = params[theirs]
    betas = params.get("betas")
    if isinstance(betas, list) and len(betas) == 2:
        values["beta1"], values["beta2"] = betas
    return values


def _zero_init(reading: Reading, settings: Settings) -> bool | None:
    """Whether the model is divided as it is made; a script of one's own decides that itself."""
    if settings.stage < 3 or reading.trainer == "none":
        return None
    stated = reading.plugin.zero3_init_flag if reading.plugin else None
    return True if stated is None else stated


def settled_plan(reading: Reading, cluster: Cluster, workload: Workload) -> Settled:
    """The plan of an accepted config for a model on a machine.

    What DeepSpeed does decides, not what is asked for: `nvme` below stage 3 is the CPU, parameters within
    `max_in_cpu` stay in DRAM, and `ratio` acts on whole sub-groups.
    """
    settings, batch = reading.settings, reading.batch
    if settings is None or batch is None:
        return Settled(None)
    if lacking := _lacking(settings, cluster):
        return Settled(None, (_remark(reading, "unknown", lacking, "name a machine that has it"),))
    checkpointing, unknown = _checkpointing(reading, workload)
    remarks = (*unknown, *_on_arguments(reading, settings, workload))
    optimizer = _optimizer_homes(reading, settings, cluster, workload)
    plan = Plan(
        dp_degree=float(reading.ranks),
        zero_stage=float(settings.stage),
        placement=Placement(
            params=_param_homes(reading, settings, cluster, workload),
            grads=optimizer,
            optimizer=optimizer,
            checkpoints=_checkpoint_homes(reading, cluster, checkpointing),
        ),
        micro_batch_size=float(batch.micro_batch_size),
        accumulation_steps=float(batch.accumulation_steps),
        activation_checkpointing=checkpointing,
        prefetch_depth=_depth(settings, workload),
        sub_group_params=float(settings.sub_group_size),
        param_buffer_count=float(settings.offload_param.buffer_count) if _swaps_params(settings) else 0.0,
        optimizer_buffer_count=_optimizer_buffers(settings),
    )
    return Settled(plan, remarks)


def _swaps_params(settings: Settings) -> bool:
    return settings.stage == 3 and settings.offload_param.device == "nvme"


def _optimizer_buffers(settings: Settings) -> float:
    swaps = settings.stage == 3 and settings.offload_optimizer.device == "nvme"
    return float(settings.offload_optimizer.buffer_count) if swaps else 0.0


def _lacking(settings: Settings, cluster: Cluster) -> str:
    """The tier that the config puts something on and the machine does not have."""
    optimizer = settings.offload_optimizer.device if settings.stage > 0 else "none"
    if (_swaps_params(settings) or _optimizer_buffers(settings)) and cluster.node.tier_of("nvme") is None:
        return "device: nvme, and the machine has no NVMe"
    offloads = optimizer != "none" or (settings.stage == 3 and settings.offload_param.device != "none")
    if offloads and cluster.node.tier_of("dram") is None:
        return "device: cpu, and nothing is known of the machine's DRAM"
    return ""


def _depth(settings: Settings, workload: Workload) -> float:
    """Layers fetched ahead, begun ones counted: a plan's measure of the prefetch bucket."""
    if settings.stage < 3 or _swaps_params(settings):
        return 0.0
    bucket = 1 if settings.allgather_sequential else settings.prefetch_bucket_size
    return float(math.ceil(bucket / workload.model.largest_layer_params))


def _param_homes(
    reading: Reading, settings: Settings, cluster: Cluster, workload: Workload
) -> Mapping[str, float]:
    """Where the parameters live; on NVMe, those that `max_in_cpu` keeps in DRAM do not."""
    node, offload = cluster.node, settings.offload_param
    host, nvme = node.tier_of("dram"), node.tier_of("nvme")
    if settings.stage < 3 or offload.device == "none" or host is None:
        return {node.gpu_tier: 1.0}
    if offload.device == "cpu" or nvme is None:
        return {host: 1.0}
    groups = sub_groups(workload.model, float(reading.ranks), float(settings.sub_group_size))
    kept = kept_in_cpu(groups, offload.max_in_cpu)
    return {tier: share for tier, share in ((host, kept), (nvme, 1 - kept)) if share > 0}


def kept_in_cpu(groups: tuple[float, ...], max_in_cpu: float) -> float:
    """The share of a rank's parameters that stays in DRAM: sub-groups from the first, while they fit.

    `stage3.py:_create_fp16_partitions_with_defragmentation`, where one that does not fit takes its place
    in the buffer all the same.
    """
    ends = list(accumulate(groups))
    fitting = [end for end in ends if end <= max_in_cpu]
    return fitting[-1] / ends[-1] if fitting else 0.0


def _optimizer_homes(
    reading: Reading, settings: Settings, cluster: Cluster, workload: Workload
) -> Mapping[str, float]:
    """Where the optimizer lives; `ratio` divides it in whole sub-groups."""
    node, offload = cluster.node, settings.offload_optimizer
    host, nvme = node.tier_of("dram"), node.tier_of("nvme")
    if offload.device == "none" or settings.stage == 0 or host is None:
        return {node.gpu_tier: 1.0}
    if offload.device == "nvme" and settings.stage == 3 and nvme is not None:
        return {nvme: 1.0}
    if settings.stage < 3:
        return {host: 1.0}
    sizes = float(reading.ranks), float(settings.sub_group_size)
    there = share_on_host(workload.model, *sizes, offload.ratio)
    return {tier: share for tier, share in ((node.gpu_tier, 1 - there), (host, there)) if share > 0}


def _checkpointing(reading: Reading, workload: Workload) -> tuple[float, tuple[Remark, ...]]:
    """How much is recomputed: the Trainer's arguments say, else the training settings do."""
    if reading.arguments is not None:
        return Checkpointing.FULL if reading.arguments.recomputes else Checkpointing.NONE, ()
    stated = workload.training.activation_checkpointing
    if stated != "auto":
        return Checkpointing.named(stated), ()
    message = "whether layers are recomputed is the script's to say, and not in the config: taken as no"
    remark = _remark(reading, "unknown", message, "say training.activation_checkpointing")
    return Checkpointing.NONE, (remark,)


def _on_arguments(reading: Reading, settings: Settings, workload: Workload) -> tuple[Remark, ...]:
    """What is said of the Trainer's arguments, where their file has them."""
    if reading.arguments is None or reading.outer is None:
        return ()
    notes = Notes(reading.outer)
    said = remarks_on(reading.arguments, workload.model.family, _of_config(settings))
    for kind, name, message, fix in said:
        notes.add(kind, (name,), message, fix, "start" if kind == "rejected" else "config")
    return tuple(notes.remarks)


def _checkpoint_homes(reading: Reading, cluster: Cluster, checkpointing: float) -> Mapping[str, float]:
    """On the host only where a script of one's own recomputes with DeepSpeed's function."""
    section, host = reading.config.get("activation_checkpointing"), cluster.node.tier_of("dram")
    asked = isinstance(section, dict) and bool(section.get("cpu_checkpointing"))
    if asked and reading.trainer == "none" and checkpointing == Checkpointing.FULL and host:
        return {host: 1.0}
    return {cluster.node.gpu_tier: 1.0}


def _remark(reading: Reading, kind: RemarkKind, message: str, fix: str) -> Remark:
    return Remark(kind, reading.file, "", 0, 0, message, fix)
