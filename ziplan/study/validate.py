"""Predictions held against published runs: each run predicted as it was run, errors as they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ziplan.errors import BadInput, Problem
from ziplan.estimate import Estimate, estimate
from ziplan.estimate.fidelity import MANY_RUNS, kind_of
from ziplan.estimate.result import TierMemory
from ziplan.hardware.cluster import Cluster
from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.report.validation import Errors, Peak, Place, Range, Run, Score, Unpredicted, Validation
from ziplan.runtimes.deepspeed.releases import PAPER_ENGINE
from ziplan.runtimes.runtime import PHASES
from ziplan.study.ran import refuse_without_effect, runtime_of
from ziplan.study.records import (
    Home,
    Listed,
    MeasuredEntry,
    Record,
    Unpredictable,
    load_runs,
    shipped_files,
)
from ziplan.units import Precision
from ziplan.workload.adapted import adapted
from ziplan.workload.companions import Companion, companion, names_of
from ziplan.workload.config import model_of
from ziplan.workload.kept import kept_bytes
from ziplan.workload.load import load_model
from ziplan.workload.model import Model
from ziplan.workload.training import Training, Workload


def validation(paths: Sequence[Path] = ()) -> Validation:
    """The records of some files, or those that are shipped, predicted and scored."""
    answers = [
        predicted(each) if isinstance(each, Record) else _unpredicted(each, each.entry.reason)
        for each in load_runs(paths or shipped_files())
    ]
    runs = [answer for answer in answers if isinstance(answer, Run)]
    return Validation(runs, scores(runs), [answer for answer in answers if isinstance(answer, Unpredicted)])


def predicted(record: Record) -> Run | Unpredicted:
    """The run of a record as ziplan predicts it, or why it does not."""
    answer = estimated(record)
    if not isinstance(answer, Estimate):
        return _unpredicted(record, answer)
    if record.entry.measured.timed and answer.unknown:
        return _unpredicted(record, f"not stated, and the time depends on it: {', '.join(answer.unknown)}")
    return _run(record, answer, kind_of(answer.cluster, answer.plan))


def estimated(record: Record) -> Estimate | str:
    """The estimate of a record's run, or why there is none."""
    cluster, workload, runtime = _cluster(record), _workload(record), runtime_of(record)
    stated = _plan(record, cluster)
    refuse_without_effect(record, cluster, stated)
    plan = runtime.settle(cluster, workload, stated)
    reasons = runtime.refusals(cluster, workload, plan)
    if reasons:
        return "; ".join(reasons)
    try:
        return estimate(cluster, workload, runtime, plan)
    except BadInput as error:
        return "; ".join(problem.message for problem in error.problems)


def _run(record: Record, answer: Estimate, kind: str) -> Run:
    entry, source, known = record.entry, record.source, not answer.unknown
    verdict = memory_verdict(answer)
    return Run(
        id=entry.id,
        source=source.title,
        url=source.url,
        locator=entry.locator,
        published=entry.runtime.published,
        runtime=answer.runtime,
        kind=kind,
        quality=entry.quality,
        calibration=entry.calibration,
        predicted=float(answer.step_time) if known else None,
        measured=measured_step_time(entry.measured, answer),
        terms={name: float(seconds) for name, seconds in answer.terms.items()} if known else {},
        verdict=verdict,
        outcome=entry.measured.outcome,
        assumed=entry.assumed,
        notes=entry.notes,
        own_url=entry.url,
        tier=entry.measured.tier,
        phases=entry.measured.phase if entry.measured.outcome == "oom" else (),
        shortage=shortage(answer, verdict),
        peaks=_peaks(entry.measured, answer),
        released=entry.runtime.version != PAPER_ENGINE,
    )


def memory_verdict(answer: Estimate) -> str:
    """The verdict on memory alone: whether a run fits does not depend on how long its step is."""
    return "fits" if answer.fits else "tight" if answer.may_fit else "does_not_fit"


def shortage(answer: Estimate, verdict: str) -> Place | None:
    """Where a run dies: in the first phase that lacks memory, of the tier that lacks the largest share.

    What a phase needs at the least decides, or, where that is there (`tight`), what it may need.
    """
    if verdict == "fits":
        return None
    end = 1 if verdict == "tight" else 0
    for phase in PHASES:
        lack = {
            name: tier.phases[phase][end] / tier.available - 1
            for name, tier in answer.memory.items()
            if phase in tier.phases
        }
        worst = max(lack, key=lambda name: lack[name])
        if lack[worst] > 0:
            return Place(_medium(answer, worst), phase)
    return None


