"""MPT: LayerNorms without biases, positions by ALiBi, queries, keys and values in one matrix, plain MLP."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Model


def _model(name: str, fields: Fields) -> Model:
    hidden, heads = fields.count("d_model"), fields.count("n_heads")
    size = build.Sizes(
        layers=fields.count("n_layers"),
        hidden=hidden,
        vocabulary=fields.count("vocab_size"),
        heads=heads,
        key_value_heads=heads,
        head_dim=build.even_heads(fields, hidden, heads, ("n_heads", "d_model")),
    )
    layer = (
        build.norm("norm_1", hidden),
        build.linear("attn.Wqkv", hidden, 3 * hidden),
        build.linear("attn.out_proj", hidden, hidden),
        build.norm("norm_2", hidden),
        build.linear("ffn.up_proj", hidden, 4 * hidden),
        build.linear("ffn.down_proj", 4 * hidden, hidden),
    )
    tied = "wte" if fields.flag("tie_word_embeddings", True) else None
    sections = [
        build.outside(build.embedding("wte", hidden, size.vocabulary)),
        build.stack(size.layers, *layer),
        build.outside(
            build.norm("norm_f", hidden), build.linear("lm_head", hidden, size.vocabulary, tied_to=tied)
        ),
    ]
    return build.model("mpt", name, fields, size, sections, "gelu")


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Two norms and their outputs, a plain MLP, two dropouts; parts of the fused projection are copied."""
    keep, hidden = Keep(precision, attention), model.d_model
    return (
        keep.layer_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(model.attention_heads, model.key_value_heads, model.head_dim, dropout=True)
        + keep.joined(3 * hidden)
        + keep.plain(hidden, 4 * hidden, model.activation_function)
        + keep.masks(hidden, hidden)
    ).bytes


MPT = Family(_model, activation_bytes)
