"""Mixtral, Granite MoE, OLMoE, MiniMax-M2: Llama's layer with gated experts for an MLP, all layers alike."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Layer, Model

_NAMES = {
    "mixtral": ("mlp.gate", "mlp.experts", "num_local_experts"),
    "granitemoe": ("block_sparse_moe.router", "block_sparse_moe.experts", "num_local_experts"),
    "olmoe": ("mlp.gate", "mlp.experts", "num_experts"),
    "minimax_m2": ("mlp.gate", "mlp.experts", "num_local_experts"),
}
"""Router, experts, and the config's key for how many there are."""


def _model(family: str, name: str, fields: Fields) -> Model:
    size = build.sizes(fields, key_value_required=family in ("mixtral", "minimax_m2"))
    router, experts, key = _NAMES[family]
    # transformers takes either name and saves one.
    key = fields.named(key, "num_local_experts", "num_experts")
    count = fields.count(key)
    chosen = build.chosen(fields, "num_experts_per_tok", key, count)
    layer = (
        build.norm("input_layernorm", size.hidden),
        *_attention(family, size, fields),
        build.norm("post_attention_layernorm", size.hidden),
        build.router(router, size.hidden, count),
        build.experts(experts, size.hidden, fields.count("intermediate_size"), count, chosen),
    )
    tied, activation = fields.flag("tie_word_embeddings", False), fields.text("hidden_act", "silu")
    return build.decoder(
        family, name, fields, size, [build.stack(size.layers, *layer)], activation, tied=tied
    )


def _attention(family: str, size: build.Sizes, fields: Fields) -> Layer:
    bias = family in ("granitemoe", "olmoe") and fields.flag("attention_bias", False)
    query, key, value, output = build.attention(size, bias)
    if family not in ("olmoe", "minimax_m2"):
        return query, key, value, output
    norms = (build.norm("self_attn.q_norm", size.query), build.norm("self_attn.k_norm", size.key_value))
    return query, norms[0], key, norms[1], value, output


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Llama's attention half, a router, and as many experts as a token goes to."""
    keep, hidden = Keep(precision, attention), model.d_model
    query, key = model.attention_heads * model.head_dim, model.key_value_heads * model.head_dim
    kept = (
        keep.rms_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(model.attention_heads, model.key_value_heads, model.head_dim, rotated=1.0)
        + keep.routed(hidden, model.operator(_NAMES[model.family][1]), model.activation_function)
    )
    return (kept + keep.rms_norm(query, key) if model.has("self_attn.q_norm") else kept).bytes


def _family(family: str) -> Family:
    return Family(lambda name, fields: _model(family, name, fields), activation_bytes)


MIXTRAL = _family("mixtral")
GRANITE_MOE = _family("granitemoe")
OLMOE = _family("olmoe")
MINIMAX_M2 = _family("minimax_m2")
