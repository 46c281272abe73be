"""StableLM: Llama's layer with LayerNorms, rotary positions over part of each head."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Model

_ROTATED = 0.25
"""Share of each head that has rotary positions, by default (`partial_rotary_factor`)."""


def _model(name: str, fields: Fields) -> Model:
    size, middle = build.sizes(fields, key_value_required=True), fields.count("intermediate_size")
    if fields.flag("qk_layernorm", False):
        fields.unsupported("qk_layernorm", "norms over queries and keys are not supported for StableLM")
    parallel = fields.flag("use_parallel_residual", False)
    layer = (
        build.norm("input_layernorm", size.hidden, bias=True),
        *build.attention(size, fields.flag("use_qkv_bias", False), output_bias=False),
        *(() if parallel else (build.norm("post_attention_layernorm", size.hidden, bias=True),)),
        *build.gated(size.hidden, middle),
    )
    return build.decoder(
        "stablelm",
        name,
        fields,
        size,
        [build.stack(size.layers, *layer)],
        fields.text("hidden_act", "silu"),
        tied=fields.flag("tie_word_embeddings", False),
        final=build.norm("norm", size.hidden, bias=True),
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Norms and their outputs, a gated MLP, dropouts."""
    keep, hidden = Keep(precision, attention), model.d_model
    norms = 1 + model.has("post_attention_layernorm")
    return (
        keep.layer_norm(*[hidden] * norms)
        + keep.residuals(hidden, hidden)
        + keep.inputs(*[hidden] * (norms - 1))
        + keep.attention(
            model.attention_heads, model.key_value_heads, model.head_dim, rotated=_ROTATED, dropout=True
        )
        + keep.gated(hidden, model.operator("mlp.down_proj").in_features, model.activation_function)
        + keep.masks(hidden)
    ).bytes


STABLELM = Family(_model, activation_bytes)
