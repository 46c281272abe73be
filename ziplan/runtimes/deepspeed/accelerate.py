"""The plan as a config of accelerate's, which leaves everything but the ranks to ds_config.json."""

from __future__ import annotations

from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.launch import nodes


def accelerate_config(facts: Facts) -> str:
    """`accelerate_config.yaml`.

    Precision, accumulation, clipping, stage and offload are left out: accelerate refuses a config
    that says them beside a DeepSpeed config file.
    """
    many = nodes(facts) > 1
    lines = [
        "# Precision, batch, stage and offload are those of ds_config.json; accelerate refuses them here.",
        "compute_environment: LOCAL_MACHINE",
        "debug: false",
        "deepspeed_config:",
        "  deepspeed_config_file: ds_config.json",
        # Started on every node by itself; the other launchers need ssh.
        *(["  deepspeed_multinode_launcher: standard"] if many else []),
        f"  zero3_init_flag: {'true' if facts.stage3 else 'false'}",
        "distributed_type: DEEPSPEED",
        "machine_rank: 0",
        "main_training_function: main",
        f"num_machines: {nodes(facts)}",
        f"num_processes: {int(facts.plan.dp_degree)}",
        "rdzv_backend: static",
        "same_network: true",
        "use_cpu: false",
    ]
    return "\n".join(lines) + "\n"
