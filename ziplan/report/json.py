"""Answers as JSON documents: plain dicts, keys with units, null and a note where a value is missing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ziplan.estimate import Assumption, Estimate, Limits, TierMemory, TierTest
from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Step
from ziplan.plan import Checkpointing, Plan
from ziplan.report.figures import (
    HOUR,
    cost_per_million_tokens,
    gpu_hours_per_million_tokens,
    interval,
    placement_of,
    short_of,
    whole,
)
from ziplan.report.inputs import values
from ziplan.runtimes.runtime import PHASES, Line
from ziplan.solve.problem import Answer, Binding, Problem
from ziplan.workload.model import Model

if TYPE_CHECKING:
    from ziplan.workload.companions import Companion

Document = dict[str, Any]


def dumps(document: Mapping[str, Any]) -> str:
    """A document as text; the same document is the same text."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


class Notes:
    """Reasons for the nulls of a document, by path."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def number(self, path: str, value: Any, reason: str = "unknown") -> float | None:
        """A plain float, or null with its reason."""
        if value is None or math.isnan(float(value)):
            self.texts.append(f"{path}: {reason}")
            return None
        if math.isinf(float(value)):
            self.texts.append(f"{path}: unlimited")
            return None
        return float(value)


def fit_document(answer: Answer, files: Mapping[str, str], said: Iterable[str] = ()) -> Document:
    """`ziplan.fit/1`."""
    best, notes = answer.best, Notes()
    notes.texts += [*answer.notes, *best.cluster.warnings, *said]
    document = {
        "schema": "ziplan.fit/1",
        "verdict": best.verdict,
        "problem": problem_of(answer.problem, best, answer.gpus_there),
        "plan": plan_object(best.plan),
        **estimate_objects(best, notes),
        "cost": cost_object(best, notes),
        "baseline": {
            "gpu_count": notes.number("baseline.gpu_count", answer.baseline.gpus),
            "usable_per_gpu_bytes": notes.number(
                "baseline.usable_per_gpu_bytes", answer.baseline.usable_bytes_per_gpu
            ),
            "step_time_s": notes.number(
                "baseline.step_time_s", answer.baseline.step_time, "not on this cluster, so not timed"
            ),
            "step_time_gpu_count": notes.number(
                "baseline.step_time_gpu_count", answer.baseline.step_gpus, "not timed"
            ),
            "fits_here": bool(answer.baseline.fits_here),
        },
        "alternatives": [
            alternative(other, f"alternatives.{index}", notes)
            for index, other in enumerate(answer.alternatives)
        ],
        "faster_if_it_fits": _faster(answer, notes),
        "faster_on_fewer": _on_fewer(answer, notes),
        "binding": binding_object(answer.binding, notes),
        "do_not_offload": bool(answer.do_not_offload),
        "changes": [
            {"path": change.path, "before": change.before, "after": change.after, "effect": change.effect}
            for change in answer.changes
        ],
        "assumptions": [assumption_object(each) for each in (*best.assumptions, *stated(best.cluster))],
        "search": {"plans_evaluated": int(answer.plans_evaluated), "space": answer.space},
        "files": dict(files),
    }
    return {**document, "notes": notes.texts}


def cost_object(estimate: Estimate, notes: Notes) -> Document:
    """What a step costs at the price that the cluster file states, and the GPU time that stands in for it."""
    price = estimate.cluster.price
    none = "no price stated; gpu_time_per_million_tokens_s stands in for it"

    def number(key: str, value: float | None, reason: str = none) -> float | None:
        return notes.number(f"cost.{key}", value, reason)

    gpu_time = gpu_hours_per_million_tokens(estimate) * HOUR
    return {
        "step_usd": number("step_usd", estimate.step_cost),
        "million_tokens_usd": number("million_tokens_usd", cost_per_million_tokens(estimate)),
        "node_hour_usd": number("node_hour_usd", price.per_node_hour_usd if price else None),
        "price_source": price.source if price else "",
        "price_date": price.date if price else "",
        "gpu_time_per_million_tokens_s": number(
            "gpu_time_per_million_tokens_s", gpu_time, "the step has no known time"
        ),
    }


def binding_object(binding: Binding, notes: Notes) -> Document:
    """What limits the answer: a tier's capacity, or the link or processor that the step waits for."""
    capacity = binding.kind == "capacity"
    absent = "link" if capacity else "tier"
    notes.texts.append(f"binding.{absent}: {'capacity' if capacity else 'time'} binds, not a {absent}")
    if not binding.where:
        notes.texts.append(f"binding.link: {binding.what}")
    return {
        "kind": binding.kind,
        "tier": binding.where if capacity else None,
        "link": None if capacity else binding.where or None,
        "what": binding.what,
    }


