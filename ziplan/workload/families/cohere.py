"""Cohere's Command R: one LayerNorm without bias for attention and gated MLP side by side."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build, moved
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep, Kept
from ziplan.workload.model import ActivationBytes, Layer, Model

_NORMS = ("self_attn.q_norm", "self_attn.k_norm")


def _model(family: str, name: str, fields: Fields) -> Model:
    size = build.sizes(fields)
    normed = family == "cohere" and fields.flag("use_qk_norm", False)
    layer = (
        build.norm("input_layernorm", size.hidden),
        *_attention(size, fields.flag("attention_bias", False), normed),
        *build.gated(size.hidden, fields.count("intermediate_size")),
    )
    tied, activation = fields.flag("tie_word_embeddings", True), fields.text("hidden_act", "silu")
    return build.decoder(
        family, name, fields, size, [build.stack(size.layers, *layer)], activation, tied=tied
    )


def _attention(size: build.Sizes, bias: bool, normed: bool) -> Layer:
    """With norms over each head, every head has weights of its own: a table of heads x width."""
    query, key, value, output = build.attention(size, bias)
    if not normed:
        return query, key, value, output
    norms = (build.norm(_NORMS[0], size.query), build.norm(_NORMS[1], size.key_value))
    return query, key, value, *norms, output


def _norm(keep: Keep, width: float, rows: float = 1) -> Kept:
    """A LayerNorm written out in fp32: the centered input twice and the normalized values."""
    fused = keep.element * width + 8 * rows
    return Kept(
        fused,
        12 * width + 8 * rows,
        fused=moved.layer_norm(keep.element, (width,)),
        written=moved.float_layer_norm(keep.element, (width,), written_out=True),
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """One norm's output feeds attention and MLP."""
    keep, hidden, heads = Keep(precision, attention), model.d_model, model.attention_heads
    kept = (
        _norm(keep, hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(heads, model.key_value_heads, model.head_dim)
        + keep.rotary_in_fp32(heads * model.head_dim, model.key_value_heads * model.head_dim, throughout=True)
        + keep.gated(hidden, model.operator("mlp.down_proj").in_features, model.activation_function)
    )
    if model.has(_NORMS[0]):
        kept += _norm(keep, heads * model.head_dim, heads)
        kept += _norm(keep, model.key_value_heads * model.head_dim, model.key_value_heads)
    return kept.bytes


def _family(family: str) -> Family:
    return Family(lambda name, fields: _model(family, name, fields), activation_bytes)


COHERE = _family("cohere")
COHERE2 = _family("cohere2")
