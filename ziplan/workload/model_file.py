"""What a model.yaml says: a model, and how to train it."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from ziplan.workload.training import Settings, TrainingChoices


class ModelFile(Settings):
    """A model.yaml: `model` (a shipped shape or a path) or an inline `shape`, and how to train it."""

    model: str | None = None
    shape: dict[str, Any] | None = None
    training: TrainingChoices = Field(default_factory=TrainingChoices)

    @field_validator("model", mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        if isinstance(value, dict):
            raise ValueError("expected a name or a path; a shape written out goes under `shape:`")
        return value
