"""From accelerate's FSDP config to a case of `ziplan check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ziplan.check.case import Case

if TYPE_CHECKING:
    from ziplan.cli.inputs import Request
    from ziplan.plan import Plan
    from ziplan.runtimes.deepspeed.reading.forms import Opened
    from ziplan.runtimes.fsdp.reading import FsdpReading
    from ziplan.solve.problem import Problem
    from ziplan.workload.training import Training, Workload


def fsdp_case(opened: Opened, request: Request, problem: Problem, training: Mapping[str, Any]) -> Case:
    """The config as a case under FSDP2: what it says counts where the command line says something else.

    `problem` is the request as it stands, `training` what both say.
    """
    from ziplan.runtimes.deepspeed.reading.remarks import Notes
    from ziplan.runtimes.fsdp.reading import read_fsdp
    from ziplan.workload.load import load_workload

    reading = read_fsdp(opened.document)
    stated = problem.workload.training
    notes = Notes(opened.document)
    ranks = opened.ranks or problem.cluster.gpu_count
    for message, remedy in _unsaid(stated, ranks) if reading.sharded is not None else ():
        notes.add("unknown", (), message, remedy)
    found = {**training, **reading.training}
    if "loading" in found:
        found["loading"] = {**stated.loading.model_dump(exclude_unset=True), **found["loading"]}
    precisions = tuple(problem.cluster.node.gpu.peak_flops_per_s)
    workload = load_workload(request.model, found, precisions, request.companions)
    plan = _plan(reading, replace(problem, workload=workload), ranks)
    if plan is not None and workload.training.activation_checkpointing == "auto":
        message = "whether layers are recomputed is the script's to say where the config says no: taken as no"
        notes.add("unknown", (), message, "say training.activation_checkpointing")
    return Case(
        document=opened.document,
        form="accelerate",
        cluster=problem.cluster,
        workload=workload,
        runtime=problem.runtime,
        plan=plan,
        trainer="accelerate",
        other_plan=recomputed(plan, workload),
        remarks=(*reading.remarks, *notes.remarks),
        asked=stated,
    )


def _unsaid(stated: Training, ranks: int) -> Iterator[tuple[str, str]]:
    """What only the script decides and nobody has stated, each with what states it."""
    if stated.micro_batch_size is None:
        message = "how many sequences a micro-batch has is the script's to say, and in no config"
        yield message, "say it with --micro-batch-size"
    elif _accumulation(stated, ranks) is None:
        message = "how many micro-steps are accumulated is the script's to say, and in no config: taken as 1"
        yield message, "say it with --accumulation-steps, or training.global_batch_size"


def _accumulation(stated: Training, ranks: int) -> int | None:
    """Micro-steps of a step: as stated, else what makes the global batch of a stated micro-batch."""
    batch, each = stated.global_batch_size, stated.micro_batch_size
    if stated.accumulation_steps is not None or batch is None or each is None:
        return stated.accumulation_steps
    return None if batch % (each * ranks) else batch // (each * ranks)


def _plan(reading: FsdpReading, problem: Problem, ranks: int) -> Plan | None:
    """The plan that it comes to; None where it is refused, or nobody says what a micro-batch is."""
    from ziplan.plan import Checkpointing, Placement, Plan
    from ziplan.runtimes.refusal import cannot_run

    training, node = problem.workload.training, problem.cluster.node
    if reading.sharded is None or training.micro_batch_size is None:
        return None
    host = node.tier_of("dram")
    home = host if reading.sharded.offload_params and host is not None else node.gpu_tier
    mode = training.activation_checkpointing
    plan = Plan(
        dp_degree=float(ranks),
        zero_stage=3.0,
        placement=Placement({home: 1.0}, {home: 1.0}, {home: 1.0}, {node.gpu_tier: 1.0}),
        micro_batch_size=float(training.micro_batch_size),
        accumulation_steps=float(_accumulation(training, ranks) or 1),
        activation_checkpointing=float(Checkpointing.named("none" if mode == "auto" else mode)),
    )
    plan = problem.runtime.settle(problem.cluster, problem.workload, plan)
    reasons = problem.runtime.refusals(problem.cluster, problem.workload, plan)
    if reasons:
        raise cannot_run("FSDP2", reasons)
    return plan


def recomputed(plan: Plan | None, workload: Workload) -> Plan | None:
    """The plan with recomputation, where nobody says whether the script recomputes (it is taken not to)."""
    from ziplan.plan import Checkpointing

    if plan is None or workload.training.activation_checkpointing != "auto":
        return None
    return replace(plan, activation_checkpointing=float(Checkpointing.FULL))
