"""Llama and what is built like it (Mistral, Qwen2, Granite, SmolLM3, Seed-OSS, ERNIE 4.5).

RMSNorm, rotary positions, a gated MLP.

They differ in which linears have a bias and in what their configs leave out.
"""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep, Kept
from ziplan.workload.model import ActivationBytes, Layer, Model

_MAY_LEAVE_HEADS_OUT = ("llama", "granite")
"""Families whose configs may leave the key-value heads out; elsewhere that means a fixed number."""

_HEADS_OF_128 = ("seed_oss", "ernie4_5")
"""Families whose heads are 128 wide unless the config says otherwise."""

_TIED = ("smollm3", "ernie4_5")
"""Families whose head is tied unless the config says otherwise."""


def _model(family: str, name: str, fields: Fields) -> Model:
    size = build.sizes(
        fields,
        key_value_required=family not in _MAY_LEAVE_HEADS_OUT,
        head_dim=128 if family in _HEADS_OF_128 else None,
    )
    attention, output, mlp = _biases(family, fields)
    layer = _layer(
        size, fields.count("intermediate_size"), attention_bias=attention, output_bias=output, mlp_bias=mlp
    )
    tied = fields.flag("tie_word_embeddings", family in _TIED)
    activation = fields.text("hidden_act", "silu")
    return build.decoder(
        family, name, fields, size, [build.stack(size.layers, *layer)], activation, tied=tied
    )


def _biases(family: str, fields: Fields) -> tuple[bool, bool, bool]:
    """Whether queries, keys and values have biases, the attention's output, the MLP."""
    if family in ("mistral", "qwen2"):
        return family == "qwen2", False, False
    if family == "ernie4_5":
        return (fields.flag("use_bias", False),) * 3
    inwards = fields.flag("attention_bias", family == "seed_oss")
    output = fields.flag("attention_out_bias", False) if family == "seed_oss" else inwards
    return inwards, output, fields.flag("mlp_bias", False)


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
    repeated k and v and the kernel's own output go. Seed-OSS drops out after each half;
    each layer of ERNIE 4.5 makes its own cosines and sines in fp32.
    """
    keep, hidden = Keep(precision, attention), model.d_model
    middle = model.operator("mlp.down_proj").in_features
    kept = (
        keep.rms_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(model.attention_heads, model.key_value_heads, model.head_dim)
        + keep.gated(hidden, middle, model.activation_function)
    )
    if model.family == "seed_oss":
        kept += keep.masks(hidden, hidden)
    query, key = model.attention_heads * model.head_dim, model.key_value_heads * model.head_dim
    if model.family == "ernie4_5":
        kept += Kept(0, 8 * model.head_dim) + keep.rotary_in_fp32(query, key)
    else:
        kept += keep.rotary(query, key)
    if model.family == "granite":
        kept += keep.scaled(hidden, hidden)
    return kept.bytes


def _family(family: str) -> Family:
    return Family(lambda name, fields: _model(family, name, fields), activation_bytes)


LLAMA = _family("llama")
MISTRAL = _family("mistral")
QWEN2 = _family("qwen2")
GRANITE = _family("granite")
SMOLLM3 = _family("smollm3")
SEED_OSS = _family("seed_oss")
ERNIE_4_5 = _family("ernie4_5")
