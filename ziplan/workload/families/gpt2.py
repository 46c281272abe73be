"""GPT-2 and models shaped like it: LayerNorm, learned positions, biases everywhere, plain MLP."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families.family import ELEMENT_BYTES, Attention, Family, Fields
from ziplan.workload.families.kept import FUNCTION, NORM, RESIDUALS, TANH_GELU, Keep, Kept
from ziplan.workload.model import ActivationBytes, Model, Operator, OperatorKind

_FUSED_ACTIVATIONS = ("gelu", "gelu_pytorch_tanh", "relu")
"""Activation functions that run as one kernel and keep their input only."""


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


def layer_bytes_kept(model: Model, precision: Precision, *, eager_modules: bool, dropout: bool) -> int:
    """Bytes a token keeps in one layer, but for what the attention core adds of its own.

    With e bytes an element, h the width and f the MLP's (4 h in GPT-2), autograd keeps: the
    inputs of both LayerNorms e*2 h (and mean and 1/deviation, 8 bytes each time), of c_attn and
    c_fc e*2 h, q, k and v e*3 h, the attention's output as c_proj's input e*h, the input of the
    activation function e*f and of the MLP's c_proj e*f, and a mask of one byte an element for
    each of two dropouts, 2 h. In 16 bits and with dropout that is the s*b*h*34 of Korthikanti
    et al. 2022 (arXiv:2205.05198), who leave the LayerNorm statistics out.

    Written out in eager operators, tanh-GELU keeps four tensors in place of one: its input,
    half its input, the tanh and one plus the tanh.
    """
    element = ELEMENT_BYTES[precision]
    hidden, middle = model.d_model, model.operator("mlp.c_fc").out_features
    attention = element * (hidden + hidden + 3 * hidden + hidden) + 8
    written_out = eager_modules and model.activation_function not in _FUSED_ACTIVATIONS
    activation = element * middle * (4 if written_out else 1)
    mlp = element * (hidden + hidden + middle) + 8 + activation
    return attention + mlp + (2 * hidden if dropout else 0)


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """What one layer keeps for backward, per token: fused and no dropout, to eager with dropout.

    The flash kernel adds its log-sum-exp (4 bytes a head) and, where a reordering copies its
    output, that output again. Eager attention keeps, per head and attended token, the
    probabilities; with dropout also the dropped-out probabilities and a mask of one byte, which
    is the 5*a*s/h of Korthikanti et al. in 16 bits. Selective recomputation repeats the
    attention core from q, k and v, so all of this goes.
    """
    element = ELEMENT_BYTES[precision]
    low = layer_bytes_kept(model, precision, eager_modules=False, dropout=False)
    high = layer_bytes_kept(model, precision, eager_modules=True, dropout=True)
    flash, heads = attention == "flash", model.attention_heads
    moved = _moved(Keep(precision, attention), model)
    statistics, copy = (4 * heads, element * model.d_model) if flash else (0, 0)
    return ActivationBytes(
        none_low=low + statistics,
        none_high=high + statistics + copy,
        selective_low=low,
        selective_high=high,
        attention_scores_low=0 if flash else element * heads,
        attention_scores_high=0 if flash else (2 * element + 1) * heads,
        masks=2 * model.d_model,
        dropped_scores_low=0 if flash else (element + 1) * heads,
        dropped_scores_high=0 if flash else (element + 1) * heads,
        moved_forward=moved.forward + moved.dropped_out,
        moved_backward=moved.backward + moved.dropped_out,
        moved_by_dropout=moved.dropped_out,
    )


def _moved(keep: Keep, model: Model) -> Kept:
    """What a layer's modules move as they are written."""
    hidden, middle = model.d_model, model.operator("mlp.c_fc").out_features
    function = FUNCTION if model.activation_function in _FUSED_ACTIVATIONS else TANH_GELU
    around = keep.moved(NORM, hidden, hidden) + keep.moved(RESIDUALS, hidden) + keep.masks(hidden, hidden)
    return around + keep.moved(function, middle)


GPT2 = Family(_model, activation_bytes)
