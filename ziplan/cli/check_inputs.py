"""From the words of `ziplan check` to a case: a config of any form, on a machine, with a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ziplan.check.case import Case
from ziplan.check.launch import Launch
from ziplan.check.policy import FILE, Gates, PolicyFile
from ziplan.cli.inputs import Request, problem_of
from ziplan.cli.output import warn
from ziplan.cli.plan_inputs import planned, runtime_of
from ziplan.errors import BadInput
from ziplan.files import read, validate
from ziplan.units import counted

if TYPE_CHECKING:
    from ziplan.files import Document
    from ziplan.plan import Plan
    from ziplan.runtimes.deepspeed.reading.forms import Opened
    from ziplan.runtimes.deepspeed.reading.read import Reading, Trainer
    from ziplan.runtimes.deepspeed.reading.settings import Settings
    from ziplan.solve.problem import Problem
    from ziplan.workload.training import Training

LAUNCH = "launch.sh"
"""Looked for beside the config, as `fit --out` writes it."""


class Asked(NamedTuple):
    """What `check` is asked beside the config: the request, who reads the config, how it is started."""

    request: Request
    trainer: Trainer | None = None
    launch: Path | None = None


def case_of(config: Path, asked: Asked) -> Case:
    """The config as a case; BadInput where it, the model or the machine cannot be read."""
    from ziplan.runtimes.deepspeed.reading.forms import open_config, started_nodes, started_ranks

    opened = open_config(config)
    # A command line in a file is what starts the run.
    launch = _launch(config, asked.launch or (config if opened.form == "command" else None))
    if launch is not None:
        opened = opened._replace(
            ranks=opened.ranks or started_ranks(launch.text),
            nodes=opened.nodes or started_nodes(launch.text),
        )
    if opened.form == "plan":
        return _started(of_plan(opened.document, asked.request), launch)
    if opened.form == "accelerate" and str(opened.document.data.get("distributed_type")).upper() == "FSDP":
        return _started(_of_fsdp(opened, asked.request, launch), launch)
    return _started(_of_config(opened, asked, launch), launch)


def _started(case: Case, launch: Launch | None) -> Case:
    """The case as a script starts it: with the threads that its ranks then get, unless the model's file says.

    A config of accelerate's is one for `accelerate launch`, whatever else nobody says.
    """
    threads = launch.threads if launch is not None else None
    threads = threads or ("accelerate" if case.form == "accelerate" else None)
    training = case.workload.training
    if threads is None or "optimizer_threads" in training.model_fields_set:
        return replace(case, launch=launch)
    told = training.model_copy(update={"optimizer_threads": threads})
    return replace(case, launch=launch, workload=replace(case.workload, training=told))


def _of_fsdp(opened: Opened, request: Request, launch: Launch | None) -> Case:
    """accelerate's config of FSDP."""
    from ziplan.cli.check_fsdp import fsdp_case

    problem = _warned(problem_of(request._replace(runtime="fsdp")))
    _as_started(opened, launch, opened.ranks or problem.cluster.gpu_count, problem)
    training = {**request.training, **_over({}, problem.workload.training, launch)}
    return fsdp_case(opened, request, problem, training)


