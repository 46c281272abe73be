"""gpt-oss: experts in every layer, biases everywhere, a learned sink beside each head's scores."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Model, Operator


def _model(name: str, fields: Fields) -> Model:
    size = build.sizes(fields, key_value_required=True, head_dim=64)
    count, middle = fields.count("num_local_experts"), fields.count("intermediate_size")
    chosen = build.chosen(
        fields, fields.named("num_experts_per_tok", "experts_per_token"), "num_local_experts", count
    )
    layer = (
        build.norm("input_layernorm", size.hidden),
        Operator("self_attn", "parameter", 1, size.heads, weights=((1, size.heads),)),
        *build.attention(size, fields.flag("attention_bias", True)),
        build.norm("post_attention_layernorm", size.hidden),
        build.router("mlp.router", size.hidden, count, bias=True),
        build.experts("mlp.experts", size.hidden, middle, count, chosen, bias=True),
    )
    tied = fields.flag("tie_word_embeddings", False)
    # Its gate is x * sigmoid(1.702 x), clamped: no single kernel.
    return build.decoder(
        "gpt_oss", name, fields, size, [build.stack(size.layers, *layer)], "swiglu_oai", tied=tied
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Llama's attention half with sinks among the scores, a router, and the chosen experts.

    Written out, the scores are joined with the sinks and softmaxed as they are, what is left
    of the sinks is cut off again, and the gate is clamped, scaled and multiplied in steps.
    """
    keep, hidden = Keep(precision, attention), model.d_model
    return (
        keep.rms_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(
            model.attention_heads,
            model.key_value_heads,
            model.head_dim,
            rotated=1.0,
            native_softmax=True,
            bias_scores=keep.element,
        )
        + keep.routed(hidden, model.operator("mlp.experts"), model.activation_function)
    ).bytes


GPT_OSS = Family(_model, activation_bytes)
