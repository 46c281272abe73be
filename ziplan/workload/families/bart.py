"""BART: an encoder and a decoder, LayerNorms after each part, learned positions, biases everywhere."""

from __future__ import annotations

from dataclasses import replace

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Layer, Model, Section

EXTRA_POSITIONS = 2
"""Rows of the position tables before the first position."""

_SHARED = "encoder.embed_tokens"


def _model(name: str, fields: Fields) -> Model:
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
        fields.unsupported("tie_word_embeddings", "BART has one table for both stacks and the head")
    sections = [
        _before("encoder", size, None),
        build.stack(encoders, *_layer("encoder", hidden, fields.count("encoder_ffn_dim"))),
        _before("decoder", size, _SHARED),
        build.stack(decoders, *_layer("decoder", hidden, fields.count("decoder_ffn_dim"))),
        build.outside(build.linear("lm_head", hidden, size.vocabulary, tied_to=_SHARED)),
    ]
    whole = build.model("bart", name, fields, size, sections, fields.text("activation_function", "gelu"))
    attentions = encoders + 2 * decoders
    return replace(
        whole, attention_count=attentions, causal_share=decoders / attentions if attentions else 0.0
    )


def _before(stack: str, size: build.Sizes, tied_to: str | None) -> Section:
    rows = (size.positions or 0) + EXTRA_POSITIONS
    return build.outside(
        build.embedding(f"{stack}.embed_tokens", size.hidden, size.vocabulary, tied_to),
        build.embedding(f"{stack}.embed_positions", size.hidden, rows),
        build.norm(f"{stack}.layernorm_embedding", size.hidden, bias=True),
    )


def _layer(stack: str, hidden: int, middle: int) -> Layer:
    def attention(name: str) -> Layer:
        parts = ("q_proj", "k_proj", "v_proj", "out_proj")
        matrices = (build.linear(f"{stack}.{name}.{part}", hidden, hidden, bias=True) for part in parts)
        return (*matrices, build.norm(f"{stack}.{name}_layer_norm", hidden, bias=True))

    return (
        *attention("self_attn"),
        *(attention("encoder_attn") if stack == "decoder" else ()),
        build.linear(f"{stack}.fc1", hidden, middle, bias=True),
        build.linear(f"{stack}.fc2", middle, hidden, bias=True),
        build.norm(f"{stack}.final_layer_norm", hidden, bias=True),
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Attention once in an encoder's layer and twice in a decoder's, an MLP: the mean over the layers.

    A norm's output is the input of what follows and the residual, once.
    """
    keep, hidden, heads = Keep(precision, attention), model.d_model, model.attention_heads
    half = (
        keep.layer_norm(hidden)
        + keep.inputs(hidden)
        + keep.attention(heads, heads, model.head_dim, dropout=True, native_softmax=True)
        + keep.masks(hidden)
    )
    kept = half * (model.attentions / model.layer_count)
    for stack in ("encoder", "decoder"):
        matrix = model.operator(f"{stack}.fc1")
        mlp = keep.layer_norm(hidden) + keep.plain(hidden, matrix.out_features, model.activation_function)
        kept += (mlp + keep.masks(matrix.out_features, hidden)) * (matrix.count / model.layer_count)
    return kept.bytes


BART = Family(_model, activation_bytes)
