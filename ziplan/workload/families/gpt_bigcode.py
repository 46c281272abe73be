"""GPTBigCode (StarCoder, SantaCoder): GPT-2 with one key-value head for all, where the config says so."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Model


def _model(name: str, fields: Fields) -> Model:
    hidden, heads = fields.count("n_embd"), fields.count("n_head")
    positions = fields.count("n_positions")
    size = build.Sizes(
        layers=fields.count("n_layer"),
        hidden=hidden,
        vocabulary=fields.count("vocab_size"),
        heads=heads,
        key_value_heads=1 if fields.flag("multi_query", True) else heads,
        head_dim=build.even_heads(fields, hidden, heads, ("n_head", "n_embd")),
        positions=positions,
    )
    if fields.flag("add_cross_attention", False):
        fields.unsupported("add_cross_attention", "cross-attention is not supported, decoder-only models are")
    middle = fields.count("n_inner", 4 * hidden)
    attention = (
        build.linear("attn.c_attn", hidden, size.query + 2 * size.key_value, bias=True),
        build.linear("attn.c_proj", hidden, hidden, bias=True),
    )
    tied = fields.flag("tie_word_embeddings", True)
    sections = build.gpt(size, positions, middle, attention, tied)
    function = fields.text("activation_function", "gelu_pytorch_tanh")
    return build.model("gpt_bigcode", name, fields, size, sections, function)


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Two norms and their outputs, a plain MLP, dropouts; parts of the fused projection are views of it."""
    keep, hidden = Keep(precision, attention), model.d_model
    middle = model.operator("mlp.c_fc").out_features
    heads, key_heads, width = model.attention_heads, model.key_value_heads, model.head_dim
    # With a key head for every head, the parts are copied out of the projection.
    copies = 0 if key_heads == 1 else 3 * hidden
    return (
        keep.layer_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(heads, key_heads, width, dropout=True, copies=copies)
        + keep.joined(hidden, 2 * key_heads * width)
        + keep.plain(hidden, middle, model.activation_function)
        + keep.masks(hidden, hidden)
    ).bytes


GPT_BIGCODE = Family(_model, activation_bytes)
