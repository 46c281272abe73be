"""GPT-NeoX and Pythia: LayerNorm, rotary positions, one matrix for queries, keys and values."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Model

_ROTATED = 0.25
"""Share of each head that has rotary positions, by default (`rotary_pct`)."""


def _model(name: str, fields: Fields) -> Model:
    size, middle = build.sizes(fields, grouped=False), fields.count("intermediate_size")
    bias = fields.flag("attention_bias", True)
    layer = (
        build.norm("input_layernorm", size.hidden, bias=True),
        build.linear("attention.query_key_value", size.hidden, 3 * size.hidden, bias),
        build.linear("attention.dense", size.hidden, size.hidden, bias),
        build.norm("post_attention_layernorm", size.hidden, bias=True),
        build.linear("mlp.dense_h_to_4h", size.hidden, middle, bias=True),
        build.linear("mlp.dense_4h_to_h", middle, size.hidden, bias=True),
    )
    tied = "embed_in" if fields.flag("tie_word_embeddings", False) else None
    sections = [
        build.outside(build.embedding("embed_in", size.hidden, size.vocabulary)),
        build.stack(size.layers, *layer),
        build.outside(
            build.norm("final_layer_norm", size.hidden, bias=True),
            build.linear("lm_head", size.hidden, size.vocabulary, tied_to=tied),
        ),
    ]
    return build.model("gpt_neox", name, fields, size, sections, fields.text("hidden_act", "gelu"))


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Two norms and their outputs, a plain MLP, three dropouts; values keep the fused projection whole.

    Both norms take the same input unless the halves come one after the other (the high end).
    """
    keep, hidden = Keep(precision, attention), model.d_model
    return (
        keep.layer_norm(hidden, beside=hidden)
        + keep.eager_only(hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(
            model.attention_heads,
            model.key_value_heads,
            model.head_dim,
            rotated=_ROTATED,
            dropout=True,
            copies=2 * hidden,
        )
        + keep.joined(3 * hidden)
        + keep.plain(hidden, model.operator("mlp.dense_h_to_4h").out_features, model.activation_function)
        + keep.masks(hidden, hidden)
    ).bytes


GPT_NEOX = Family(_model, activation_bytes)
