"""Activation bytes against what autograd really keeps for one Hugging Face layer, and against print."""

from __future__ import annotations

from importlib import import_module
from itertools import product

import pytest
from workload.models import built, shipped

from ziplan.workload.families import activation_bytes
from ziplan.workload.families.gpt2 import layer_bytes_kept

BATCH, SEQUENCE = 2, 96
LLAMA = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 128,
}
MANY_KEYS = {**LLAMA, "num_key_value_heads": 8}
QWEN2 = {**LLAMA, "model_type": "qwen2"}
GPT2 = {"model_type": "gpt2", "n_embd": 128, "n_layer": 1, "n_head": 8, "n_positions": 128, "vocab_size": 64}
FUSED_GELU = {**GPT2, "activation_function": "gelu"}


def measured_bytes_per_token(config, attention, precision, dropout, monkeypatch):
    """Bytes of every tensor that autograd keeps for one layer, parameters and shared inputs aside."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    hf_config = transformers.AutoConfig.for_model(**config)
    hf_config._attn_implementation = {"flash": "sdpa", "eager": "eager"}[attention]
    if config["model_type"] == "gpt2":
        hf_config.resid_pdrop = 0.1 if dropout else 0.0
        # The CPU has no flash kernel with dropout; a GPU's keeps a seed only.
        hf_config.attn_pdrop = 0.1 if dropout and attention == "eager" else 0.0
    mask_like_a_gpu(torch, monkeypatch)

    layer, arguments = one_layer(torch, hf_config, dtype)
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    hidden_states = torch.randn(BATCH, SEQUENCE, hf_config.hidden_size, dtype=dtype, requires_grad=True) * 1
    if attention == "eager":
        arguments["attention_mask"] = torch.zeros(BATCH, 1, SEQUENCE, SEQUENCE, dtype=dtype)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(hidden_states, **arguments)
    shared = [*layer.parameters(), *arguments.get("position_embeddings", ())]
    for tensor in shared:
        kept.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values()) / (BATCH * SEQUENCE)


def mask_like_a_gpu(torch, monkeypatch):
    """Dropout as a GPU does it, with a mask of one byte an element (the CPU's has the values' type)."""

    def dropout(values, p=0.5, training=True, inplace=False):
        return torch.native_dropout(values, p, True)[0] if training and p else values

    monkeypatch.setattr(torch.nn.functional, "dropout", dropout)


def one_layer(torch, hf_config, dtype):
    """A layer in training mode and the arguments that its model would pass."""
    name = {"llama": "Llama", "qwen2": "Qwen2", "gpt2": "GPT2"}[hf_config.model_type]
    module = import_module(f"transformers.models.{hf_config.model_type}.modeling_{hf_config.model_type}")
    if name == "GPT2":
        return module.GPT2Block(hf_config, layer_idx=0).to(dtype).train(), {}
    rotary = getattr(module, f"{name}RotaryEmbedding")(hf_config)
    positions = torch.arange(SEQUENCE)[None]
    cosines = rotary(torch.zeros(1, 1, 1, dtype=dtype), positions)
    layer = getattr(module, f"{name}DecoderLayer")(hf_config, layer_idx=0).to(dtype).train()
    return layer, {"position_embeddings": cosines}


CONFIGS = {"llama": LLAMA, "llama-mha": MANY_KEYS, "qwen2": QWEN2, "gpt2": GPT2, "gpt2-gelu": FUSED_GELU}
CASES = list(product(CONFIGS, ("flash", "eager"), ("bf16", "fp16", "fp32"), (False, True)))
CPU_STATISTICS = 8
"""Bytes by which two LayerNorms' statistics in 16 bits are smaller on the CPU than on a GPU."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "attention", "precision", "dropout"), CASES)
def test_what_autograd_keeps_lies_in_the_range(name, attention, precision, dropout, monkeypatch):
    config = CONFIGS[name]
    kept = activation_bytes(built(config), attention, precision)
    low = kept.none_low + kept.attention_scores_low * SEQUENCE
    high = kept.none_high + kept.attention_scores_high * SEQUENCE
    measured = measured_bytes_per_token(config, attention, precision, dropout, monkeypatch)
    assert low - CPU_STATISTICS <= measured <= high


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_high_end_is_what_the_eager_modules_keep(name, precision, monkeypatch):
    kept = activation_bytes(built(CONFIGS[name]), "eager", precision)
    high = kept.none_high + kept.attention_scores_high * SEQUENCE
    measured = measured_bytes_per_token(CONFIGS[name], "eager", precision, True, monkeypatch)
    assert high - CPU_STATISTICS <= measured <= high


@pytest.mark.parametrize("name", ["gpt2", "gpt2-xl", "zero-infinity-1t"])
def test_gpt_with_dropout_and_fused_kernels_is_korthikantis_formula(name):
    """arXiv:2205.05198: a layer keeps s*b*h*(34 + 5*a*s/h) bytes, LayerNorm statistics left out."""
    model = shipped(name)
    width, heads = model.d_model, model.attention_heads
    statistics = 16
    assert layer_bytes_kept(model, "fp16", eager_modules=False, dropout=True) - statistics == 34 * width
    kept = activation_bytes(model, "eager", "fp16")
    assert kept.attention_scores_high == 5 * heads
    assert kept.none_low < 34 * width < kept.none_high


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("attention", ["flash", "eager"])
@pytest.mark.parametrize("name", ["gpt2-xl", "llama-3.1-8b", "llama-2-7b", "qwen2.5-0.5b"])
def test_recomputing_attention_never_keeps_more(name, attention, precision):
    kept = activation_bytes(shipped(name), attention, precision)
    assert 0 < kept.selective_low <= kept.selective_high
    assert kept.selective_low <= kept.none_low <= kept.none_high
    assert kept.selective_high <= kept.none_high
    assert kept.attention_scores_low <= kept.attention_scores_high
    assert (kept.attention_scores_high == 0) == (attention == "flash")
