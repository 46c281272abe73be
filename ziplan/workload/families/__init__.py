"""Model families: one module a family, entered here under the `model_type` of its configs."""

from __future__ import annotations

from collections.abc import Mapping

from ziplan.units import Precision
from ziplan.workload.families import gpt2, llama
from ziplan.workload.families.family import Attention, Family
from ziplan.workload.model import ActivationBytes, Model

FAMILIES: Mapping[str, Family] = {
    "gpt2": gpt2.GPT2,
    "llama": llama.LLAMA,
    "mistral": llama.MISTRAL,
    "qwen2": llama.QWEN2,
}
"""Every supported `model_type`."""


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """What one layer of `model` keeps for backward, per token."""
    return FAMILIES[model.family].activation_bytes(model, attention, precision)
