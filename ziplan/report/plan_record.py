"""What a plan.yaml says, as a record that is validated when one is read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ziplan.files.record import FileRecord, Fractions
from ziplan.units import Precision
from ziplan.workload.optimizers import OptimizerName
from ziplan.workload.training import Trainable, TrainingChoices


def _names(files: dict[str, str]) -> dict[str, str]:
    if odd := [name for name in files if "/" in name or "\\" in name or name in ("", ".", "..")]:
        raise ValueError(f"expected names of files in this folder, not {odd[0]!r:.60}")
    return files


Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class PlacementFile(FileRecord):
    """The `placement` of a plan.yaml: tier to fraction, for each kind of state."""

    params: Fractions
    grads: Fractions
    optimizer: Fractions
    checkpoints: Fractions


class PlannedFor(FileRecord):
    """The training that a plan was made for: what its bytes and times follow from, beside the plan."""

    model: str
    total_params: int = Field(ge=0)
    trained_params: int = Field(ge=0)
    """Parameters that have gradients and optimizer state."""
    sequence_length: int = Field(ge=1)
    """Tokens of a sequence."""
    precision: Precision
    master_precision: Literal["fp32", "bf16"] = "fp32"
    optimizer: OptimizerName
    trainable: Trainable = "all"
    settings: TrainingChoices = Field(default_factory=TrainingChoices)
    """Settings that change bytes or times and leave the plan one for the same training."""


class PlanFile(FileRecord):
    """A plan.yaml."""

    schema_name: Literal["ziplan.plan/1"] = Field(alias="schema")
    runtime: str = ""
    zero_stage: int = Field(ge=0, le=3)
    placement: PlacementFile
    dp_degree: int = Field(ge=1)
    tp_degree: int = Field(default=1, ge=1)
    pp_degree: int = Field(default=1, ge=1)
    vpp_degree: int = Field(default=1, ge=1)
    micro_batch_size: int = Field(ge=1)
    accumulation_steps: int = Field(ge=1)
    activation_checkpointing: Literal["none", "selective", "full"]
    prefetch_depth: int = Field(default=1, ge=0)
    tile_count: int = Field(default=1, ge=1)
    sub_group_params: float = Field(default=1e9, gt=0)
    param_buffer_count: int = Field(default=0, ge=0)
    optimizer_buffer_count: int = Field(default=0, ge=0)
    planned_for: PlannedFor | None = None
    files: Annotated[dict[str, Digest], AfterValidator(_names)] = Field(default_factory=dict)
    """SHA-256 of each file that was written beside this one, by name."""
