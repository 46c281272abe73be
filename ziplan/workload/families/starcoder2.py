"""StarCoder2: LayerNorm, rotary positions, biases everywhere, plain MLP."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Model


def _model(name: str, fields: Fields) -> Model:
    size, middle = build.sizes(fields, key_value_required=True), fields.count("intermediate_size")
    bias = fields.flag("use_bias", True)
    layer = (
        build.norm("input_layernorm", size.hidden, bias=True),
        *build.attention(size, bias),
        build.norm("post_attention_layernorm", size.hidden, bias=True),
        build.linear("mlp.c_fc", size.hidden, middle, bias),
        build.linear("mlp.c_proj", middle, size.hidden, bias),
    )
    return build.decoder(
        "starcoder2",
        name,
        fields,
        size,
        [build.stack(size.layers, *layer)],
        fields.text("hidden_act", "gelu_pytorch_tanh"),
        tied=fields.flag("tie_word_embeddings", True),
        final=build.norm("norm", size.hidden, bias=True),
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Two norms and their outputs, a plain MLP, three dropouts."""
    keep, hidden = Keep(precision, attention), model.d_model
    return (
        keep.layer_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(
            model.attention_heads, model.key_value_heads, model.head_dim, rotated=1.0, dropout=True
        )
        + keep.plain(hidden, model.operator("mlp.c_fc").out_features, model.activation_function)
        + keep.masks(hidden, hidden)
    ).bytes


STARCODER2 = Family(_model, activation_bytes)
