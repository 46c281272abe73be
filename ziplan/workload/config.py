"""A model from a config in the form of Hugging Face's config.json; keys it does not need are ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ziplan.workload.families import FAMILIES
from ziplan.workload.families.family import Fields, Report
from ziplan.workload.model import Model


def model_of(name: str, config: Mapping[str, Any], report: Report) -> Model | None:
    """The model that `config` describes, or None after every problem has been reported."""
    problems = 0

    def count_and_report(key: str, message: str, help: str) -> None:
        nonlocal problems
        problems += 1
        report(key, message, help)

    model_type = config.get("model_type")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        said = "is missing" if model_type is None else f"{model_type!r} is not supported"
        count_and_report("model_type", f"`model_type` {said}", f"supported are {', '.join(sorted(FAMILIES))}")
        return None
    model = family.model(name, Fields(config, count_and_report))
    return None if problems else model