def problem_of(problem: Problem, best: Estimate | None, there: int) -> Document:
    """What was asked, on so many GPUs, and how many of them the plan takes: all where there is no plan."""
    training = problem.workload.training
    return {
        "model": problem.workload.model.name,
        "params": int(problem.workload.model.params),
        "active_params": int(problem.workload.model.active_params),
        "trainable_params": int(problem.workload.trainable_params),
        "companions": [companion_object(each) for each in problem.workload.companions],
        "cluster": problem.cluster.label,
        "gpu_count": int(best.gpus) if best is not None else there,
        "cluster_gpu_count": there,
        "runtime": problem.runtime.NAME,
        "runtime_version": problem.runtime.VERSION,
        "objective": problem.objective,
        "sequence_length_tokens": training.sequence_length,
        "precision": problem.workload.precision,
    }


def companion_object(companion: Companion) -> Document:
    """Another model of the job."""
    return {
        "role": companion.name,
        "model": companion.model.name,
        "params": int(companion.model.params),
        "active_params": int(companion.model.active_params),
        "trainable_params": int(companion.model.trainable_params),
        "offload": companion.offload,
    }


def estimate_objects(estimate: Estimate, notes: Notes) -> Document:
    """The objects that every document about one estimate has."""
    return {
        "estimate": time_object(estimate, notes, "estimate"),
        "memory": {
            tier: memory_object(tier, memory, estimate, notes) for tier, memory in estimate.memory.items()
        },
        "tiers": {name: tier_object(test, f"tiers.{name}", notes) for name, test in estimate.tiers.items()},
        "limits": limits_object(estimate.limits, notes),
    }


def time_object(estimate: Estimate, notes: Notes, path: str) -> Document:
    """Step time, rates, parts of the step, bytes per link."""
    low, high = interval(estimate)
    missing = "needs " + ", ".join(estimate.unknown) if estimate.unknown else "the step has no known time"

    def number(key: str, value: float) -> float | None:
        return notes.number(f"{path}.{key}", value, missing)

    return {
        "step_time_s": number("step_time_s", estimate.step_time),
        "step_time_low_s": number("step_time_low_s", low),
        "step_time_high_s": number("step_time_high_s", high),
        "tokens_per_step_tokens": number("tokens_per_step_tokens", estimate.tokens_per_step),
        "tokens_per_s": number("tokens_per_s", estimate.tokens_per_s),
        "model_flops_per_s_per_gpu": number("model_flops_per_s_per_gpu", estimate.model_flops_per_s_per_gpu),
        "hardware_flops_per_s_per_gpu": number(
            "hardware_flops_per_s_per_gpu", estimate.hardware_flops_per_s_per_gpu
        ),
        "terms_s": {term: number(f"terms_s.{term}", value) for term, value in estimate.terms.items()},
        "busy_s": {term: number(f"busy_s.{term}", value) for term, value in estimate.busy.items()},
        "bytes_per_step": {
            link: {"read_bytes": float(read), "write_bytes": float(written)}
            for link, (read, written) in estimate.traffic.items()
        },
        "interval_source": estimate.interval_source,
        "drive_lifetime_s": notes.number(
            f"{path}.drive_lifetime_s", estimate.drive_lifetime, "no endurance stated, or nothing is written"
        ),
        "unknown": list(estimate.unknown),
    }


