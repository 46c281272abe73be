"""The Hugging Face model that a config describes, on the meta device."""

from __future__ import annotations

import pytest

HEADS = {
    "t5": "AutoModelForSeq2SeqLM",
    "mt5": "AutoModelForSeq2SeqLM",
    "mbart": "AutoModelForSeq2SeqLM",
    "m2m_100": "AutoModelForSeq2SeqLM",
    "blenderbot": "AutoModelForSeq2SeqLM",
    "bart": "AutoModelForSeq2SeqLM",
    "bert": "AutoModelForMaskedLM",
    "roberta": "AutoModelForMaskedLM",
    "xlm-roberta": "AutoModelForMaskedLM",
    "vit": "AutoModelForImageClassification",
}
"""What is trained of a family that is no decoder."""

TWO_STACKS = [family for family, head in HEADS.items() if head == "AutoModelForSeq2SeqLM"]
"""Families of an encoder and a decoder."""


def hf_config(config):
    """The config as a Hugging Face one."""
    transformers = pytest.importorskip("transformers")
    # Token ids play no part in sizes, and default ones lie outside a small vocabulary.
    ids = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    if config["model_type"] in TWO_STACKS:
        ids["decoder_start_token_id"] = 0
    if config["model_type"].endswith("roberta"):
        ids["pad_token_id"] = 1
    more = {key: value for key, value in config.items() if key != "source"}
    return transformers.AutoConfig.for_model(**{**more, **ids})


def hf_kind(config):
    """The class that makes the model to be trained."""
    transformers = pytest.importorskip("transformers")
    return getattr(transformers, HEADS.get(config["model_type"], "AutoModelForCausalLM"))


def hf_model(config, device="meta"):
    """The model to be trained, its weights tied as the config says."""
    torch = pytest.importorskip("torch")
    with torch.device(device):
        model = hf_kind(config).from_config(hf_config(config))
        model.tie_weights()
        if config["model_type"] in ("t5", "mt5") and not config.get("tie_word_embeddings", True):
            # Tied when made anew; a checkpoint with a head of its own is not tied when it is loaded.
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    return model


def hf_parameters(config):
    """Name to element count of every parameter, shared ones once."""
    return {name: tensor.numel() for name, tensor in hf_model(config).named_parameters()}
