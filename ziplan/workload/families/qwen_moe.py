"""Qwen2-MoE (with an expert for every token) and Qwen3-MoE: experts in all layers, or in some."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.families.qwen3 import normed_attention
from ziplan.workload.model import ActivationBytes, Layer, Model


def _model(family: str, name: str, fields: Fields) -> Model:
    size = build.sizes(fields, key_value_required=True)
    routed = _experts(family, fields, size)

    def layer(has_experts: bool) -> Layer:
        return (
            build.norm("input_layernorm", size.hidden),
            *_attention(family, fields, size),
            build.norm("post_attention_layernorm", size.hidden),
            *(routed if has_experts else build.gated(size.hidden, fields.count("intermediate_size"))),
        )

    layers = build.mixed(_sparse(fields, size), layer)
    tied, activation = fields.flag("tie_word_embeddings", False), fields.text("hidden_act", "silu")
    return build.decoder(family, name, fields, size, layers, activation, tied=tied)


def _sparse(fields: Fields, size: build.Sizes) -> list[bool]:
    """Which layers have experts."""
    step, dense = fields.count("decoder_sparse_step", 1), fields.places("mlp_only_layers", size.layers)
    return [place not in dense and bool(step) and (place + 1) % step == 0 for place in range(size.layers)]


def _attention(family: str, fields: Fields, size: build.Sizes) -> Layer:
    if family == "qwen3_moe":
        return normed_attention(size, fields.flag("attention_bias", False))
    return build.attention(size, fields.flag("qkv_bias", True), output_bias=False)


def _experts(family: str, fields: Fields, size: build.Sizes) -> Layer:
    # Configs that transformers 5 saves have the second name.
    key = fields.named("num_experts", "num_local_experts")
    count, middle = fields.count(key), fields.count("moe_intermediate_size")
    chosen = build.chosen(fields, "num_experts_per_tok", key, count)
    router = build.router("mlp.gate", size.hidden, count)
    experts = build.experts("mlp.experts", size.hidden, middle, count, chosen)
    if family == "qwen3_moe":
        return router, experts
    shared = fields.count("shared_expert_intermediate_size")
    return (
        *build.gated(size.hidden, shared, "mlp.shared_expert"),
        router,
        experts,
        build.linear("mlp.shared_expert_gate", size.hidden, 1),
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Attention, then a router and the chosen experts, or a dense MLP: the mean over the layers."""
    keep, hidden, function = Keep(precision, attention), model.d_model, model.activation_function
    heads, key_heads = model.attention_heads, model.key_value_heads
    kept = (
        keep.rms_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(heads, key_heads, model.head_dim, rotated=1.0)
    )
    if model.has("self_attn.q_norm"):
        kept += keep.rms_norm(heads * model.head_dim, rows=heads)
        kept += keep.rms_norm(key_heads * model.head_dim, rows=key_heads)
    if model.has("mlp.experts"):
        experts = model.operator("mlp.experts")
        routed = keep.routed(hidden, experts, function)
        if model.has("mlp.shared_expert.down_proj"):
            # Its gate keeps one number, and its output is weighted with it.
            middle = model.operator("mlp.shared_expert.down_proj").in_features
            routed += keep.gated(0, middle, function) + keep.inputs(1, hidden)
        kept += routed * (experts.count / model.layer_count)
    if model.has("mlp.down_proj"):
        dense = model.operator("mlp.down_proj")
        kept += keep.gated(hidden, dense.in_features, function) * (dense.count / model.layer_count)
    return kept.bytes


def _family(family: str) -> Family:
    return Family(lambda name, fields: _model(family, name, fields), activation_bytes)


QWEN2_MOE = _family("qwen2_moe")
QWEN3_MOE = _family("qwen3_moe")
