"""plan.yaml: a plan as a file, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.report.json import plan_object

if TYPE_CHECKING:
    from ziplan.files import Document

SCHEMA = "ziplan.plan/1"
TOLERANCE = 1e-6
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


def _adding_up(parts: dict[str, float]) -> dict[str, float]:
    if any(part < 0 for part in parts.values()) or abs(sum(parts.values()) - 1) > TOLERANCE:
        raise ValueError(f"fractions must add up to 1, these add up to {sum(parts.values()):g}")
    return parts


def _names(files: dict[str, str]) -> dict[str, str]:
    if odd := [name for name in files if "/" in name or "\\" in name or name in ("", ".", "..")]:
        raise ValueError(f"expected names of files in this folder, not {odd[0]!r:.60}")
    return files


Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Fractions = Annotated[dict[str, float], AfterValidator(_adding_up)]


class PlacementFile(BaseModel):
    """The `placement` of a plan.yaml: tier to fraction, for each kind of state."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    params: Fractions
    grads: Fractions
    optimizer: Fractions
    checkpoints: Fractions


class PlanFile(BaseModel):
    """A plan.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    schema_name: Literal["ziplan.plan/1"] = Field(alias="schema")
    runtime: str = ""
    zero_stage: int = Field(ge=0, le=3)
    placement: PlacementFile
    dp_degree: int = Field(ge=1)
    tp_degree: int = Field(default=1, ge=1)
    pp_degree: int = Field(default=1, ge=1)
    micro_batch_size: int = Field(ge=1)
    accumulation_steps: int = Field(ge=1)
    activation_checkpointing: Literal["none", "selective", "full"]
    prefetch_depth: int = Field(ge=0)
    tile_count: int = Field(default=1, ge=1)
    sub_group_params: float = Field(gt=0)
    param_buffer_count: int = Field(default=0, ge=0)
    optimizer_buffer_count: int = Field(default=0, ge=0)
    files: Annotated[dict[str, Digest], AfterValidator(_names)] = Field(default_factory=dict)
    """SHA-256 of each file that was written beside this one, by name."""


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

    written = validate(document, PlanFile)
    values: dict[str, Any] = written.model_dump(exclude={"schema_name", "runtime", "files"})
    values["placement"] = Placement(**values["placement"])
    values["activation_checkpointing"] = Checkpointing.named(values["activation_checkpointing"])
    return Plan(**values)


def written_beside(document: Document) -> dict[str, str]:
    """Name to SHA-256 of what a plan.yaml says was written beside it; BadInput where it is no plan."""
    from ziplan.files import validate

    return dict(validate(document, PlanFile).files)
