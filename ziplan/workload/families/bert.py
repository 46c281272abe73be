"""BERT, RoBERTa, XLM-RoBERTa with a masked-language head: LayerNorms after each half, learned positions."""

from __future__ import annotations

from dataclasses import replace

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Model, Section

_TABLE = "embeddings.word_embeddings"

_PADDING_ROWS = 2
"""RoBERTa's table counts positions from behind the padding token's, so two rows are of no position."""


def _model(family: str, name: str, fields: Fields) -> Model:
    size, middle = build.sizes(fields, grouped=False), fields.count("intermediate_size")
    rows = fields.count("max_position_embeddings")
    for key in ("add_cross_attention", "is_decoder"):
        if fields.flag(key, False):
            fields.unsupported(key, "as an encoder BERT is supported, as a decoder not")
    before = (
        build.embedding(_TABLE, size.hidden, size.vocabulary),
        build.embedding("embeddings.token_type_embeddings", size.hidden, fields.count("type_vocab_size", 2)),
        build.embedding("embeddings.position_embeddings", size.hidden, rows),
        build.norm("embeddings.LayerNorm", size.hidden, bias=True),
    )
    parts = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
    layer = (
        *(build.linear(part, size.hidden, size.hidden, bias=True) for part in parts),
        build.norm("attention.output.LayerNorm", size.hidden, bias=True),
        build.linear("intermediate.dense", size.hidden, middle, bias=True),
        build.linear("output.dense", middle, size.hidden, bias=True),
        build.norm("output.LayerNorm", size.hidden, bias=True),
    )
    if not fields.flag("tie_word_embeddings", True):
        fields.unsupported("tie_word_embeddings", "a head with a table of its own is not supported")
    sections = [build.outside(*before), build.stack(size.layers, *layer), _head(family, size)]
    if family != "bert":
        size = replace(size, positions=rows - _PADDING_ROWS)
    whole = build.model(family, name, fields, size, sections, fields.text("hidden_act", "gelu"))
    return replace(whole, causal_share=0.0)


def _head(family: str, size: build.Sizes) -> Section:
    prefix = "cls.predictions" if family == "bert" else "lm_head"
    dense, layer_norm = (
        ("transform.dense", "transform.LayerNorm") if family == "bert" else ("dense", "layer_norm")
    )
    return build.outside(
        build.linear(f"{prefix}.{dense}", size.hidden, size.hidden, bias=True),
        build.norm(f"{prefix}.{layer_norm}", size.hidden, bias=True),
        build.linear(f"{prefix}.decoder", size.hidden, size.vocabulary, bias=True, tied_to=_TABLE),
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """A norm's output is the input of what follows and the residual, once; three dropouts."""
    keep, hidden, heads = Keep(precision, attention), model.d_model, model.attention_heads
    return (
        keep.layer_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(heads, heads, model.head_dim, dropout=True, native_softmax=True)
        + keep.plain(hidden, model.operator("intermediate.dense").out_features, model.activation_function)
        + keep.masks(hidden, hidden)
    ).bytes


def _family(family: str) -> Family:
    return Family(lambda name, fields: _model(family, name, fields), activation_bytes)


BERT = _family("bert")
ROBERTA = _family("roberta")
XLM_ROBERTA = _family("xlm-roberta")