def _launch(config: Path, given: Path | None) -> Launch | None:
    """The launch script that is named, else the one beside the config."""
    path = given or config.parent / LAUNCH
    if given is None and not path.is_file():
        return None
    try:
        return Launch(str(path), path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise BadInput.of(f"cannot be read: {reason}", file=str(path)) from None


def _warned(problem: Problem) -> Problem:
    for warning in problem.cluster.warnings:
        warn(warning)
    return problem


def of_plan(document: Document, request: Request) -> Case:
    """A plan.yaml, judged under the runtime that it is for."""
    problem, plan = planned(document, request._replace(runtime=runtime_of(document) or request.runtime))
    made = _made_settings(problem, plan) if problem.runtime.NAME == "deepspeed" else (None, None)
    return Case(
        document=document,
        form="plan",
        cluster=problem.cluster,
        workload=problem.workload,
        runtime=problem.runtime,
        plan=plan,
        settings=made[0],
        values=made[1],
        asked=problem.workload.training,
    )


def _made_settings(problem: Problem, plan: Plan) -> tuple[Settings, Mapping[str, Any]]:
    """The settings of the config that is written for a plan."""
    from ziplan.laws.law import Derivation
    from ziplan.runtimes.deepspeed.config import NVME_PATH, config
    from ziplan.runtimes.deepspeed.facts import Facts
    from ziplan.runtimes.deepspeed.reading.settings import settings_of

    facts = Facts(Derivation(record=False), problem.cluster, problem.workload, plan)
    values = _settled_values(config(facts, NVME_PATH), float(plan.dp_degree))
    return settings_of(values), values


def _settled_values(config: Mapping[str, Any], ranks: float) -> dict[str, Any]:
    """Every key of a config with its default; what there is to remark has been said."""
    from ziplan.files import Document
    from ziplan.runtimes.deepspeed.reading.raw import read_mapping
    from ziplan.runtimes.deepspeed.reading.remarks import Notes

    return read_mapping(config, ranks, Notes(Document("", ""))).values


def _of_config(opened: Opened, asked: Asked, launch: Launch | None) -> Case:
    """A config of DeepSpeed's, accelerate's or the Trainer's."""
    from ziplan.cli.check_fsdp import recomputed
    from ziplan.runtimes.deepspeed.configured import Configured
    from ziplan.runtimes.deepspeed.reading.read import Question, read_config
    from ziplan.runtimes.deepspeed.reading.settle import settled_plan, stated_training
    from ziplan.workload.load import load_workload

    request = asked.request._replace(runtime="deepspeed")
    first = _warned(problem_of(request))
    stated = first.workload.training
    question = Question(
        ranks=first.cluster.gpu_count,
        hidden_size=first.workload.model.d_model,
        trainer=asked.trainer,
        micro_batch_size=stated.micro_batch_size,
        accumulation_steps=stated.accumulation_steps,
        precision=first.workload.precision,
    )
    reading = _seen_from_here(opened, read_config(opened, question))
    _as_started(opened._replace(nodes=reading.nodes or opened.nodes), launch, reading.ranks, first)
    family = first.workload.model.family
    training = {**request.training, **_over(stated_training(reading, family), stated, launch)}
    if reading.batch is not None:
        training["global_batch_size"] = reading.batch.train_batch_size
    precisions = tuple(first.cluster.node.gpu.peak_flops_per_s)
    _computed(opened, training.get("precision"), precisions, first)
    workload = load_workload(request.model, training, precisions, request.companions)
    settled = settled_plan(reading, first.cluster, workload)
    return Case(
        document=opened.document,
        form=opened.form,
        cluster=first.cluster,
        workload=workload,
        runtime=Configured(reading.settings) if reading.settings is not None else first.runtime,
        plan=settled.plan,
        inner=reading.document,
        within=reading.within,
        trainer=reading.trainer,
        other_plan=recomputed(settled.plan, workload) if reading.arguments is None else None,
        settings=reading.settings if settled.plan is not None else None,
        values=_settled_values(reading.config, float(reading.ranks)) if reading.settings else None,
        remarks=(*reading.remarks, *settled.remarks),
        asked=stated,
    )


def _seen_from_here(opened: Opened, reading: Reading) -> Reading:
    """The reading with files that another one names called as they are from where the check runs."""

    def called(name: str) -> str:
        beside = opened.path.parent / name
        return str(beside) if name != opened.document.name and beside.exists() else name

    if reading.document is not None:
        reading.document.name = called(reading.document.name)
    return replace(reading, remarks=tuple(each._replace(file=called(each.file)) for each in reading.remarks))


def _as_started(opened: Opened, launch: Launch | None, ranks: int, problem: Problem) -> None:
    """BadInput where the run is started on other nodes, or on more GPUs, than the cluster has."""
    _enough_gpus(opened, launch, ranks, problem)
    cluster, nodes = problem.cluster, opened.nodes
    if nodes is None:
        return
    where = launch.name if launch is not None and opened.form != "accelerate" else opened.document.name
    if nodes != cluster.nodes:
        there = counted(cluster.nodes, "node")
        raise BadInput.of(
            f"ranks are started on {counted(nodes, 'node')}, and {cluster.label} is {there}",
            file=where,
            help=f"--set nodes={nodes}, or the number of nodes that it runs on in the config",
        )
    each, gpus = ranks / nodes, cluster.node.gpus_per_node
    if nodes > 1 and each != gpus:
        raise BadInput.of(
            f"{ranks:,} ranks on {nodes:,} nodes are {each:g} on each, and a node has {counted(gpus, 'GPU')}",
            file=where,
            help="ranks that fill every node, or --set gpus_per_node=N for nodes of which a part is used",
        )


def _enough_gpus(opened: Opened, launch: Launch | None, ranks: int, problem: Problem) -> None:
    if ranks > problem.cluster.gpu_count:
        from ziplan.runtimes.deepspeed.reading.forms import started_ranks

        gpus = problem.cluster.gpu_count
        by_script = launch is not None and started_ranks(launch.text) == ranks
        raise BadInput.of(
            f"{ranks:,} ranks are started, and {problem.cluster.label} has {gpus:,} GPUs",
            file=launch.name if launch is not None and by_script else opened.document.name,
            help="name the cluster that it runs on, for example '4x dgx-h100'",
        )


def _computed(opened: Opened, precision: str | None, precisions: tuple[str, ...], problem: Problem) -> None:
    """Refuse a config that trains in what the GPU has no known rate for (of fp32 it may be unknown)."""
    if precision is None or precision == "fp32" or precision in precisions:
        return
    gpu, has = problem.cluster.node.gpu.name, ", ".join(precisions)
    message = f"{precision}: {gpu} has no stated rate for it, it has {has}"
    remedy = f"--set gpu.peak_flops_per_s.{precision}=... where it does, or train in another precision"
    raise BadInput(opened.document.problem((precision,), "ZP010", message, remedy, key=True))


def _over(config: Mapping[str, Any], training: Training, launch: Launch | None) -> dict[str, Any]:
    """What the config says of training, to be put over what the model's file says, and how PyTorch allocates.

    What is recomputed a launch script says where neither does. Where both say how weights are loaded, what
    only the file says stays. What a launch script tells PyTorch's allocators counts, then what the file says;
    PyTorch that is told nothing rounds pinned blocks up, and has no segments that grow.
    """
    over = dict(config)
    if "loading" in over:
        over["loading"] = {**training.loading.model_dump(exclude_unset=True), **over["loading"]}
    exact = launch is not None and launch.keeps_pinned_sizes
    if exact or "pinned_rounding" not in training.model_fields_set:
        over["pinned_rounding"] = not exact
    mode = over.get("activation_checkpointing", training.activation_checkpointing)
    if mode == "auto" and launch is not None and launch.recomputes is not None:
        over["activation_checkpointing"] = launch.recomputes
    grows = None if launch is None else launch.expands_segments
    if grows is not None or "expandable_segments" not in training.model_fields_set:
        over["expandable_segments"] = bool(grows)
    return over


def policy_beside(config: Path) -> PolicyFile | None:
    """The `.ziplan.yaml` beside the config; None where there is none, or nothing in it."""
    path = config.parent / FILE
    if not path.is_file():
        return None
    document = read(path)
    return None if document.data is None else validate(document, PolicyFile)


def gates_in(path: Path) -> Gates:
    """The gates of a file of their own."""
    return validate(read(path), Gates)
