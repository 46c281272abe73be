"""Activation bytes against what autograd really keeps for Hugging Face layers, and against print."""

from __future__ import annotations

from itertools import product

import pytest
from workload.autograd import SEQUENCE, kept_when_compiled, measured_bytes_per_token, tokens_of
from workload.models import built, shipped
from workload.small import SMALL

from ziplan.workload.families import FAMILIES, activation_bytes
from ziplan.workload.shapes import list_shapes

WIDER = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model"), 128),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim"), 352),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 8),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 8),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers"), 2),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "image_size"), 128),
}
"""What the small configs have in place of their own numbers, for layers of a likely make."""


def wider(family, **more):
    config = {key: WIDER.get(key, value) for key, value in SMALL[family].items()} | more
    return config | {"num_key_value_heads": 8} if family.startswith("deepseek") else config


CONFIGS = {
    **{family: wider(family) for family in FAMILIES},
    "llama-mha": wider("llama", num_key_value_heads=8),
    "gpt2-gelu": wider("gpt2", activation_function="gelu"),
    "falcon-7b": wider("falcon", new_decoder_architecture=False),
    "falcon-alibi": wider(
        "falcon", new_decoder_architecture=False, multi_query=False, num_kv_heads=8, alibi=True
    ),
    "t5-v1.0": wider("t5", feed_forward_proj="relu"),
    "gpt_bigcode-mha": wider("gpt_bigcode", multi_query=False),
    "glm4_moe-normed": wider("glm4_moe", use_qk_norm=True),
    "cohere-plain": wider("cohere", use_qk_norm=False),
}
ONLY_EAGER = (
    "bloom",
    "falcon-7b",
    "falcon-alibi",
    "gemma2",
    "gpt_neo",
    "gpt_oss",
    "mpt",
    "t5",
    "t5-v1.0",
    "mt5",
)
"""Models that PyTorch's own fused attention cannot compute, or not on the CPU."""

CASES = [
    case
    for case in product(CONFIGS, ("flash", "eager"), ("bf16", "fp32"), (False, True))
    if case[1] == "eager" or case[0] not in ONLY_EAGER
]
CPU_STATISTICS = 12
"""Bytes by which three LayerNorms' statistics in 16 bits are smaller on the CPU than on a GPU."""


def range_of(config, attention, precision, dropout=None, kernels=None):
    """What a layer is said to keep, per token."""
    kept = activation_bytes(built(config), attention, precision).with_dropout(dropout).with_kernels(kernels)
    tokens = tokens_of(config)
    low = kept.none_low + kept.attention_scores_low * tokens
    # The first layer of a T5 stack keeps which relative position is which, for all tokens once.
    positions = 2 / 5 * 8 * SEQUENCE / 2 if config["model_type"] in ("t5", "mt5") else 0
    return low - CPU_STATISTICS, kept.none_high + kept.attention_scores_high * tokens + positions


EXACT = (
    *("llama", "llama-mha", "mistral", "granite", "smollm3", "qwen2", "qwen3", "olmo2"),
    *("gemma", "gemma2", "gemma3_text", "cohere", "cohere2"),
    *("gpt2", "gpt2-gelu", "opt", "starcoder2", "stablelm", "bert", "roberta", "vit"),
    *("olmo3", "seed_oss", "xlm-roberta"),
)
"""Configs whose high end is no bound but what eager modules with dropout keep, to the byte."""

LEAST_SHARE = {"falcon": 0.6, "falcon-7b": 0.6, "mpt": 0.7}
"""What the others keep of the high end at least, where less than three quarters (MPT takes no dropout)."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "attention", "precision", "dropout"), CASES)
def test_what_autograd_keeps_lies_in_the_range(name, attention, precision, dropout, monkeypatch):
    known = None if name == "mpt" and dropout else dropout  # transformers' MPT takes none
    low, high = range_of(CONFIGS[name], attention, precision, known)
    measured = measured_bytes_per_token(CONFIGS[name], attention, precision, dropout, monkeypatch)
    assert low <= measured <= high * (1 + 1e-12)
    at_least, at_most = range_of(CONFIGS[name], attention, precision, known, "eager")
    assert low <= at_least <= measured
    assert at_most == high
    if attention == "eager" and dropout:
        statistics = CPU_STATISTICS + (4 * 11 if name.startswith("cohere") else 0)
        nearest = high - statistics if name in EXACT else LEAST_SHARE.get(name, 0.75) * high
        assert measured >= nearest


COMPILED = ("llama", "qwen3", "olmo2", "granite")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_layers_keep_what_fused_kernels_do(name):
    """By torch.compile's own partition into forward and backward, of graphs that the CPU then runs."""
    measured = kept_when_compiled({**CONFIGS[name], "vocab_size": 256})
    low, high = range_of(CONFIGS[name], "flash", "bf16", False, "compiled")
    assert low <= measured <= high
    assert measured < range_of(CONFIGS[name], "flash", "bf16", False, "eager")[0]


@pytest.mark.parametrize("attention", ["flash", "eager"])
@pytest.mark.parametrize("name", CONFIGS)
def test_known_kernels_narrow_the_range(name, attention):
    config = CONFIGS[name]
    whole, eager, fused = (range_of(config, attention, "bf16", None, k) for k in (None, "eager", "fused"))
    assert whole[0] <= eager[0] <= eager[1] == whole[1]
    assert whole[0] == fused[0] <= fused[1] * (1 + 1e-12) <= whole[1] * (1 + 1e-12)
    assert eager[0] - whole[0] == pytest.approx(whole[1] - fused[1])


@pytest.mark.parametrize("name", ["gpt2", "gpt2-xl", "zero-infinity-1t"])
def test_gpt_with_dropout_and_fused_kernels_is_korthikantis_formula(name):
    """arXiv:2205.05198: a layer keeps s*b*h*(34 + 5*a*s/h) bytes, LayerNorm statistics left out."""
    model = shipped(name)
    width, heads = model.d_model, model.attention_heads
    statistics = 16
    kept = activation_bytes(model, "eager", "fp16")
    assert kept.with_dropout(True).none_low - statistics == 34 * width
    assert kept.attention_scores_high == 5 * heads
    assert kept.none_low < 34 * width < kept.none_high


SMALLEST = {shipped(name).family: name for name in sorted(list_shapes(), key=lambda n: -shipped(n).params)}
"""The smallest shipped shape of every family."""


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("attention", ["flash", "eager"])
@pytest.mark.parametrize("name", SMALLEST.values())
def test_recomputing_attention_never_keeps_more(name, attention, precision):
    kept = activation_bytes(shipped(name), attention, precision)
    assert 0 < kept.selective_low <= kept.selective_high
    assert kept.selective_low <= kept.none_low <= kept.none_high
    assert kept.selective_high <= kept.none_high
    assert kept.attention_scores_low <= kept.attention_scores_high
    assert (kept.attention_scores_high == 0) == (attention == "flash")
