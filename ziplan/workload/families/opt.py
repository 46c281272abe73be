"""OPT: LayerNorm, learned positions with two rows more, biases everywhere, plain MLP with ReLU."""

from __future__ import annotations

from dataclasses import replace

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Layer, Model, Operator

EXTRA_POSITIONS = 2
"""Rows of the position table before the first position."""


def _model(name: str, fields: Fields) -> Model:
    size, middle = build.sizes(fields, grouped=False), fields.count("ffn_dim")
    table = fields.count("word_embed_proj_dim", size.hidden)
    norms_first = fields.flag("do_layer_norm_before", True)
    layer = _layer(
        size,
        middle,
        bias=fields.flag("enable_bias", True),
        affine=fields.flag("layer_norm_elementwise_affine", True),
        norms_first=norms_first,
    )
    affine = fields.flag("layer_norm_elementwise_affine", True)
    final = norms_first and affine and not fields.flag("_remove_final_layer_norm", False)
    tied = "decoder.embed_tokens" if fields.flag("tie_word_embeddings", True) else None
    projected = table != size.hidden
    before = (
        build.embedding("decoder.embed_tokens", table, size.vocabulary),
        build.embedding("decoder.embed_positions", size.hidden, (size.positions or 2048) + EXTRA_POSITIONS),
        *((build.linear("decoder.project_in", table, size.hidden),) if projected else ()),
    )
    after = (
        *((build.norm("decoder.final_layer_norm", size.hidden, bias=True),) if final else ()),
        *((build.linear("decoder.project_out", size.hidden, table),) if projected else ()),
        build.linear("lm_head", table, size.vocabulary, tied_to=tied),
    )
    size = replace(size, positions=size.positions or 2048)
    sections = [build.outside(*before), build.stack(size.layers, *layer), build.outside(*after)]
    return build.model("opt", name, fields, size, sections, fields.text("activation_function", "relu"))


def _layer(size: build.Sizes, middle: int, *, bias: bool, affine: bool, norms_first: bool) -> Layer:
    attention: Layer = build.attention(size, bias, output="out_proj")
    mlp: Layer = (
        build.linear("fc1", size.hidden, middle, bias),
        build.linear("fc2", middle, size.hidden, bias),
    )
    names = ("self_attn_layer_norm", "final_layer_norm")
    norms: list[tuple[Operator, ...]] = [
        (build.norm(name, size.hidden, bias=True),) if affine else () for name in names
    ]
    first, second = norms
    return (*first, *attention, *second, *mlp) if norms_first else (*attention, *first, *mlp, *second)


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Two norms and their outputs, a plain MLP, three dropouts; ReLU keeps its output, fc2's input."""
    keep, hidden = Keep(precision, attention), model.d_model
    middle = model.operator("fc1").out_features
    function = model.activation_function
    mlp = (
        keep.inputs(hidden) + keep.output_function(middle)
        if function == "relu"
        else keep.plain(hidden, middle, function)
    )
    return (
        keep.layer_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(model.attention_heads, model.key_value_heads, model.head_dim, dropout=True)
        + mlp
        + keep.masks(hidden, hidden)
    ).bytes


OPT = Family(_model, activation_bytes)
