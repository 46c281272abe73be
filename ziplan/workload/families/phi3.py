"""Phi-3 and Phi-4: Llama's layer with queries, keys and values in one matrix, gate and up in another."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Model


def _model(name: str, fields: Fields) -> Model:
    size, middle = build.sizes(fields), fields.count("intermediate_size")
    layer = (
        build.norm("input_layernorm", size.hidden),
        build.linear("self_attn.qkv_proj", size.hidden, size.query + 2 * size.key_value),
        build.linear("self_attn.o_proj", size.query, size.hidden),
        build.norm("post_attention_layernorm", size.hidden),
        build.linear("mlp.gate_up_proj", size.hidden, 2 * middle),
        build.linear("mlp.down_proj", middle, size.hidden),
    )
    tied, activation = fields.flag("tie_word_embeddings", False), fields.text("hidden_act", "silu")
    return build.decoder(
        "phi3", name, fields, size, [build.stack(size.layers, *layer)], activation, tied=tied
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Llama's. Values are a part of the fused projection, which stays whole as long as they do.

    Two dropouts add a mask each where the config asks for them; by default it does not.
    """
    keep, hidden = Keep(precision, attention), model.d_model
    query, key = model.attention_heads * model.head_dim, model.key_value_heads * model.head_dim
    return (
        keep.rms_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(
            model.attention_heads, model.key_value_heads, model.head_dim, rotated=1.0, copies=query + key
        )
        + keep.cut(query, key)
        + keep.joined(query, key, key)
        + keep.joined(2 * model.operator("mlp.down_proj").in_features)
        + keep.gated(hidden, model.operator("mlp.down_proj").in_features, model.activation_function)
    ).bytes


PHI3 = Family(_model, activation_bytes)
