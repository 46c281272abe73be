"""GPT-Neo: GPT-2's layer with queries, keys and values in matrices of their own, which have no biases."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Model


def _model(name: str, fields: Fields) -> Model:
    hidden, heads = fields.count("hidden_size"), fields.count("num_heads")
    positions = fields.count("max_position_embeddings", 2048)
    size = build.Sizes(
        layers=fields.count("num_layers"),
        hidden=hidden,
        vocabulary=fields.count("vocab_size"),
        heads=heads,
        key_value_heads=heads,
        head_dim=build.even_heads(fields, hidden, heads, ("num_heads", "hidden_size")),
        positions=positions,
    )
    middle = fields.count("intermediate_size", 4 * hidden)
    attention = (
        *(build.linear(f"attn.attention.{part}_proj", hidden, hidden) for part in "qkv"),
        build.linear("attn.attention.out_proj", hidden, hidden, bias=True),
    )
    tied = fields.flag("tie_word_embeddings", True)
    sections = build.gpt(size, positions, middle, attention, tied)
    function = fields.text("activation_function", "gelu_new")
    return build.model("gpt_neo", name, fields, size, sections, function)


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Two norms and their outputs, a plain MLP, dropouts; written out, scores are taken in fp32."""
    keep, hidden = Keep(precision, attention), model.d_model
    in_fp32 = 0 if keep.flash else 2 * hidden * (4 / keep.element - 1)
    middle = model.operator("mlp.c_fc").out_features
    return (
        keep.layer_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(
            model.attention_heads, model.key_value_heads, model.head_dim, dropout=True, copies=in_fp32
        )
        + keep.plain(hidden, middle, model.activation_function)
        + keep.masks(hidden, hidden)
    ).bytes


GPT_NEO = Family(_model, activation_bytes)
