"""Small configs of every family: one each, and strategies that draw any."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ziplan.workload.families import FAMILIES

small = st.integers(1, 6)
few = st.integers(1, 3)
width = st.integers(1, 99)
even = small.map(lambda n: 2 * n)
flag = st.booleans()


def one(base: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**base, **more}


DECODER = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
    "max_position_embeddings": 64,
}
EVEN_HEADS = {key: value for key, value in DECODER.items() if key != "num_key_value_heads"}
LATENT = {
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 24,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
}
BART = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 112,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "vocab_size": 50,
    "max_position_embeddings": 64,
}
T5 = {
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 96,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "vocab_size": 50,
    "feed_forward_proj": "gated-gelu",
}
SPARSE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}

_SMALL: dict[str, dict[str, Any]] = {
    "bart": BART,
    "bert": EVEN_HEADS,
    "blenderbot": BART,
    "bloom": {"hidden_size": 64, "n_layer": 3, "n_head": 4, "vocab_size": 50},
    "cohere": one(DECODER, use_qk_norm=True),
    "cohere2": DECODER,
    "deepseek_v2": one(DECODER, **LATENT),
    "deepseek_v3": one(DECODER, **LATENT),
    "ernie4_5": one(DECODER, head_dim=16),
    "falcon": one(EVEN_HEADS, new_decoder_architecture=True, num_kv_heads=2),
    "gemma": one(DECODER, head_dim=16),
    "gemma2": one(DECODER, head_dim=16),
    "gemma3_text": one(DECODER, head_dim=16),
    "glm": one(DECODER, head_dim=16),
    "glm4": one(DECODER, head_dim=16),
    "glm4_moe": one(
        DECODER,
        head_dim=16,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_shared_experts=1,
        moe_intermediate_size=24,
        first_k_dense_replace=1,
        n_group=1,
        topk_group=1,
    ),
    "gpt2": {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 64, "vocab_size": 50},
    "gpt_bigcode": {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 64, "vocab_size": 50},
    "gpt_neo": {
        "hidden_size": 64,
        "num_layers": 3,
        "num_heads": 4,
        "max_position_embeddings": 64,
        "vocab_size": 50,
        "intermediate_size": 96,
        "attention_types": [[["global"], 3]],
    },
    "gpt_neox": EVEN_HEADS,
    "gpt_oss": one(DECODER, num_local_experts=4, num_experts_per_tok=2, head_dim=16),
    "gptj": {
        "n_embd": 64,
        "n_layer": 3,
        "n_head": 4,
        "rotary_dim": 8,
        "n_positions": 64,
        "vocab_size": 50,
    },
    "granite": DECODER,
    "granitemoe": one(DECODER, num_local_experts=4, num_experts_per_tok=2),
    "llama": DECODER,
    "llama4_text": one(
        DECODER, head_dim=16, intermediate_size_mlp=128, num_local_experts=4, interleave_moe_layer_step=2
    ),
    "m2m_100": one(BART, encoder_layerdrop=0.0, decoder_layerdrop=0.0),
    "mbart": BART,
    "minimax_m2": one(DECODER, num_local_experts=4, num_experts_per_tok=2, head_dim=16),
    "mistral": DECODER,
    "mixtral": one(DECODER, num_local_experts=4, num_experts_per_tok=2),
    "mpt": {"d_model": 64, "n_layers": 3, "n_heads": 4, "vocab_size": 50},
    "mt5": T5,
    "olmo": DECODER,
    "olmo2": DECODER,
    "olmo3": DECODER,
    "olmoe": one(DECODER, num_experts=4, num_experts_per_tok=2),
    "opt": {
        "hidden_size": 64,
        "ffn_dim": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "vocab_size": 50,
        "max_position_embeddings": 64,
    },
    "phi": DECODER,
    "phi3": DECODER,
    "qwen2": DECODER,
    "qwen2_moe": one(DECODER, **SPARSE, shared_expert_intermediate_size=40, mlp_only_layers=[1]),
    "qwen3": one(DECODER, head_dim=16),
    "qwen3_moe": one(DECODER, **SPARSE, head_dim=16, decoder_sparse_step=2),
    "roberta": EVEN_HEADS,
    "seed_oss": one(DECODER, head_dim=16),
    "smollm3": DECODER,
    "stablelm": DECODER,
    "starcoder2": DECODER,
    "t5": T5,
    "vit": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "image_size": 32,
        "patch_size": 16,
        "num_labels": 10,
    },
    "xlm-roberta": EVEN_HEADS,
}
SMALL = {family: {"model_type": family, **_SMALL[family]} for family in FAMILIES}
"""One config of every family."""

GROUPED = {family for family, config in _SMALL.items() if "num_key_value_heads" in config}
"""Families whose configs say how many key-value heads there are."""

FLAGS = {
    "cohere": ["use_qk_norm"],
    "ernie4_5": ["use_bias"],
    "falcon": ["alibi", "bias"],
    "gemma": ["attention_bias"],
    "glm": ["attention_bias"],
    "glm4": ["attention_bias"],
    "glm4_moe": ["attention_bias", "use_qk_norm"],
    "gpt_bigcode": ["multi_query"],
    "gpt_neox": ["attention_bias"],
    "gpt_oss": ["attention_bias"],
    "granite": ["attention_bias", "mlp_bias"],
    "llama": ["attention_bias", "mlp_bias"],
    "olmo": ["attention_bias"],
    "olmo2": ["attention_bias"],
    "olmo3": ["attention_bias"],
    "opt": ["do_layer_norm_before", "enable_bias", "_remove_final_layer_norm"],
    "qwen3": ["attention_bias"],
    "qwen3_moe": ["attention_bias"],
    "qwen2_moe": ["qkv_bias"],
    "seed_oss": ["attention_bias", "attention_out_bias", "mlp_bias"],
    "smollm3": ["attention_bias"],
    "stablelm": ["use_qkv_bias", "use_parallel_residual"],
    "starcoder2": ["use_bias"],
    "vit": ["qkv_bias"],
    "deepseek_v2": ["attention_bias", "mlp_bias"],
    "deepseek_v3": ["attention_bias"],
    "llama4_text": ["attention_bias"],
}
"""What of a config may be true or false."""

ALWAYS_TIED = ("bart", "bert", "blenderbot", "m2m_100", "mbart", "roberta", "vit", "xlm-roberta")
"""Families whose head is tied, or is no language head."""

FREE = {
    "intermediate_size",
    "intermediate_size_mlp",
    "vocab_size",
    "ffn_dim",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "d_ff",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "q_lora_rank",
    "kv_lora_rank",
    "v_head_dim",
    "qk_nope_head_dim",
    "max_position_embeddings",
    "n_positions",
    "num_labels",
}
"""Numbers that may be anything."""

LAYERS = {
    "num_hidden_layers",
    "n_layer",
    "encoder_layers",
    "decoder_layers",
    "num_layers",
    "num_decoder_layers",
    "n_layers",
}


@st.composite
def configs(draw: Any, family: str) -> dict[str, Any]:
    """A config of a family, its numbers drawn where they are free of each other."""
    config = dict(SMALL[family])
    for key in config:
        if key in FREE:
            # A reserved token lies at 0 or 1, and rotation takes pairs.
            config[key] = draw(st.integers(3, 99)) if key == "vocab_size" else draw(st.integers(2, 50)) * 2
        elif key in LAYERS:
            config[key] = draw(small)
    if family not in ALWAYS_TIED:
        config["tie_word_embeddings"] = draw(flag)
    config |= {key: draw(flag) for key in FLAGS.get(family, [])}
    return _widths(draw, family, config)


def _widths(draw: Any, family: str, config: dict[str, Any]) -> dict[str, Any]:
    """Heads that fit the width, and what hangs on the family alone."""
    key = next(name for name in ("hidden_size", "n_embd", "d_model") if name in config)
    names = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads")
    head_key = next(name for name in names if name in config)
    groups, key_heads = draw(few), draw(few)
    config[head_key] = heads = groups * key_heads
    config[key] = heads * draw(few) * 4
    if family in GROUPED:
        config["num_key_value_heads"] = heads if family.startswith("deepseek") else key_heads
    if "head_dim" in config or (family in ("llama", "mistral", "qwen2", "mixtral") and draw(flag)):
        config["head_dim"] = 2 * draw(small)
    if "decoder_attention_heads" in config:
        config["decoder_attention_heads"] = heads
    if family == "gptj":
        config["rotary_dim"] = 4
    if family == "falcon":
        new = config["new_decoder_architecture"] = draw(flag)
        config |= {"num_kv_heads": key_heads, "multi_query": draw(flag), "parallel_attn": new or draw(flag)}
    return config | _own(draw, family, config)


def _own(draw: Any, family: str, config: dict[str, Any]) -> dict[str, Any]:
    """What is one family's alone."""
    layers = config.get("num_hidden_layers", 1)
    places = st.lists(st.integers(0, layers - 1), unique=True)
    sparse = {"mlp_only_layers": places, "decoder_sparse_step": few}
    dense_first = {"first_k_dense_replace": st.integers(0, layers)}
    functions = {"feed_forward_proj": st.sampled_from(["relu", "gated-gelu", "gated-silu"])}
    latent = {**dense_first, "q_lora_rank": st.sampled_from([None, config.get("q_lora_rank")])}
    table = st.sampled_from([16, config.get("hidden_size")])
    own: dict[str, dict[str, Any]] = {
        "qwen2_moe": sparse,
        "qwen3_moe": sparse,
        "deepseek_v2": latent,
        "deepseek_v3": latent,
        "glm4_moe": dense_first,
        "gpt_neo": {"attention_types": st.just([[["global"], config.get("num_layers")]])},
        "llama4_text": {"interleave_moe_layer_step": few},
        "opt": {"word_embed_proj_dim": table},
        "t5": functions,
        "mt5": functions,
        "gpt2": {"n_inner": st.none() | width},
    }
    return {key: draw(values) for key, values in own.get(family, {}).items()}
