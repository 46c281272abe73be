"""A model from a config in the form of Hugging Face's config.json; keys it does not need are ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ziplan.files.validation import MISSING_KEY, WRONG_VALUE
from ziplan.workload.families import FAMILIES, family_of
from ziplan.workload.families.family import Fields, Report
from ziplan.workload.families.kept import UNCOUNTED, is_counted
from ziplan.workload.model import Model
from ziplan.workload.windows import windows


def model_of(name: str, config: Mapping[str, Any], report: Report) -> Model | None:
    """The model that `config` describes, or None after every problem has been reported."""
    clean = True

    def note(key: str, code: str, message: str, help: str) -> None:
        nonlocal clean
        clean = False
        report(key, code, message, help)

    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        supported = _part(config) or f"supported are {', '.join(sorted(FAMILIES))}"
        if model_type is None:
            note("model_type", MISSING_KEY, "missing key `model_type`", supported)
        else:
            note("model_type", WRONG_VALUE, f"{model_type!r:.40} is not supported", supported)
        return None
    fields = Fields(config, note)
    model = family_of(model_type).model(name, fields)
    model = replace(model, windows=windows(model_type, fields, model.layer_count))
    return replace(model, notes=tuple(_notes(model, config))) if clean else None


def _notes(model: Model, config: Mapping[str, Any]) -> Iterator[str]:
    """What must be said with any answer about the model."""
    quantized = config.get("quantization_config")
    if quantized:
        method = quantized.get("quant_method") if isinstance(quantized, Mapping) else None
        named = f" ({method!r:.40})" if isinstance(method, str) else ""
        yield (
            f"the model's config has a `quantization_config`{named}: planned without it, its "
            "parameters in the precision of the training"
        )
    function = model.activation_function
    if function and not is_counted(function):
        yield (
            f"nobody has counted what the activation function {function!r:.40} keeps for backward: "
            f"taken as its input, and up to {UNCOUNTED} tensors of that size more"
        )


def _part(config: Mapping[str, Any]) -> str:
    """What to do with a config that has a supported model inside."""
    text = config.get("text_config")
    inside = text.get("model_type") if isinstance(text, Mapping) else None
    if not isinstance(inside, str) or inside not in FAMILIES:
        return ""
    return f"its text part is ({inside}): give the mapping under `text_config` as a config of its own"
