"""Gemma, Gemma 2 and the text part of Gemma 3: weights of norms in fp32, wide heads, gated GELU.

From Gemma 2 on each half of a layer is normed before and after; Gemma 3 norms queries and keys.
"""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Layer, Model

_QUERY_KEY_NORMS = ("self_attn.q_norm", "self_attn.k_norm")


def _model(family: str, name: str, fields: Fields) -> Model:
    size = build.sizes(fields, key_value_required=True, head_dim=256)
    middle, bias = fields.count("intermediate_size"), fields.flag("attention_bias", False)
    layer = _layer(family, size, middle, bias)
    # An old key, which the gated GELU with tanh has replaced whatever it says.
    key = "hidden_act" if family == "gemma" else "hidden_activation"
    activation, tied = fields.text(key, "gelu_pytorch_tanh"), fields.flag("tie_word_embeddings", True)
    if fields.flag("use_bidirectional_attention", False):
        fields.unsupported(
            "use_bidirectional_attention", "Gemma as a decoder is supported, as an encoder not"
        )
    return build.decoder(
        family, name, fields, size, [build.stack(size.layers, *layer)], activation, tied=tied
    )


def _layer(family: str, size: build.Sizes, middle: int, bias: bool) -> Layer:
    query, key, value, output = build.attention(size, bias)
    normed = tuple(build.norm(name, size.head_dim) for name in _QUERY_KEY_NORMS)
    sandwich = family != "gemma"
    return (
        build.norm("input_layernorm", size.hidden),
        query,
        key,
        value,
        *(normed if family == "gemma3_text" else ()),
        output,
        build.norm("post_attention_layernorm", size.hidden),
        *((build.norm("pre_feedforward_layernorm", size.hidden),) if sandwich else ()),
        *build.gated(size.hidden, middle),
        *((build.norm("post_feedforward_layernorm", size.hidden),) if sandwich else ()),
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Llama's, with norms in fp32 throughout: two or four of them, and two over heads in Gemma 3.

    Gemma 2 caps its scores, which eager attention keeps: their tanh, and in place of nothing the
    capped ones.
    """
    keep, hidden, heads = Keep(precision, attention), model.d_model, model.attention_heads
    middle = model.operator("mlp.down_proj").in_features
    norms = 4 if model.has("pre_feedforward_layernorm") else 2
    kept = (
        keep.float_norm(*[hidden] * norms)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(
            heads,
            model.key_value_heads,
            model.head_dim,
            rotated=1.0,
            bias_scores=keep.element if model.family == "gemma2" else 0,
        )
        + keep.gated(hidden, middle, model.activation_function)
    )
    if model.has(_QUERY_KEY_NORMS[0]):
        kept += keep.float_norm(heads * model.head_dim, rows=heads)
        kept += keep.float_norm(model.key_value_heads * model.head_dim, rows=model.key_value_heads)
    return kept.bytes


def _family(family: str) -> Family:
    return Family(lambda name, fields: _model(family, name, fields), activation_bytes)


GEMMA = _family("gemma")
GEMMA2 = _family("gemma2")
GEMMA3 = _family("gemma3_text")
