"""Training settings, as a model.yaml or the command line states them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, field_validator

from ziplan.units import Precision
from ziplan.workload.model import ActivationBytes, Model
from ziplan.workload.optimizers import PLANNED, OptimizerName

ADAPTERS_PLANNED = False
"""Whether runtimes can plan with adapters; until then files and flags are held to full training."""


class Settings(BaseModel):
    """A frozen record of a file; keys it does not know are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


MOST_SEQUENCES = 100_000_000
"""No step of training takes more; a value above it is a slip."""


class Optimizer(Settings):
    """The optimizer and its settings."""

    kind: Annotated[OptimizerName, WithJsonSchema({"enum": [*PLANNED], "type": "string"})] = "adamw"
    learning_rate: float = Field(default=1e-5, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)

    @field_validator("kind", mode="before")
    @classmethod
    def _supported_kind(cls, value: object) -> object:
        if value not in PLANNED:
            planned = "adamw is" if PLANNED == ("adamw",) else f"supported are {', '.join(PLANNED)}"
            raise ValueError(f"the optimizer {value!r:.40} is not supported, {planned}")
        return value


class Adapters(Settings):
    """Low-rank adapters, of rank `lora_rank`, beside the frozen linears that `targets` name.

    A target is an operator's name or the end of one from a dot on, as in `q_proj`.
    """

    lora_rank: int = Field(ge=1)
    targets: tuple[str, ...] = Field(min_length=1)

    def targeted(self, name: str) -> bool:
        """Whether a target names the operator."""
        return any(name == target or name.endswith(f".{target}") for target in self.targets)


Trainable = Literal["all"] | Adapters


def trainable_params(model: Model, trainable: Trainable) -> int:
    """Parameters that training changes: all, or the adapters' alone."""
    if trainable == "all":
        return model.params
    return sum(
        operator.lora_params(trainable.lora_rank) * operator.count
        for operator in model.operators
        if operator.kind == "linear" and trainable.targeted(operator.name)
    )


class TrainingChoices(Settings):
    """Training settings as a file or the command line states them, any of them left out."""

    sequence_length: int | None = Field(default=None, ge=1)
    global_batch_size: int | None = Field(default=None, ge=1, le=MOST_SEQUENCES)
    micro_batch_size: int | None = Field(default=None, ge=1, le=MOST_SEQUENCES)
    accumulation_steps: int | None = Field(default=None, ge=1, le=MOST_SEQUENCES)
    precision: Precision | None = None
    optimizer: Optimizer = Field(default_factory=Optimizer)
    activation_checkpointing: Literal["none", "selective", "full", "auto"] = "auto"
    attention: Literal["flash", "eager"] = "flash"
    trainable: Annotated[Trainable, WithJsonSchema({"const": "all", "type": "string"})] = "all"

    @field_validator("trainable", mode="before")
    @classmethod
    def _supported_trainable(cls, value: object) -> object:
        if value != "all" and not ADAPTERS_PLANNED:
            raise ValueError("only training of all parameters is supported (`trainable: all`)")
        return value


class Training(TrainingChoices):
    """What one training run does. None means that the solver decides."""

    sequence_length: int = Field(ge=1)


@dataclass(frozen=True)
class Workload:
    """A model under given training settings, on GPUs whose precision is settled."""

    model: Model
    training: Training
    precision: Precision
    activations: ActivationBytes

    @property
    def trainable_params(self) -> int:
        """Parameters that training changes."""
        return trainable_params(self.model, self.training.trainable)
