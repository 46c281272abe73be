"""plan.yaml: a plan as a file, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.report.json import plan_object

if TYPE_CHECKING:
    from ziplan.files import Document

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
BESIDE = "files that were written beside this one; another --out to this folder removes those it lacks"


def plan_yaml(plan: Plan, runtime: str, about: str, files: Mapping[str, str] | None = None) -> str:
    """The text of a plan.yaml; `about` says what the plan is for, `files` has the digests of the others."""
    lines = [f"# {about}", f"schema: {SCHEMA}", f"runtime: {runtime}"]
    for key, value in plan_object(plan).items():
        if key in COMMENTS:
            lines.append(f"# {COMMENTS[key]}")
        lines += _placement(value) if key == "placement" else [f"{key}: {value}"]
    if files:
        lines += [f"# {BESIDE}", "files:", *(f"  {name}: {digest}" for name, digest in files.items())]
    return "\n".join(lines) + "\n"


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
    values: dict[str, Any] = written.model_dump(exclude={"schema_name", "runtime", "files"})
    values["placement"] = Placement(**values["placement"])
    values["activation_checkpointing"] = Checkpointing.named(values["activation_checkpointing"])
    return Plan(**values)


def written_beside(document: Document) -> dict[str, str]:
    """Name to SHA-256 of what a plan.yaml says was written beside it; BadInput where it is no plan."""
    from ziplan.files import validate
    from ziplan.report.plan_record import PlanFile

    return dict(validate(document, PlanFile).files)
