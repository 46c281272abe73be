"""Llama and what is built like it (Mistral, Qwen2, Granite, SmolLM3): RMSNorm, rotary positions, gated MLP.

They differ in which linears have a bias and in what their configs leave out.
"""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Layer, Model

_STATES_BIASES = ("llama", "granite", "smollm3")
"""Families whose configs say which linears have a bias; they may leave the key-value heads out, too."""


def _model(family: str, name: str, fields: Fields) -> Model:
    # Elsewhere an absent number of key-value heads means a fixed one.
    size = build.sizes(fields, key_value_required=family in ("mistral", "qwen2", "smollm3"))
    stated = family in _STATES_BIASES
    layer = _layer(
        size,
        fields.count("intermediate_size"),
        attention_bias=fields.flag("attention_bias", False) if stated else family == "qwen2",
        output_bias=fields.flag("attention_bias", False) if stated else False,
        mlp_bias=fields.flag("mlp_bias", False) if stated else False,
    )
    tied = fields.flag("tie_word_embeddings", family == "smollm3")
    activation = fields.text("hidden_act", "silu")
    return build.decoder(
        family, name, fields, size, [build.stack(size.layers, *layer)], activation, tied=tied
    )


def _layer(
    size: build.Sizes, middle: int, *, attention_bias: bool, output_bias: bool, mlp_bias: bool
) -> Layer:
    """In the order of forward."""
    return (
        build.norm("input_layernorm", size.hidden),
        *build.attention(size, attention_bias, output_bias),
        build.norm("post_attention_layernorm", size.hidden),
        *build.gated(size.hidden, middle, bias=mlp_bias),
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """What one layer keeps for backward, per token, operator by operator.

    With e bytes an element, h the hidden size, q all query heads, kv all key-value heads, f the
    intermediate size, a the number of heads, autograd keeps:

    ==================  ============================  ===========================================
    operator            low: fused kernels            high: the eager modules
    ==================  ============================  ===========================================
    two RMSNorms        input e*h, 1/rms 4            fp32 input 4*h, 1/rms 4, normalized e*h
    q/k/v, gate/up      their common input e*h, twice the same
    rotary              nothing (cosines are shared)  nothing
    attention core      q, k, v e*(q + 2 kv)          k and v repeated to all heads e*3 q
    flash kernel        log-sum-exp 4*a               the same, and its output again e*q
    o_proj              input e*q                     the same
    gate, SiLU, product gate and up e*2 f             SiLU's output too e*3 f
    down_proj           input e*f                     the same
    ==================  ============================  ===========================================

    Selective recomputation repeats the attention core from q, k and v, so the scores, the
    repeated k and v and the kernel's own output go.
    """
    keep, hidden = Keep(precision, attention), model.d_model
    middle = model.operator("mlp.down_proj").in_features
    return (
        keep.rms_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.attention(model.attention_heads, model.key_value_heads, model.head_dim)
        + keep.gated(hidden, middle, model.activation_function)
    ).bytes


def _family(family: str) -> Family:
    return Family(lambda name, fields: _model(family, name, fields), activation_bytes)


LLAMA = _family("llama")
MISTRAL = _family("mistral")
QWEN2 = _family("qwen2")
GRANITE = _family("granite")
SMOLLM3 = _family("smollm3")
