"""BART, mBART, M2M-100 (NLLB) and Blenderbot: an encoder and a decoder with biases everywhere.

BART has its LayerNorms after each part, the others before, and one more after each stack.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep, Kept
from ziplan.workload.model import ActivationBytes, Layer, Model, Operator, Section


class _Kind(NamedTuple):
    """What families differ in: rows of the position tables before the first one, None without tables."""

    norms_first: bool
    extra_positions: int | None
    normed_embedding: bool
    function: str = "gelu"


_KINDS = {
    "bart": _Kind(False, 2, True),
    "mbart": _Kind(True, 2, True),
    "m2m_100": _Kind(True, None, False, "relu"),
    "blenderbot": _Kind(True, 0, False),
}
_SHARED = "encoder.embed_tokens"


def _model(family: str, name: str, fields: Fields) -> Model:
    hidden, heads = fields.count("d_model"), fields.count("encoder_attention_heads")
    other = fields.count("decoder_attention_heads")
    fields.divides("decoder_attention_heads", other, "d_model", hidden)
    if heads and other and heads != other:
        fields.unsupported(
            "decoder_attention_heads", "encoder and decoder with unequal heads are not supported"
        )
    encoders, decoders = fields.count("encoder_layers"), fields.count("decoder_layers")
    size = build.Sizes(
        layers=encoders + decoders,
        hidden=hidden,
        vocabulary=fields.count("vocab_size"),
        heads=heads,
        key_value_heads=heads,
        head_dim=build.even_heads(fields, hidden, heads, ("encoder_attention_heads", "d_model")),
        positions=fields.count("max_position_embeddings"),
    )
    if not fields.flag("tie_word_embeddings", True):
        fields.unsupported("tie_word_embeddings", "there is one table for both stacks and the head")
    kind = _KINDS[family]
    sections = [
        _before("encoder", size, kind, None),
        build.stack(encoders, *_layer("encoder", hidden, fields.count("encoder_ffn_dim"), kind)),
        *_after("encoder", hidden, kind),
        _before("decoder", size, kind, _SHARED),
        build.stack(decoders, *_layer("decoder", hidden, fields.count("decoder_ffn_dim"), kind)),
        *_after("decoder", hidden, kind),
        build.outside(build.linear("lm_head", hidden, size.vocabulary, tied_to=_SHARED)),
    ]
    whole = build.model(
        family, name, fields, size, sections, fields.text("activation_function", kind.function)
    )
    attentions = encoders + 2 * decoders
    return replace(
        whole, attention_count=attentions, causal_share=decoders / attentions if attentions else 0.0
    )


def _before(stack: str, size: build.Sizes, kind: _Kind, tied_to: str | None) -> Section:
    parts = [build.embedding(f"{stack}.embed_tokens", size.hidden, size.vocabulary, tied_to)]
    if kind.extra_positions is not None:
        rows = (size.positions or 0) + kind.extra_positions
        parts.append(build.embedding(f"{stack}.embed_positions", size.hidden, rows))
    if kind.normed_embedding:
        parts.append(build.norm(f"{stack}.layernorm_embedding", size.hidden, bias=True))
    return build.outside(*parts)


def _after(stack: str, hidden: int, kind: _Kind) -> list[Section]:
    norm = build.norm(f"{stack}.layer_norm", hidden, bias=True)
    return [build.outside(norm)] if kind.norms_first else []


def _layer(stack: str, hidden: int, middle: int, kind: _Kind) -> Layer:
    def normed(name: str, *parts: Operator) -> Layer:
        norm = build.norm(f"{stack}.{name}", hidden, bias=True)
        return (norm, *parts) if kind.norms_first else (*parts, norm)

    def attention(name: str) -> Layer:
        parts = ("q_proj", "k_proj", "v_proj", "out_proj")
        matrices = (build.linear(f"{stack}.{name}.{part}", hidden, hidden, bias=True) for part in parts)
        return normed(f"{name}_layer_norm", *matrices)

    return (
        *attention("self_attn"),
        *(attention("encoder_attn") if stack == "decoder" else ()),
        *normed(
            "final_layer_norm",
            build.linear(f"{stack}.fc1", hidden, middle, bias=True),
            build.linear(f"{stack}.fc2", middle, hidden, bias=True),
        ),
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Attention once in an encoder's layer and twice in a decoder's, an MLP: the mean over the layers.

    A norm's output is the input of what follows and, after a part, the residual, once.
    """
    keep, hidden, heads = Keep(precision, attention), model.d_model, model.attention_heads
    half = (
        keep.layer_norm(hidden)
        + keep.inputs(hidden)
        + keep.attention(heads, heads, model.head_dim, dropout=True, native_softmax=True)
        + keep.masks(hidden)
        + keep.residuals(hidden)
    )
    kept = half * (model.attentions / model.layer_count)
    for stack in ("encoder", "decoder"):
        matrix = model.operator(f"{stack}.fc1")
        mlp = keep.layer_norm(hidden) + _mlp(keep, hidden, matrix.out_features, model.activation_function)
        kept += (mlp + keep.masks(matrix.out_features, hidden) + keep.residuals(hidden)) * (
            matrix.count / model.layer_count
        )
    return kept.bytes


def _mlp(keep: Keep, hidden: int, middle: int, function: str) -> Kept:
    """ReLU keeps its output, which is the input of what follows unless dropout stands between."""
    if function == "relu":
        return keep.inputs(hidden) + keep.output_function(middle) + keep.eager_only(middle)
    return keep.plain(hidden, middle, function)


def _family(family: str) -> Family:
    return Family(lambda name, fields: _model(family, name, fields), activation_bytes)


BART = _family("bart")
MBART = _family("mbart")
M2M_100 = _family("m2m_100")
BLENDERBOT = _family("blenderbot")