def memory_object(tier: str, memory: TierMemory, estimate: Estimate, notes: Notes) -> Document:
    """One tier's capacity and need, phase by phase and line by line."""
    lines = [(line, line_object(line)) for line in estimate.ledger.lines if line.tier == tier]
    path = f"memory.{tier}"
    return {
        "capacity_bytes": notes.number(f"{path}.capacity_bytes", memory.capacity),
        "available_bytes": notes.number(f"{path}.available_bytes", memory.available),
        "reserve_bytes": notes.number(f"{path}.reserve_bytes", memory.reserve),
        "needed_low_bytes": notes.number(f"{path}.needed_low_bytes", memory.low),
        "needed_high_bytes": notes.number(f"{path}.needed_high_bytes", memory.high),
        "short_bytes": notes.number(f"{path}.short_bytes", short_of(memory)),
        "phases": {phase: phase_object(phase, memory, lines) for phase in PHASES},
    }


def phase_object(phase: str, memory: TierMemory, lines: list[tuple[Line, Document]]) -> Document:
    """What one phase needs of a tier."""
    low, high = memory.phases.get(phase, (0.0, 0.0))
    return {
        "needed_low_bytes": float(low),
        "needed_high_bytes": float(high),
        "lines": [told for line, told in lines if phase in line.phases],
    }


def line_object(line: Line) -> Document:
    """One line of a ledger with where it comes from."""
    return {
        "name": line.name,
        "low_bytes": float(line.low),
        "high_bytes": float(line.high),
        "pinned": line.pinned,
        "formula": formula(line.step),
        "source": line.step.law.source if line.step else "",
        "knob": line.knob,
    }


def formula(step: Step | None) -> str:
    """A law applied, as text with numbers: "state_bytes = params * ... = 2 * ..."."""
    if step is None:
        return ""
    return f"{step.law.name} = {step.law.expression} = {step.evaluable}"


def tier_object(test: TierTest, path: str, notes: Notes) -> Document:
    """The article's test of one tier."""
    values = {
        "bandwidth_bytes_per_s": test.bandwidth,
        "machine_balance_flops_per_byte": test.machine_balance,
        "arithmetic_intensity_flops_per_byte": test.arithmetic_intensity,
        "required_tokens": test.required_tokens,
        "hiding_margin": test.hiding_margin,
        "owner_fetch_time_s": test.owner_fetch_time,
        "striped_fetch_time_s": test.striped_fetch_time,
        "prefetch_depth_owner": test.prefetch_depth_owner,
        "prefetch_depth_striped": test.prefetch_depth_striped,
    }
    return {key: notes.number(f"{path}.{key}", value) for key, value in values.items()}


def limits_object(limits: Limits | None, notes: Notes) -> Document:
    """The ceilings; null everywhere when they could not be worked out."""
    values = {
        "max_params_by_capacity_params": limits and limits.max_params_by_capacity,
        "max_d_model_by_width": limits and limits.max_d_model_by_width,
        "max_d_model_untiled": limits and limits.max_d_model_untiled,
        "max_params_by_compute_params": limits and limits.max_params_by_compute,
        "training_time_s": limits and limits.training_time,
        "greatest_tile_count": limits and limits.greatest_tile_count,
        "time_budget_s": limits and limits.time_budget,
        "tokens_per_param": limits and limits.tokens_per_param,
    }
    numbers = {key: notes.number(f"limits.{key}", value) for key, value in values.items()}
    return {**numbers, "capacity_tier": limits and limits.capacity_tier}


