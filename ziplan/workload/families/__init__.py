"""Model families: one module a family, entered here under the `model_type` of its configs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from ziplan.units import Precision
from ziplan.workload.families.family import Attention, Family
from ziplan.workload.model import ActivationBytes, Model

FAMILIES: Mapping[str, str] = {
    "bart": "bart.BART",
    "bert": "bert.BERT",
    "blenderbot": "bart.BLENDERBOT",
    "bloom": "bloom.BLOOM",
    "cohere": "cohere.COHERE",
    "cohere2": "cohere.COHERE2",
    "deepseek_v2": "deepseek.DEEPSEEK_V2",
    "deepseek_v3": "deepseek.DEEPSEEK_V3",
    "ernie4_5": "llama.ERNIE_4_5",
    "falcon": "falcon.FALCON",
    "gemma": "gemma.GEMMA",
    "gemma2": "gemma.GEMMA2",
    "gemma3_text": "gemma.GEMMA3",
    "glm": "glm.GLM",
    "glm4": "glm.GLM4",
    "glm4_moe": "glm_moe.GLM4_MOE",
    "gpt2": "gpt2.GPT2",
    "gpt_bigcode": "gpt_bigcode.GPT_BIGCODE",
    "gpt_neo": "gpt_neo.GPT_NEO",
    "gpt_neox": "gpt_neox.GPT_NEOX",
    "gpt_oss": "gpt_oss.GPT_OSS",
    "gptj": "gptj.GPTJ",
    "granite": "llama.GRANITE",
    "granitemoe": "mixtral.GRANITE_MOE",
    "llama": "llama.LLAMA",
    "llama4_text": "llama4.LLAMA4",
    "m2m_100": "bart.M2M_100",
    "mbart": "bart.MBART",
    "minimax_m2": "mixtral.MINIMAX_M2",
    "mistral": "llama.MISTRAL",
    "mixtral": "mixtral.MIXTRAL",
    "mpt": "mpt.MPT",
    "mt5": "t5.MT5",
    "olmo": "olmo.OLMO",
    "olmo2": "olmo.OLMO2",
    "olmo3": "olmo.OLMO3",
    "olmoe": "mixtral.OLMOE",
    "opt": "opt.OPT",
    "phi": "phi.PHI",
    "phi3": "phi3.PHI3",
    "qwen2": "llama.QWEN2",
    "qwen2_moe": "qwen_moe.QWEN2_MOE",
    "qwen3": "qwen3.QWEN3",
    "qwen3_moe": "qwen_moe.QWEN3_MOE",
    "roberta": "bert.ROBERTA",
    "seed_oss": "llama.SEED_OSS",
    "smollm3": "llama.SMOLLM3",
    "stablelm": "stablelm.STABLELM",
    "starcoder2": "starcoder2.STARCODER2",
    "t5": "t5.T5",
    "vit": "vit.VIT",
    "xlm-roberta": "bert.XLM_ROBERTA",
}
"""Every supported `model_type`, with its module and what it is called there (imported when asked for)."""


def family_of(model_type: str) -> Family:
    """The family of a supported `model_type`."""
    module, _, name = FAMILIES[model_type].partition(".")
    family: Family = getattr(import_module(f"{__name__}.{module}"), name)
    return family


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """What one layer of `model` keeps for backward, per token."""
    return family_of(model.family).activation_bytes(model, attention, precision)
