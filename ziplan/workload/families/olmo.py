"""OLMo (norms without weights), OLMo 2 and 3 (norms after each half, and over queries and keys)."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build, moved
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep, Kept
from ziplan.workload.model import ActivationBytes, Layer, Model


def _model(family: str, name: str, fields: Fields) -> Model:
    size, middle = build.sizes(fields), fields.count("intermediate_size")
    bias, tied = fields.flag("attention_bias", False), fields.flag("tie_word_embeddings", False)
    activation = fields.text("hidden_act", "silu")
    if family != "olmo":
        layers = [build.stack(size.layers, *_normed_after(size, middle, bias))]
        return build.decoder(family, name, fields, size, layers, activation, tied=tied)
    layer = (*build.attention(size, bias), *build.gated(size.hidden, middle))
    head = build.linear("lm_head", size.hidden, size.vocabulary, tied_to="embed_tokens" if tied else None)
    sections = [
        build.outside(build.embedding("embed_tokens", size.hidden, size.vocabulary)),
        build.stack(size.layers, *layer),
        build.outside(head),
    ]
    return build.model(family, name, fields, size, sections, activation)


def _normed_after(size: build.Sizes, middle: int, bias: bool) -> Layer:
    query, key, value, output = build.attention(size, bias)
    return (
        query,
        build.norm("self_attn.q_norm", size.query),
        key,
        build.norm("self_attn.k_norm", size.key_value),
        value,
        output,
        build.norm("post_attention_layernorm", size.hidden),
        *build.gated(size.hidden, middle),
        build.norm("post_feedforward_layernorm", size.hidden),
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """OLMo's norms are LayerNorms in fp32; from OLMo 2 on queries and keys are normed over all heads."""
    keep, hidden = Keep(precision, attention), model.d_model
    query, key = model.attention_heads * model.head_dim, model.key_value_heads * model.head_dim
    middle = model.operator("mlp.down_proj").in_features
    kept = (
        keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(model.attention_heads, model.key_value_heads, model.head_dim)
        + keep.rotary_in_fp32(query, key)
        + keep.gated(hidden, middle, model.activation_function)
    )
    if model.family != "olmo":
        return (kept + keep.float_norm(hidden, hidden, query, key)).bytes
    # An eager LayerNorm in fp32 keeps a copy of its input in fp32.
    norms = keep.inputs(hidden, hidden) + Kept(16, 16) + keep.eager_only(*[hidden * 4 / keep.element] * 2)
    moves = Kept(
        fused=moved.layer_norm(keep.element, (hidden, hidden)),
        written=moved.float_layer_norm(keep.element, (hidden, hidden), written_out=False),
    )
    return (kept + norms + moves).bytes


def _family(family: str) -> Family:
    return Family(lambda name, fields: _model(family, name, fields), activation_bytes)


OLMO = _family("olmo")
OLMO2 = _family("olmo2")
OLMO3 = _family("olmo3")
