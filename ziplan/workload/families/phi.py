"""Phi-1 to Phi-2: one LayerNorm for attention and MLP side by side, biases everywhere."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Model

_ROTATED = 0.5
"""Share of each head that has rotary positions, by default (`partial_rotary_factor`)."""


def _model(name: str, fields: Fields) -> Model:
    size, middle = build.sizes(fields), fields.count("intermediate_size")
    if fields.flag("qk_layernorm", False):
        fields.unsupported("qk_layernorm", "norms over queries and keys are not supported for Phi")
    layer = (
        build.norm("input_layernorm", size.hidden, bias=True),
        *build.attention(size, bias=True, output="dense"),
        build.linear("mlp.fc1", size.hidden, middle, bias=True),
        build.linear("mlp.fc2", middle, size.hidden, bias=True),
    )
    sections = [
        build.outside(build.embedding("embed_tokens", size.hidden, size.vocabulary)),
        build.stack(size.layers, *layer),
        build.outside(
            build.norm("final_layernorm", size.hidden, bias=True),
            build.linear(
                "lm_head",
                size.hidden,
                size.vocabulary,
                bias=True,
                tied_to="embed_tokens" if fields.flag("tie_word_embeddings", False) else None,
            ),
        ),
    ]
    return build.model("phi", name, fields, size, sections, fields.text("hidden_act", "gelu_new"))


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """One norm's output is the input of attention and of the MLP; rotation covers part of each head."""
    keep, hidden = Keep(precision, attention), model.d_model
    return (
        keep.layer_norm(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(model.attention_heads, model.key_value_heads, model.head_dim, rotated=_ROTATED)
        + keep.plain(hidden, model.operator("mlp.fc1").out_features, model.activation_function)
        + keep.masks(hidden, hidden)
    ).bytes


PHI = Family(_model, activation_bytes)