def _medium(answer: Estimate, name: str) -> str:
    """The medium of a tier; what a process may lock, which is no tier of the machine, is host memory."""
    tier = answer.cluster.node.tiers.get(name)
    return tier.medium if tier else "dram"


def _peaks(measured: MeasuredEntry, answer: Estimate) -> list[Peak]:
    peaks = []
    for name, tier in answer.cluster.node.tiers.items():
        if tier.medium in measured.peak_bytes:
            low, high = _most(answer.memory[name], measured.phase or PHASES)
            peaks.append(Peak(tier.medium, measured.peak_bytes[tier.medium], low, high))
    return peaks


def _most(tier: TierMemory, phases: Sequence[str]) -> tuple[float, float]:
    """The most that some phases need of a tier: (at the least, at the most)."""
    needs = [tier.phases[phase] for phase in phases]
    return max(float(low) for low, _ in needs), max(float(high) for _, high in needs)


def measured_step_time(measured: MeasuredEntry, answer: Estimate) -> float | None:
    """The measured rate as seconds per step; FLOP/s by the convention that the source counts in."""
    if measured.step_time_s is not None:
        return measured.step_time_s
    if measured.tokens_per_s is not None:
        return float(answer.tokens_per_step) / measured.tokens_per_s
    if measured.tokens_per_s_per_gpu is not None:
        return float(answer.tokens_per_step) / (measured.tokens_per_s_per_gpu * answer.gpus)
    if measured.flops_per_s_per_gpu is None:
        return None
    flops = answer.hardware_flops if measured.convention == "hardware" else answer.model_flops
    return float(flops) / (measured.flops_per_s_per_gpu * answer.gpus)


def scores(runs: Iterable[Run]) -> list[Score]:
    """The scores of each runtime and kind that has a scored run, as first met."""
    groups: dict[tuple[str, str], list[Run]] = {}
    fitted = set()
    for run in runs:
        if run.scored:
            groups.setdefault((run.runtime, run.kind), []).append(run)
        if run.calibration:
            fitted.add(run.url)
    return [_score(runtime, kind, group, fitted) for (runtime, kind), group in groups.items()]


def _errors(errors: Sequence[float]) -> Errors:
    sizes = [abs(error) for error in errors]
    return Errors(float(np.median(sizes)), float(np.percentile(sizes, 90)), float(np.mean(errors)))


def _range(runs: Sequence[Run]) -> Range:
    factors = [run.factor for run in runs if run.factor is not None]
    tail = 10.0 if len(factors) >= MANY_RUNS else 0.0
    low, high = (float(np.percentile(factors, end)) for end in (tail, 100 - tail))
    return Range(len(factors), low, high)


def _score(runtime: str, kind: str, runs: Sequence[Run], fitted: Collection[str]) -> Score:
    errors = {run.id: run.error for run in runs if run.error is not None}
    elsewhere = [errors[run.id] for run in runs if run.url not in fitted]
    all_of_them = _errors(list(errors.values()))
    worst = max(errors, key=lambda name: abs(errors[name]))
    every, released = _range(runs), [run for run in runs if run.released]
    return Score(
        runtime=runtime,
        kind=kind,
        count=len(errors),
        median_error=all_of_them.median,
        p90_error=all_of_them.p90,
        bias=all_of_them.bias,
        worst=worst,
        worst_error=errors[worst],
        low=every.low,
        high=every.high,
        interval=_range(released) if released else None,
        own_source=len(errors) - len(elsewhere),
        elsewhere=_errors(elsewhere) if elsewhere else None,
    )


def _unpredicted(run: Listed, reason: str) -> Unpredicted:
    entry, source = run.entry, run.source
    end = run.entry if isinstance(run, Unpredictable) else run.entry.measured
    return Unpredicted(
        entry.id, source.title, source.url, entry.locator, reason, end.outcome, end.tier, entry.url
    )


def _cluster(record: Record) -> Cluster:
    entry = record.entry.cluster
    settings = [("nodes", str(entry.nodes)), *((path, str(value)) for path, value in entry.with_.items())]
    beside = Path(record.document.name).parent / entry.machine
    try:
        return load_cluster(str(beside) if beside.is_file() else entry.machine, settings)
    except BadInput as error:
        raise BadInput(*(_of_cluster(record, problem) for problem in error.problems)) from None


