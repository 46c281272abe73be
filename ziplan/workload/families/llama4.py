"""The text part of Llama 4: experts and one that every token takes, in all layers or every second."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Layer, Model


def _model(name: str, fields: Fields) -> Model:
    size = build.sizes(fields, key_value_required=True, head_dim=128)
    count, middle = fields.count("num_local_experts"), fields.count("intermediate_size")
    chosen = build.chosen(fields, "num_experts_per_tok", "num_local_experts", count, default=1)
    bias = fields.flag("attention_bias", False)
    routed = (
        build.linear("feed_forward.router", size.hidden, count),
        build.experts("feed_forward.experts", size.hidden, middle, count, chosen),
        *build.gated(size.hidden, middle, "feed_forward.shared_expert"),
    )

    def layer(has_experts: bool) -> Layer:
        dense = () if has_experts else _dense(fields, size)
        return (
            build.norm("input_layernorm", size.hidden),
            *build.attention(size, bias),
            build.norm("post_attention_layernorm", size.hidden),
            *(routed if has_experts else dense),
        )

    layers = build.mixed(_sparse(fields, size), layer)
    tied, activation = fields.flag("tie_word_embeddings", False), fields.text("hidden_act", "silu")
    return build.decoder("llama4_text", name, fields, size, layers, activation, tied=tied)


def _dense(fields: Fields, size: build.Sizes) -> Layer:
    return build.gated(size.hidden, fields.count("intermediate_size_mlp"), "feed_forward")


def _sparse(fields: Fields, size: build.Sizes) -> list[bool]:
    """Which layers have experts: those listed, else every so many."""
    step = fields.count("interleave_moe_layer_step", 1)
    listed = fields.places("moe_layers", size.layers)
    if listed:
        return [place in listed for place in range(size.layers)]
    return [bool(step) and (place + 1) % step == 0 for place in range(size.layers)]


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Attention, then the chosen and the shared expert, or a dense MLP: the mean over the layers.

    The modules send every token through every expert, those not chosen with zeros: the high end.
    """
    keep, hidden, function = Keep(precision, attention), model.d_model, model.activation_function
    heads, key_heads = model.attention_heads, model.key_value_heads
    query, key = heads * model.head_dim, key_heads * model.head_dim
    kept = (
        keep.rms_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(
            heads, key_heads, model.head_dim, rotated=1.0, copies=(query + key) * 8 / keep.element
        )
    )
    if model.has("feed_forward.experts"):
        experts = model.operator("feed_forward.experts")
        shared = model.operator("feed_forward.shared_expert.down_proj").in_features
        routed = keep.routed(hidden, experts, function, evaluated=experts.experts)
        routed += keep.gated(0, shared, function)
        kept += routed * (experts.count / model.layer_count)
    if model.has("feed_forward.down_proj"):
        dense = model.operator("feed_forward.down_proj")
        kept += keep.gated(hidden, dense.in_features, function) * (dense.count / model.layer_count)
    return kept.bytes


LLAMA4 = Family(_model, activation_bytes)
