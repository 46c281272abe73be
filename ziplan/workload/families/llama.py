"""Llama and what is built like it (Mistral, Qwen2): RMSNorm, rotary positions, gated MLP.

They differ in which linears have a bias and in what their configs leave out.
"""

from __future__ import annotations

from dataclasses import dataclass

from ziplan.units import Precision
from ziplan.workload.families.family import ELEMENT_BYTES, Attention, Family, Fields
from ziplan.workload.model import ActivationBytes, Model, Operator


@dataclass(frozen=True)
class _Shape:
    """The dimensions that the operators are made from."""

    hidden: int
    intermediate: int
    layers: int
    query: int
    key_value: int
    vocabulary: int


@dataclass(frozen=True)
class _Biases:
    """Which linears have a bias."""

    query_key_value: bool = False
    output: bool = False
    mlp: bool = False


def _llama_biases(fields: Fields) -> _Biases:
    attention = fields.flag("attention_bias", False)
    return _Biases(query_key_value=attention, output=attention, mlp=fields.flag("mlp_bias", False))


def _mistral_biases(fields: Fields) -> _Biases:
    return _Biases()


def _qwen2_biases(fields: Fields) -> _Biases:
    return _Biases(query_key_value=True)


_BIASES = {"llama": _llama_biases, "mistral": _mistral_biases, "qwen2": _qwen2_biases}


def _model(family: str, name: str, fields: Fields) -> Model:
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    # Only Llama's configs may leave this out: elsewhere an absent key means a fixed number.
    otherwise = (heads,) if family == "llama" else ()
    key_value_heads = fields.count("num_key_value_heads", *otherwise)
    head_dim = fields.count("head_dim", 0)
    if not head_dim:
        fields.divides("num_attention_heads", heads, "hidden_size", hidden, "or state `head_dim`")
        head_dim = hidden // heads if heads else 0
    fields.divides("num_key_value_heads", key_value_heads, "num_attention_heads", heads)
    shape = _Shape(
        hidden=hidden,
        intermediate=fields.count("intermediate_size"),
        layers=fields.count("num_hidden_layers"),
        query=heads * head_dim,
        key_value=key_value_heads * head_dim,
        vocabulary=fields.count("vocab_size"),
    )
    tied = fields.flag("tie_word_embeddings", False)
    return Model(
        name=name,
        family=family,
        layer_count=shape.layers,
        d_model=hidden,
        vocab_size=shape.vocabulary,
        attention_heads=heads,
        key_value_heads=key_value_heads,
        head_dim=head_dim,
        operators=_operators(shape, _BIASES[family](fields), tied),
        max_sequence_length=fields.count("max_position_embeddings", 0) or None,
        source=fields.text("source", ""),
        activation_function=fields.text("hidden_act", "silu"),
    )


def _operators(shape: _Shape, biases: _Biases, tied: bool) -> tuple[Operator, ...]:
    """In the order of forward."""

    def linear(name: str, inputs: int, outputs: int, bias: bool) -> Operator:
        return Operator(name, "linear", inputs, outputs, count=shape.layers, bias=bias)

    def norm(name: str) -> Operator:
        return Operator(name, "norm", shape.hidden, shape.hidden, count=shape.layers)

    hidden, middle = shape.hidden, shape.intermediate
    shared = "embed_tokens" if tied else None
    return (
        Operator("embed_tokens", "embedding", hidden, shape.vocabulary, block=False),
        norm("input_layernorm"),
        linear("self_attn.q_proj", hidden, shape.query, biases.query_key_value),
        linear("self_attn.k_proj", hidden, shape.key_value, biases.query_key_value),
        linear("self_attn.v_proj", hidden, shape.key_value, biases.query_key_value),
        linear("self_attn.o_proj", shape.query, hidden, biases.output),
        norm("post_attention_layernorm"),
        linear("mlp.gate_proj", hidden, middle, biases.mlp),
        linear("mlp.up_proj", hidden, middle, biases.mlp),
        linear("mlp.down_proj", middle, hidden, biases.mlp),
        Operator("norm", "norm", hidden, hidden, block=False),
        Operator("lm_head", "linear", hidden, shape.vocabulary, block=False, shared_with=shared),
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