def _of_cluster(record: Record, problem: Problem) -> Problem:
    """A problem of the machine, at the change that it comes from or else at the machine's name."""
    change = problem.file.removeprefix("--set ")
    path = ("with", change) if change in record.entry.cluster.with_ else ("machine",)
    return record.problem(problem.message, "cluster", *path, help=problem.help)


def _workload(record: Record) -> Workload:
    entry, model = record.entry.training, _model(record)
    if model.max_sequence_length and entry.sequence_length > model.max_sequence_length:
        message = f"{model.name} takes sequences of up to {model.max_sequence_length:,} tokens"
        raise BadInput(record.problem(message, "training", "sequence_length"))
    plan = record.entry.plan
    training = Training(
        **dict(entry),
        micro_batch_size=plan.micro_batch_size,
        accumulation_steps=plan.accumulation_steps,
        activation_checkpointing=plan.activation_checkpointing,
    )
    try:
        model = adapted(model, training.trainable)
    except ValueError as error:
        raise BadInput(record.problem(f"trainable: {error}", "training", "trainable")) from None
    kept = kept_bytes(model, entry.attention, entry.precision, entry.dropout, entry.kernels)
    return Workload(model, training, entry.precision, kept, _companions(record, training, entry.precision))


def _companions(record: Record, training: Training, precision: Precision) -> tuple[Companion, ...]:
    """The other models of the job, each a shipped shape."""
    entries, found = record.entry.companions, []
    for index, name in enumerate(names_of(entry.role for entry in entries)):
        entry, model = entries[index], _shipped(record, index)
        try:
            found.append(companion(name, entry, model, training, precision))
        except ValueError as error:
            where = ("companions", index)
            raise BadInput(record.problem(f"companions[{index}]: {error}", *where)) from None
    return tuple(found)


def _shipped(record: Record, index: int) -> Model:
    try:
        return load_model(record.entry.companions[index].model)
    except BadInput as error:
        raise record.relocated(error, "companions", index, "model") from None


def _model(record: Record) -> Model:
    entry = record.entry
    if entry.model is not None:
        try:
            return load_model(entry.model)
        except BadInput as error:
            raise record.relocated(error, "model") from None
    problems = []

    def report(key: str, code: str, message: str, help: str) -> None:
        problems.append(record.problem(f"shape.{key}: {message}", "shape", key, help=help))

    model = model_of(entry.id, entry.shape or {}, report)
    if model is None or problems:
        raise BadInput(*problems)
    return model


def _plan(record: Record, cluster: Cluster) -> Plan:
    entry = record.entry.plan
    where = entry.placement
    homes = {
        "params": where.params,
        "grads": where.optimizer if where.grads is None else where.grads,
        "optimizer": where.optimizer,
        "checkpoints": where.checkpoints,
    }
    return Plan(
        dp_degree=float(entry.dp_degree or cluster.gpu_count // (entry.tp_degree * entry.pp_degree)),
        zero_stage=float(entry.zero_stage),
        placement=Placement(**{kind: _home(record, cluster, kind, home) for kind, home in homes.items()}),
        tp_degree=float(entry.tp_degree),
        pp_degree=float(entry.pp_degree),
        vpp_degree=float(entry.vpp_degree),
        micro_batch_size=float(entry.micro_batch_size),
        accumulation_steps=float(entry.accumulation_steps),
        activation_checkpointing=float(Checkpointing.named(entry.activation_checkpointing)),
        prefetch_depth=float(entry.prefetch_depth),
        tile_count=float(entry.tile_count),
        sub_group_params=entry.sub_group_params,
        optimizer_buffer_count=float(entry.optimizer_buffer_count),
    )


def _home(record: Record, cluster: Cluster, kind: str, home: Home) -> Mapping[str, float]:
    """Tier to fraction; every tier is one of the machine's."""
    parts = {home: 1.0} if isinstance(home, str) else home
    tiers = cluster.node.tiers
    for name in parts:
        if name not in tiers:
            message = f"plan.placement.{kind}: {cluster.node.name} has no tier {name!r}"
            known = f"its tiers are {', '.join(tiers)}"
            raise BadInput(record.problem(message, "plan", "placement", kind, help=known))
    return parts
