"""Llama and what is built like it (Mistral, Qwen2): RMSNorm, rotary positions, gated MLP.

They differ in which linears have a bias and in what their configs leave out.
"""

from __future__ import annotations

from dataclasses import replace

from ziplan.units import Precision
from ziplan.workload.families.family import ELEMENT_BYTES, Attention, Family, Fields
from ziplan.workload.model import ActivationBytes, Model, Operator

_QUERY_KEY_VALUE = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def _biased(family: str, fields: Fields) -> tuple[str, ...]:
    """Names of the linears that have a bias."""
    if family != "llama":
        return _QUERY_KEY_VALUE if family == "qwen2" else ()
    attention = (*_QUERY_KEY_VALUE, "self_attn.o_proj") if fields.flag("attention_bias", False) else ()
    return attention + (_MLP if fields.flag("mlp_bias", False) else ())


def _model(family: str, name: str, fields: Fields) -> Model:
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    # Only Llama's configs may leave this out: elsewhere an absent key means a fixed number.
    otherwise = (heads,) if family == "llama" else ()
    key_value_heads = fields.count("num_key_value_heads", *otherwise)
    fields.divides("num_key_value_heads", key_value_heads, "num_attention_heads", heads)
    head_dim = fields.count("head_dim", -1)
    if head_dim < 0:
        fields.divides("num_attention_heads", heads, "hidden_size", hidden, "or state `head_dim`")
        head_dim = hidden // heads if heads else 0
    model = Model(
        name=name,
        family=family,
        layer_count=fields.count("num_hidden_layers"),
        d_model=hidden,
        vocab_size=fields.count("vocab_size"),
        attention_heads=heads,
        key_value_heads=key_value_heads,
        head_dim=head_dim,
        operators=(),
        max_sequence_length=fields.count("max_position_embeddings", 0) or None,
        source=fields.text("source", ""),
        activation_function=fields.text("hidden_act", "silu"),
    )
    intermediate, tied = fields.count("intermediate_size"), fields.flag("tie_word_embeddings", False)
    return replace(model, operators=_operators(model, intermediate, tied, _biased(family, fields)))


def _operators(model: Model, intermediate: int, tied: bool, biased: tuple[str, ...]) -> tuple[Operator, ...]:
    """In the order of forward."""

    def linear(name: str, inputs: int, outputs: int) -> Operator:
        return Operator(name, "linear", inputs, outputs, count=model.layer_count, bias=name in biased)

    def norm(name: str) -> Operator:
        return Operator(name, "norm", hidden, hidden, count=model.layer_count)

    hidden, vocabulary = model.d_model, model.vocab_size
    query, key_value = model.attention_heads * model.head_dim, model.key_value_heads * model.head_dim
    shared = "embed_tokens" if tied else None
    return (
        Operator("embed_tokens", "embedding", hidden, vocabulary, block=False),
        norm("input_layernorm"),
        linear("self_attn.q_proj", hidden, query),
        linear("self_attn.k_proj", hidden, key_value),
        linear("self_attn.v_proj", hidden, key_value),
        linear("self_attn.o_proj", query, hidden),
        norm("post_attention_layernorm"),
        linear("mlp.gate_proj", hidden, intermediate),
        linear("mlp.up_proj", hidden, intermediate),
        linear("mlp.down_proj", intermediate, hidden),
        Operator("norm", "norm", hidden, hidden, block=False),
        Operator("lm_head", "linear", hidden, vocabulary, block=False, shared_with=shared),
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

    Residual additions keep nothing. The flash kernel's output is o_proj's input unless a
    reordering copies it. Selective recomputation repeats the attention core from q, k and v,
    so the scores, the repeated k and v and the kernel's own output go.

    Eager attention keeps, per head and attended token, the probabilities: once in e bytes with
    a fused softmax; as the fp32 softmax and its e-byte copy in the eager modules (one tensor
    when training computes in fp32).
    """
    element = ELEMENT_BYTES[precision]
    hidden, heads, middle = model.d_model, model.attention_heads, model.operator("mlp.down_proj").in_features
    query, key_value = heads * model.head_dim, model.key_value_heads * model.head_dim

    inputs = element * 2 * hidden + element * (query + 2 * key_value) + element * query
    low = inputs + 2 * (element * hidden + 4) + element * 3 * middle
    high = inputs + 2 * (4 * hidden + 4 + element * hidden) + element * 4 * middle
    repeated = element * 2 * (query - key_value)
    flash = attention == "flash"
    statistics = 4 * heads if flash else 0
    copies = repeated + (element * query if flash else 0)
    fp32_softmax = 0 if precision == "fp32" else 4
    return ActivationBytes(
        none_low=low + statistics,
        none_high=high + statistics + copies,
        selective_low=low,
        selective_high=high,
        attention_scores_low=0 if flash else element * heads,
        attention_scores_high=0 if flash else (element + fp32_softmax) * heads,
    )


LLAMA = Family(lambda name, fields: _model("llama", name, fields), activation_bytes)
MISTRAL = Family(lambda name, fields: _model("mistral", name, fields), activation_bytes)
QWEN2 = Family(lambda name, fields: _model("qwen2", name, fields), activation_bytes)
