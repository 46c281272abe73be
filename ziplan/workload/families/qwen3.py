"""Qwen3: Llama's layer with an RMSNorm over each head of queries and keys."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Layer, Model


def normed_attention(size: build.Sizes, bias: bool, output_bias: bool | None = None) -> Layer:
    """Queries and keys are normed as they come."""
    query, key, value, output = build.attention(size, bias, output_bias)
    norms = (build.norm("self_attn.q_norm", size.head_dim), build.norm("self_attn.k_norm", size.head_dim))
    return query, norms[0], key, norms[1], value, output


def _model(name: str, fields: Fields) -> Model:
    size = build.sizes(fields, key_value_required=True, head_dim=128)
    layer = (
        build.norm("input_layernorm", size.hidden),
        *normed_attention(size, fields.flag("attention_bias", False)),
        build.norm("post_attention_layernorm", size.hidden),
        *build.gated(size.hidden, fields.count("intermediate_size")),
    )
    tied, activation = fields.flag("tie_word_embeddings", False), fields.text("hidden_act", "silu")
    return build.decoder(
        "qwen3", name, fields, size, [build.stack(size.layers, *layer)], activation, tied=tied
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Llama's, and the norms' inputs: queries and keys before they are normed and after."""
    keep, hidden = Keep(precision, attention), model.d_model
    query, key = model.attention_heads * model.head_dim, model.key_value_heads * model.head_dim
    middle = model.operator("mlp.down_proj").in_features
    return (
        keep.rms_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.rms_norm(query, rows=model.attention_heads)
        + keep.rms_norm(key, rows=model.key_value_heads)
        + keep.attention(model.attention_heads, model.key_value_heads, model.head_dim, rotated=1.0)
        + keep.gated(hidden, middle, model.activation_function)
    ).bytes


QWEN3 = Family(_model, activation_bytes)
