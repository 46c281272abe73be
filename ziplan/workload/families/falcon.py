"""Falcon: attention and MLP side by side, one key-value head (7B) or a few (40B, 180B), no biases."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep, Kept
from ziplan.workload.model import ActivationBytes, Layer, Model
from ziplan.workload.passes import Passes

_FUSED = "self_attention.query_key_value"


def _model(name: str, fields: Fields) -> Model:
    hidden_key = fields.named("hidden_size", "n_embed")
    layer_key, head_key = (
        fields.named("num_hidden_layers", "n_layer"),
        fields.named("num_attention_heads", "n_head"),
    )
    hidden, heads = fields.count(hidden_key), fields.count(head_key)
    alibi = fields.flag("alibi", False)
    size = build.Sizes(
        layers=fields.count(layer_key),
        hidden=hidden,
        vocabulary=fields.count("vocab_size"),
        heads=heads,
        key_value_heads=_key_value_heads(fields, heads),
        head_dim=build.even_heads(fields, hidden, heads, (head_key, hidden_key)),
        positions=None if alibi else fields.count("max_position_embeddings", 2048),
    )
    layer = _layer(fields, size, fields.count("ffn_hidden_size", 4 * hidden))
    tied = "word_embeddings" if fields.flag("tie_word_embeddings", True) else None
    sections = [
        build.outside(build.embedding("word_embeddings", hidden, size.vocabulary)),
        build.stack(size.layers, *layer),
        build.outside(
            build.norm("ln_f", hidden, bias=True),
            build.linear("lm_head", hidden, size.vocabulary, tied_to=tied),
        ),
    ]
    return build.model("falcon", name, fields, size, sections, fields.text("activation", "gelu"))


def _key_value_heads(fields: Fields, heads: int) -> int:
    """The 40B kind states how many; before it there was one, or one for every head."""
    key = fields.named("num_kv_heads", "n_head_kv")
    if not fields.flag("new_decoder_architecture", False):
        return 1 if fields.flag("multi_query", True) else heads
    count = fields.count(key, heads)
    fields.divides(key, count, "num_attention_heads", heads)
    return count


def _layer(fields: Fields, size: build.Sizes, middle: int) -> Layer:
    bias, parallel = fields.flag("bias", False), fields.flag("parallel_attn", True)
    new = fields.flag("new_decoder_architecture", False)
    if new and not parallel:
        fields.unsupported(
            "parallel_attn", "with the new decoder architecture attention and MLP are parallel"
        )
    two = fields.count("num_ln_in_parallel_attn", 2 if new else 1) == 2
    attention = (
        build.linear(_FUSED, size.hidden, size.query + 2 * size.key_value, bias),
        build.linear("self_attention.dense", size.query, size.hidden, bias),
    )
    mlp = (
        build.linear("mlp.dense_h_to_4h", size.hidden, middle, bias),
        build.linear("mlp.dense_4h_to_h", middle, size.hidden, bias),
    )

    def norm(name: str) -> Layer:
        return (build.norm(name, size.hidden, bias=True),)

    if not parallel:
        return (*norm("input_layernorm"), *attention, *norm("post_attention_layernorm"), *mlp)
    before = (*norm("ln_attn"), *norm("ln_mlp")) if new and two else norm("input_layernorm")
    return (*before, *attention, *mlp)


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """One norm's output, or two's, a plain MLP, dropouts; keys and values repeated for all heads.

    Two norms side by side have one input. Values keep the fused projection whole, which the
    modules spread over all heads first. Only with ALiBi is there dropout inside attention; one
    follows each part that is added to the residual, or both parts at once.
    """
    keep, hidden, heads = Keep(precision, attention), model.d_model, model.attention_heads
    side_by_side = not model.has("post_attention_layernorm")
    key = model.key_value_heads * model.head_dim
    with_alibi = model.max_sequence_length is None
    norms = 1 + (model.has("ln_mlp") or not side_by_side)
    return (
        _norms(keep, hidden, norms, side_by_side)
        + keep.inputs(*[hidden] * (norms - 1))
        + keep.residuals(hidden, hidden)
        + (_spread(keep, model) if model.has("ln_attn") else keep.joined(hidden, 2 * key))
        + keep.attention(
            heads,
            model.key_value_heads,
            model.head_dim,
            dropout=with_alibi,
            native_softmax=True,
            copies=3 * hidden,
        )
        + (Kept() if with_alibi else keep.rotary(hidden, hidden if model.has("ln_attn") else key))
        + keep.plain(hidden, model.operator("mlp.dense_h_to_4h").out_features, model.activation_function)
        + keep.masks(*[hidden] * (1 if side_by_side else 2))
    ).bytes


def _spread(keep: Keep, model: Model) -> Kept:
    """Keys and values of the fused projection copied for all heads, and queries beside them.

    In backward they are summed over heads, and each part is written into zeros of the whole and added.
    """
    query = keep.element * model.d_model
    whole = query + 2 * keep.element * model.key_value_heads * model.head_dim
    moves = Passes(4 * query + 2 * whole, 4 * query + 11 * whole, 5, 12)
    return Kept(fused=Passes(2 * whole, 2 * whole, 1, 1), written=moves)


def _norms(keep: Keep, hidden: int, norms: int, side_by_side: bool) -> Kept:
    """Two norms side by side have one input."""
    if norms == 2 and side_by_side:
        return keep.layer_norm(hidden, beside=hidden)
    return keep.layer_norm(*[hidden] * norms)


FALCON = Family(_model, activation_bytes)
