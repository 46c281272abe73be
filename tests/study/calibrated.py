"""Runs whose truth is known: a step as ziplan predicts it on a machine, printed as DeepSpeed would."""

import json

from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes import RUNTIMES
from ziplan.study.calibrate.predicted import predicted
from ziplan.study.calibrate.runs import FORWARD_BACKWARD, OPTIMIZER, OPTIMIZER_READ, Run, Subject
from ziplan.workload.load import load_workload

MODEL, SEQUENCE = "llama-3.1-8b", 2048


def subject(machine="dgx-a100-80g", params="hbm", optimizer="hbm", settings=(), **fields):
    """A plan of the model on a machine that `settings` change."""
    cluster = load_cluster(machine, list(settings))
    workload = load_workload(MODEL, {"sequence_length": fields.pop("sequence", SEQUENCE)}, ("bf16",))
    values = {"micro_batch_size": 4.0, "accumulation_steps": 2.0, **fields}
    plan = Plan(
        dp_degree=float(cluster.gpu_count),
        zero_stage=3.0,
        placement=Placement(params={params: 1.0}, grads={optimizer: 1.0}, optimizer={optimizer: 1.0}),
        activation_checkpointing=float(Checkpointing.FULL),
        **values,
    )
    runtime = RUNTIMES["deepspeed"]
    return Subject(cluster, workload, runtime, runtime.settle(cluster, workload, plan))


def run(name, truth, believed, **scaled):
    """What was measured on the machine as it is, beside the machine as it is believed to be."""
    phases = predicted(truth).phases
    kept = {
        phase: phases[phase] for phase in (FORWARD_BACKWARD, OPTIMIZER, OPTIMIZER_READ) if phases[phase] > 0
    }
    return Run(name, believed, {phase: seconds * scaled.get("times", 1.0) for phase, seconds in kept.items()})


def log(steps, micro_steps=2, rank=0, prefix="", old=False):
    """DeepSpeed's lines of steps, each a mapping of timers to milliseconds."""
    lines = []
    for step in steps:
        forward, backward = ("forward", "backward") if old else ("fwd", "bwd")
        head = f"{prefix}[Rank {rank}] " + ("rank=0 " if old else "") + "time (ms)"
        micro = {forward: step["fwd"] / micro_steps, backward: step["bwd"] / micro_steps, "step": 0.01}
        lines += [
            head + "".join(f" | {name}_microstep: {ms:.2f}" for name, ms in micro.items())
        ] * micro_steps
        inside = {name: ms for name, ms in step.items() if name.startswith("optimizer_")}
        if inside:
            lines.append(head + "".join(f" | {name}: {ms:.2f}" for name, ms in inside.items()))
        whole = {
            forward: step["fwd"],
            backward: step["bwd"],
            f"{backward}_inner": step["bwd"] - 1,
            f"{backward}_allreduce": 1.0,
            "step": step["step"],
        }
        lines.append(head + "".join(f" | {name}: {ms:.2f}" for name, ms in whole.items()))
    return lines


def log_of(truth, steps=6, warm_up=2):
    """A log of a run on a machine as it is; the first steps are slow, as they are."""
    phases = predicted(truth).phases
    step = {
        "fwd": 1000 * phases[FORWARD_BACKWARD] / 4,
        "bwd": 3000 * phases[FORWARD_BACKWARD] / 4,
        "step": 1000 * phases[OPTIMIZER],
    }
    slow = {name: 3 * ms for name, ms in step.items()}
    return log([slow] * warm_up + [step] * steps, int(truth.plan.accumulation_steps))


def config(**sections):
    """A DeepSpeed config of the plan that `subject` has by default."""
    return json.dumps(
        {
            "train_micro_batch_size_per_gpu": 4,
            "gradient_accumulation_steps": 2,
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
            "wall_clock_breakdown": True,
            "zero_optimization": {"stage": 3, **sections},
        }
    )
