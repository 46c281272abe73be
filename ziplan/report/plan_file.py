"""plan.yaml: a plan as a file, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ziplan.errors import Problem
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.report.json import plan_object

if TYPE_CHECKING:
    from ziplan.files import Document
    from ziplan.workload.training import Workload

SCHEMA = "ziplan.plan/1"
COMMENTS = {
    "zero_stage": "what is partitioned over the ranks: 1 optimizer, 2 and gradients, 3 and parameters",
    "placement": "what fraction of each kind of state lives on which tier",
    "dp_degree": "data-parallel ranks",
    "micro_batch_size": "sequences per rank and micro-step",
    "accumulation_steps": "micro-steps per optimizer step",
    "activation_checkpointing": "none, selective or full",
    "prefetch_depth": "layers fetched ahead, beside the one in use",
    "tile_count": "pieces that the widest operators run in",
    "sub_group_params": "parameters that one rank's optimizer updates at a time",
}
FOR = "the training that this is a plan for: another one is refused, but for its sequence length and settings"
SETTINGS: Mapping[str, Any] = dict.fromkeys(
    (
        *("longest_sequence", "packing", "mean_sample_length", "attention", "attention_kernel", "kernels"),
        *("loss", "softmax", "dropout", "data_workers", "optimizer_threads", "gradient_clipping", "saving"),
        *("pinned_rounding", "expandable_segments"),
    ),
    True,
) | {"optimizer": {"fused": True}}
"""Settings of the training that change bytes or times, beside those that make it another training."""

BESIDE = "files that were written beside this one; another --out to this folder removes those it lacks"


def plan_yaml(
    plan: Plan,
    runtime: str,
    about: str,
    files: Mapping[str, str] | None = None,
    workload: Workload | None = None,
) -> str:
    """The text of a plan.yaml; `about` says what the plan is for, `files` has the digests of the others."""
    lines = [f"# {about}", f"schema: {SCHEMA}", f"runtime: {runtime}"]
    for key, value in plan_object(plan).items():
        if key in COMMENTS:
            lines.append(f"# {COMMENTS[key]}")
        lines += _placement(value) if key == "placement" else [f"{key}: {value}"]
    if workload is not None:
        told = planned_for(workload)
        lines += [
            f"# {FOR}",
            "planned_for:",
            *(line for key, value in told.items() for line in _recorded(key, value)),
        ]
    if files:
        lines += [f"# {BESIDE}", "files:", *(f"  {name}: {digest}" for name, digest in files.items())]
    return "\n".join(lines) + "\n"


def _recorded(key: str, value: Any) -> list[str]:
    """A key of `planned_for`, settings one a line."""
    if key != "settings":
        return [f"  {key}: {json.dumps(value)}"]
    return [f"  {key}:", *(f"    {name}: {json.dumps(one)}" for name, one in value.items())]


def _placement(placement: Mapping[str, Mapping[str, float]]) -> list[str]:
    rows = (f"  {kind}: {{{_fractions(parts)}}}" for kind, parts in placement.items())
    return ["placement:", *rows]


def _fractions(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{tier}: {part!r}" for tier, part in parts.items())


def load_plan(document: Document) -> Plan:
    """The plan of a plan.yaml that has been read; BadInput with every problem found."""
    from ziplan.files import validate
    from ziplan.report.plan_record import PlanFile

    written = validate(document, PlanFile)
    values: dict[str, Any] = written.model_dump(exclude={"schema_name", "runtime", "planned_for", "files"})
    values["placement"] = Placement(**values["placement"])
    values["activation_checkpointing"] = Checkpointing.named(values["activation_checkpointing"])
    return Plan(**values)


def planned_for(workload: Workload) -> dict[str, Any]:
    """What a plan.yaml records of the training that it was made for, under its keys."""
    training, trained = workload.training, workload.training.trainable
    return {
        "model": workload.model.name,
        "total_params": workload.model.params,
        "trained_params": workload.trainable_params,
        "sequence_length": training.sequence_length,
        "precision": workload.precision,
        "master_precision": training.master_precision,
        "optimizer": training.optimizer.kind,
        "trainable": trained if isinstance(trained, str) else trained.model_dump(mode="json"),
        "settings": training.model_dump(mode="json", include=dict(SETTINGS)),
    }


class Differences(NamedTuple):
    """How what is asked differs from what a plan was made for."""

    wrong: tuple[Problem, ...] = ()
    """What makes it no plan for that."""
    remarks: tuple[str, ...] = ()


def differences(document: Document, workload: Workload) -> Differences:
    """What of the training that is asked for is not what a plan.yaml was made for; none without a record.

    Another sequence length and other settings are a question of their own (does the plan hold there too?),
    and are remarked on.
    """
    from ziplan.files import validate
    from ziplan.report.plan_record import PlanFile

    written = validate(document, PlanFile).planned_for
    if written is None:
        return Differences()
    recorded, asked = written.model_dump(mode="json"), planned_for(workload)
    settings = written.settings.model_dump(mode="json", exclude_unset=True)
    wrong = tuple(
        document.problem(("planned_for", key), "ZP010", f"the plan is for {said}", remedy)
        for key, said, remedy in _told_apart(recorded, asked)
    )
    if wrong:
        return Differences(wrong)
    return Differences(remarks=tuple(_remarks(document.name, recorded, settings, asked)))


def _remarks(
    name: str, recorded: Mapping[str, Any], settings: Mapping[str, Any], asked: Mapping[str, Any]
) -> Iterator[str]:
    """What differs of a training and leaves the plan one for it; of settings that a record has."""
    before, now = recorded["sequence_length"], asked["sequence_length"]
    if before != now:
        yield f"{name} was planned for sequences of {before:,} tokens, not {now:,}"
    pairs = ((key, one, asked["settings"].get(key)) for key, one in settings.items())
    others = [
        f"{key}: {_setting(one)}, now {_setting(other)}"
        for key, one, other in pairs
        if one != other and _meant(key, one, before) != _meant(key, other, now)
    ]
    if others:
        yield f"{name} was planned with other settings of the training: {'; '.join(others)}"


def _meant(key: str, value: object, sequence_length: int) -> object:
    """A setting, or what stands for it where it is not stated."""
    stands: dict[str, object] = {
        "gradient_clipping": True,
        "data_workers": 0,
        "optimizer_threads": "bound",
        "longest_sequence": sequence_length,
    }
    return stands.get(key) if value is None else value


def _setting(value: object) -> str:
    """A setting's value as a note says it."""
    if value is None:
        return "not stated"
    return json.dumps(value).replace('"', "")