def plan_object(plan: Plan) -> Document:
    """A plan with the names of its fields, checkpointing as a word."""
    return {
        "zero_stage": whole(plan.zero_stage),
        "placement": placement_of(plan),
        "dp_degree": whole(plan.dp_degree),
        "tp_degree": whole(plan.tp_degree),
        "pp_degree": whole(plan.pp_degree),
        "vpp_degree": whole(plan.vpp_degree),
        "micro_batch_size": whole(plan.micro_batch_size),
        "accumulation_steps": whole(plan.accumulation_steps),
        "activation_checkpointing": Checkpointing(int(plan.activation_checkpointing)).name.lower(),
        "prefetch_depth": whole(plan.prefetch_depth),
        "tile_count": whole(plan.tile_count),
        "sub_group_params": whole(plan.sub_group_params),
        "param_buffer_count": whole(plan.param_buffer_count),
        "optimizer_buffer_count": whole(plan.optimizer_buffer_count),
    }


def _faster(answer: Answer, notes: Notes) -> Document | None:
    """The plan that may fit and is faster, where there is one."""
    if answer.faster_if_it_fits is None:
        notes.texts.append("faster_if_it_fits: none that is faster by enough to be worth a try")
        return None
    return alternative(answer.faster_if_it_fits, "faster_if_it_fits", notes)


def _on_fewer(answer: Answer, notes: Notes) -> Document | None:
    """The plan on fewer GPUs that takes less time for the same global batch, where there is one."""
    other = answer.faster_on_fewer
    if other is None:
        notes.texts.append("faster_on_fewer: none found that takes less time for the same global batch")
        return None
    where = {"cluster": other.cluster.label, "gpu_count": int(other.gpus)}
    return {**where, **alternative(other, "faster_on_fewer", notes)}


def alternative(estimate: Estimate, path: str, notes: Notes) -> Document:
    """Another plan than the best, at `path` of the document: the plan and its times."""
    return {
        "verdict": estimate.verdict,
        "plan": plan_object(estimate.plan),
        "estimate": time_object(estimate, notes, f"{path}.estimate"),
    }


def stated(cluster: Cluster) -> Iterator[Assumption]:
    """The values of the machine, each as an input with its source."""
    for path, value, unit in values(cluster.node):
        origin = cluster.provenance.get(path)
        if origin is not None and isinstance(value, (int, float)):
            yield Assumption(path, value, unit.symbol if unit else "1", origin.kind, origin.source)


def assumption_object(assumption: Assumption) -> Document:
    """A number that nobody measured here."""
    return {
        "name": assumption.name,
        "value": _plain(assumption.value),
        "unit": assumption.unit,
        "kind": assumption.kind,
        "source": assumption.source,
        "low": _plain(assumption.low),
        "high": _plain(assumption.high),
    }


def _plain(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(float(value)) else float(value)


def model_document(model: Model) -> Document:
    """`ziplan.model/1`."""
    active = getattr(model, "active_params", model.params)
    return {
        "schema": "ziplan.model/1",
        "name": model.name,
        "family": model.family,
        "params": int(model.params),
        "trainable_params": int(getattr(model, "trainable_params", model.params)),
        "active_params": int(active),
        "layer_count": int(model.layer_count),
        "d_model": int(model.d_model),
        "operators": [
            {
                "name": operator.name,
                "in": int(operator.in_features),
                "out": int(operator.out_features),
                "params": int(operator.params),
                "count": int(operator.count),
            }
            for operator in model.operators
        ],
        "source": model.source,
        "notes": list(model.notes),
    }


def limits_document(answer: Answer) -> Document:
    """`ziplan.limits/1`."""
    notes = Notes()
    notes.texts += answer.problem.workload.model.notes
    limits = limits_object(answer.best.limits, notes)
    return {
        "schema": "ziplan.limits/1",
        "verdict": answer.best.verdict,
        "problem": problem_of(answer.problem, answer.best, answer.gpus_there),
        "plan": plan_object(answer.best.plan),
        "limits": limits,
        "notes": notes.texts,
    }
