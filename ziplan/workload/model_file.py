"""What a model.yaml says: a model, how to train it, and the models beside it in the same job."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator

from ziplan.workload.training import Adapters, Frozen, Settings, TrainingChoices, kind_of_trainable

Role = Literal["reference", "teacher", "critic", "reward"]
Offload = Literal["auto", "none", "cpu"]

MOST_COMPANIONS = 16
"""More models beside the trained one than this are a slip."""


class CompanionEntry(Settings):
    """A model beside the trained one; `model` is a shipped shape or a path, as above.

    Without `trainable` a critic is trained whole and the others are not trained. `offload` says where
    its parameters live if not where the plan puts parameters: on the GPU (none) or on the host (cpu).
    """

    role: Role
    model: str
    trainable: (
        Annotated[
            Annotated[Literal["none", "all"], Tag("all")]
            | Annotated[Adapters, Tag("adapters")]
            | Annotated[Frozen, Tag("frozen")],
            Discriminator(kind_of_trainable),
        ]
        | None
    ) = None
    offload: Offload = "auto"


class ModelFile(Settings):
    """A model.yaml: `model` (a shipped shape or a path) or an inline `shape`, and how to train it.

    `companions` are the other models of the job: those of RLHF and of distillation.
    """

    model: str | None = None
    shape: dict[str, Any] | None = None
    training: TrainingChoices = Field(default_factory=TrainingChoices)
    companions: tuple[CompanionEntry, ...] = Field(default=(), max_length=MOST_COMPANIONS)

    @field_validator("model", mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        if isinstance(value, dict):
            raise ValueError("expected a name or a path; a shape written out goes under `shape:`")
        return value
