"""GPT-2 and models shaped like it: LayerNorm, learned positions, biases everywhere, plain MLP."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Model, Operator, OperatorKind


def _model(name: str, fields: Fields) -> Model:
    hidden, heads = fields.count("n_embd"), fields.count("n_head")
    fields.divides("n_head", heads, "n_embd", hidden)
    layers, vocabulary = fields.count("n_layer"), fields.count("vocab_size")
    positions = fields.count("n_positions")
    middle = fields.count("n_inner", 4 * hidden)
    tied = fields.flag("tie_word_embeddings", True)
    if fields.flag("add_cross_attention", False):
        fields.unsupported("add_cross_attention", "cross-attention is not supported, decoder-only models are")
    return Model(
        name=name,
        family="gpt2",
        layer_count=layers,
        d_model=hidden,
        vocab_size=vocabulary,
        attention_heads=heads,
        key_value_heads=heads,
        head_dim=hidden // heads if heads else 0,
        operators=_operators(hidden, middle, layers, vocabulary, positions, tied),
        max_sequence_length=positions,
        source=fields.text("source", ""),
        activation_function=fields.text("activation_function", "gelu_new"),
    )


def _operators(
    hidden: int, middle: int, layers: int, vocabulary: int, positions: int, tied: bool
) -> tuple[Operator, ...]:
    """In the order of forward."""

    def block(name: str, inputs: int, outputs: int, kind: OperatorKind = "linear") -> Operator:
        return Operator(name, kind, inputs, outputs, count=layers, bias=True)

    return (
        Operator("wte", "embedding", hidden, vocabulary, block=False),
        Operator("wpe", "embedding", hidden, positions, block=False),
        block("ln_1", hidden, hidden, "norm"),
        block("attn.c_attn", hidden, 3 * hidden),
        block("attn.c_proj", hidden, hidden),
        block("ln_2", hidden, hidden, "norm"),
        block("mlp.c_fc", hidden, middle),
        block("mlp.c_proj", middle, hidden),
        Operator("ln_f", "norm", hidden, hidden, bias=True, block=False),
        Operator("lm_head", "linear", hidden, vocabulary, block=False, shared_with="wte" if tied else None),
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Two norms and their outputs, a plain MLP, three dropouts; parts of the fused projection are copied.

    In 16 bits with fused kernels and dropout that is the s*b*h*34 of Korthikanti et al. 2022
    (arXiv:2205.05198), who leave the LayerNorm statistics out, and the 5*a*s/h of their scores.
    """
    keep, hidden = Keep(precision, attention), model.d_model
    middle = model.operator("mlp.c_fc").out_features
    heads = model.attention_heads
    return (
        keep.layer_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.joined(3 * hidden)
        + keep.attention(heads, heads, model.head_dim, dropout=True, native_softmax=True)
        + keep.plain(hidden, middle, model.activation_function)
        + keep.masks(hidden, hidden)
    ).bytes


GPT2 = Family(_model, activation_bytes)