def _told_apart(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(key, what the plan is for and what is asked, what to do) of each difference that counts."""
    if _own_params(recorded) != _own_params(asked):
        one, other = (f"{each['model']} of {_own_params(each):,}" for each in (recorded, asked))
        yield "model", f"{one} parameters, not {other}", "name that model, or plan this one"
    elif recorded["trained_params"] != asked["trained_params"]:
        one, other = (_trained(each) for each in (recorded, asked))
        remedy = "say the same of what is trained, in model.yaml or by --lora-rank and --lora-targets"
        yield "trainable", f"trained parameters {one}, not {other}", remedy
    for key in ("precision", "master_precision", "optimizer"):
        one, other = recorded[key], asked[key]
        if one != other:
            remedy = f"training.{key}: {one}" if key == "master_precision" else f"--{key} {one}"
            yield key, f"{key} {one}, not {other}", remedy


def _own_params(training: Mapping[str, Any]) -> int:
    """Parameters of the model without adapters."""
    trainable, params = training["trainable"], training["total_params"]
    adapters = isinstance(trainable, dict) and "lora_rank" in trainable
    return int(params - training["trained_params"] if adapters else params)


def _trained(training: Mapping[str, Any]) -> str:
    told = json.dumps(training["trainable"]).replace('"', "")
    return f"{training['trained_params']:,} ({told})"


def written_beside(document: Document) -> dict[str, str]:
    """Name to SHA-256 of what a plan.yaml says was written beside it; BadInput where it is no plan."""
    from ziplan.files import validate
    from ziplan.report.plan_record import PlanFile

    return dict(validate(document, PlanFile).files)
