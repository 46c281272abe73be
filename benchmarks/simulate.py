"""How long playing a step takes, on one core: `python benchmarks/simulate.py`."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes import RUNTIMES
from ziplan.simulate.step import Simulation, simulate
from ziplan.workload.load import load_workload

ROUNDS = 5


def case(
    model: str, machine: str, runtime: str, homes: tuple[str, str], **fields: float
) -> Callable[[], Simulation]:
    cluster = load_cluster(machine)
    training = {"sequence_length": 2048}
    workload = load_workload(model, training, tuple(cluster.node.gpu.peak_flops_per_s))
    params, states = ({tier: 1.0} for tier in homes)
    ranks = float(cluster.gpu_count)
    plan = Plan(
        dp_degree=ranks,
        placement=Placement(params, states, states, {"hbm": 1.0}),
        activation_checkpointing=float(Checkpointing.FULL),
        **fields,
    )
    run = cluster, workload, RUNTIMES[runtime]
    settled = RUNTIMES[runtime].settle(cluster, workload, plan)
    return lambda: simulate(*run, settled)


def sized(model: str, machine: str, sub_groups: int, **fields: float) -> Callable[[], Simulation]:
    """DeepSpeed with state on NVMe, in about so many sub-groups."""
    cluster = load_cluster(machine)
    workload = load_workload(model, {"sequence_length": 2048}, tuple(cluster.node.gpu.peak_flops_per_s))
    size = workload.model.params / cluster.gpu_count / sub_groups
    return case(model, machine, "deepspeed", ("dram", "nvme"), sub_group_params=size, **fields)


def main() -> None:
    cases = {
        "128 layers, 16 micro-steps, 1,000 sub-groups (deepspeed, article-1t)": sized(
            "article-1t", "8x dgx-a100-80g", 1000, accumulation_steps=16.0, optimizer_buffer_count=12.0
        ),
        "128 layers, 16 micro-steps (ideal, article-1t)": case(
            "article-1t",
            "8x article",
            "ideal",
            ("nvme", "nvme"),
            accumulation_steps=16.0,
            sub_group_params=1e9,
        ),
        "32 layers (deepspeed, llama-3.1-8b)": sized(
            "llama-3.1-8b", "dgx-a100-80g", 10, accumulation_steps=4.0
        ),
        "32 layers (fsdp, llama-3.1-8b)": case(
            "llama-3.1-8b", "dgx-a100-80g", "fsdp", ("dram", "dram"), accumulation_steps=4.0
        ),
        "32 layers (ideal, llama-3.1-8b)": case(
            "llama-3.1-8b", "dgx-a100-80g", "ideal", ("nvme", "nvme"), accumulation_steps=4.0
        ),
    }
    for name, play in cases.items():
        best = float("inf")
        for _ in range(ROUNDS):
            gc.collect()
            begin = time.process_time()
            simulation = play()
            best = min(best, time.process_time() - begin)
        tasks = sum(len(stage.watched.tasks) for stage in simulation.stages)
        print(f"{best * 1e3:8.0f} ms  {tasks:7,} tasks  {name}")


if __name__ == "__main__":
    main()
