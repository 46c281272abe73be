"""The files that make FSDP2 run a plan: a config of accelerate's, and the same as Python. Never "auto"."""

from __future__ import annotations

from ziplan.errors import CannotEmit
from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing, Plan
from ziplan.runtimes.fsdp.facts import Facts
from ziplan.runtimes.fsdp.snippet import COMPILED_BY, setup_module
from ziplan.runtimes.fsdp.space import refusals
from ziplan.runtimes.shared.said import (
    ALLOCATOR,
    allocator_notes,
    allocator_setting,
    dynamo_config,
    lines_of_train_py,
)
from ziplan.runtimes.shared.threads import divided_by_the_shell, threads_to_set
from ziplan.runtimes.shared.train_py import trainable_lines, within_reach
from ziplan.workload.training import Workload

LAYERS = {
    "bert": "BertLayer",
    "blenderbot": "BlenderbotEncoderLayer,BlenderbotDecoderLayer",
    "mbart": "MBartEncoderLayer,MBartDecoderLayer",
    "roberta": "RobertaLayer",
    "vit": "ViTLayer",
    "xlm-roberta": "XLMRobertaLayer",
}
"""Classes of layers by family (transformers 5, `models/*/modeling_*.py`), of those families whose
`_no_split_modules` are not the layers: none, embeddings too, or the attention inside of layers."""

MIXED = {"fp32": "no", "fp16": "fp16", "bf16": "bf16"}
"""accelerate's names of precisions."""


def emit(
    cluster: Cluster, workload: Workload, plan: Plan, nvme_path: str = "", trainer: str = "none"
) -> dict[str, str]:
    """`fsdp_setup.py`, which does exactly what was planned, `accelerate_config.yaml` and `launch.sh`."""
    if trainer not in ("none", "accelerate"):
        raise CannotEmit(f"FSDP2 has no files for the trainer {trainer!r}: use accelerate or none")
    reasons = refusals(cluster, workload, plan)
    if reasons:
        raise CannotEmit("FSDP2 cannot run this plan: " + "; ".join(reasons))
    if plan.activation_checkpointing == Checkpointing.SELECTIVE:
        within_reach(workload.model)
    facts = Facts(Derivation(record=False), cluster, workload, plan)
    files = {
        "fsdp_setup.py": setup_module(facts),
        "accelerate_config.yaml": _accelerate(facts),
        "launch.sh": _launch(facts),
    }
    if workload.companions:
        from ziplan.runtimes.fsdp.beside import companion_modules  # few jobs have several models

        files |= companion_modules(cluster, workload, plan)
    return files


def _accelerate(f: Facts) -> str:
    nodes, recomputes = f.cluster.nodes, f.plan.activation_checkpointing == Checkpointing.FULL
    return "\n".join(
        [
            "# For trainers that leave sharding to accelerate. It groups the token embedding by itself, and",
            "# unless the head shares it gathers it once more a micro-step than fsdp_setup.py does.",
            f"# Per rank and micro-step: {int(f.plan.micro_batch_size)} sequences; "
            f"gradient_accumulation_steps: {int(f.plan.accumulation_steps)}.",
            "compute_environment: LOCAL_MACHINE",
            "debug: false",
            "distributed_type: FSDP",
            "downcast_bf16: 'no'",
            *dynamo_config(f.workload.training),
            "fsdp_config:",
            f"  fsdp_activation_checkpointing: {_yes(recomputes)}",
            "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
            "  fsdp_cpu_ram_efficient_loading: true",
            f"  fsdp_offload_params: {_yes(bool(f.offloaded))}",
            "  fsdp_reshard_after_forward: true",
            "  fsdp_state_dict_type: SHARDED_STATE_DICT",
            *_layer_classes(f),
            "  fsdp_version: 2",
            "machine_rank: 0",
            "main_training_function: main",
            # accelerate casts what is trained to fp32 where it mixes precisions.
            f"mixed_precision: '{MIXED[f.workload.precision] if f.cast else 'no'}'",
            f"num_machines: {nodes}",
            f"num_processes: {int(f.plan.dp_degree)}",
            "rdzv_backend: " + ("c10d" if nodes > 1 else "static"),
            "same_network: true",
            "use_cpu: false",
            "",
        ]
    )


def _layer_classes(f: Facts) -> list[str]:
    """The line that names layers, where transformers' `_no_split_modules` has none or more than layers."""
    names = LAYERS.get(f.workload.model.family)
    return [f"  fsdp_transformer_layer_cls_to_wrap: {names}"] if names else []


def _yes(value: bool) -> str:
    return "true" if value else "false"


def _prepared(f: Facts) -> list[str]:
    lines = trainable_lines(f.workload.training)
    prepared = ["In train.py, before the model is sharded:", *lines] if lines else []
    return [*prepared, *lines_of_train_py(f.workload, f.plan, COMPILED_BY), *_of_the_others(f)]


def _of_the_others(f: Facts) -> list[str]:
    if not f.workload.companions:
        return []
    from ziplan.runtimes.fsdp.beside import companion_lines  # few jobs have several models

    return list(companion_lines(f.cluster, f.workload, f.plan))


def _launch(f: Facts) -> str:
    ranks = int(f.ranks)
    where_to = f"--nproc_per_node {ranks}"
    where_to = (
        f"--nnodes {f.cluster.nodes} --rdzv_backend c10d --rdzv_endpoint $HEAD_NODE:29500 {where_to}"
        if f.cluster.nodes > 1
        else f"--standalone {where_to}"
    )
    settings = [f"{ALLOCATOR}={allocator_setting(f.workload.training)}"]
    if f.offloaded:
        settings.append(f"OMP_NUM_THREADS={threads_to_set(f) or divided_by_the_shell(ranks)}")
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *(f"# {line}" for line in _prepared(f)),
            "# train.py calls fsdp_setup.setup(model). With accelerate instead:",
            "# accelerate launch --config_file accelerate_config.yaml train.py",
            *(f"# {note}" for note in allocator_notes(f.workload.training)),
            *(f"export {setting}" for setting in settings),
            f"torchrun {where_to} train.py",
            "",
        ]
    )
