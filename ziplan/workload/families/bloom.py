"""BLOOM: LayerNorm also over the embedding, positions by ALiBi, biases everywhere, plain MLP."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.families.moved import BLOOM_GELU
from ziplan.workload.model import ActivationBytes, Model


def _model(name: str, fields: Fields) -> Model:
    width, layers = fields.named("hidden_size", "n_embed"), fields.named("n_layer", "num_hidden_layers")
    head_key = fields.named("n_head", "num_attention_heads")
    hidden, heads = fields.count(width), fields.count(head_key)
    size = build.Sizes(
        layers=fields.count(layers),
        hidden=hidden,
        vocabulary=fields.count("vocab_size"),
        heads=heads,
        key_value_heads=heads,
        head_dim=build.even_heads(fields, hidden, heads, (head_key, width)),
    )
    layer = (
        build.norm("input_layernorm", hidden, bias=True),
        build.linear("self_attention.query_key_value", hidden, 3 * hidden, bias=True),
        build.linear("self_attention.dense", hidden, hidden, bias=True),
        build.norm("post_attention_layernorm", hidden, bias=True),
        build.linear("mlp.dense_h_to_4h", hidden, 4 * hidden, bias=True),
        build.linear("mlp.dense_4h_to_h", 4 * hidden, hidden, bias=True),
    )
    tied = "word_embeddings" if fields.flag("tie_word_embeddings", True) else None
    sections = [
        build.outside(
            build.embedding("word_embeddings", hidden, size.vocabulary),
            build.norm("word_embeddings_layernorm", hidden, bias=True),
        ),
        build.stack(size.layers, *layer),
        build.outside(
            build.norm("ln_f", hidden, bias=True),
            build.linear("lm_head", hidden, size.vocabulary, tied_to=tied),
        ),
    ]
    return build.model("bloom", name, fields, size, sections, "gelu_pytorch_tanh")


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Two norms and their outputs, a plain MLP, three dropouts; no kernel reorders its output.

    Only eager attention exists, which adds ALiBi's bias to the scores: the fused projection
    stays whole, and copies of queries and keys with it.
    """
    keep, hidden = Keep(precision, attention), model.d_model
    return (
        keep.layer_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(
            model.attention_heads, model.key_value_heads, model.head_dim, dropout=True, copies=3 * hidden
        )
        + keep.joined(3 * hidden)
        + keep.plain(hidden, 4 * hidden, model.activation_function, BLOOM_GELU)
        + keep.masks(hidden, hidden)
    ).bytes


BLOOM = Family(_model, activation_bytes)
