"""GLM-4.5 (`glm4_moe`): Llama's attention, experts beside ones that every token takes, dense layers first."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.deepseek import dense_layers_first, routed_and_shared
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep, Kept
from ziplan.workload.families.moved import beside_routed
from ziplan.workload.families.qwen3 import normed_attention
from ziplan.workload.model import ActivationBytes, Layer, Model

_ROTATED = 0.5
"""Share of each head that has rotary positions, by default (`partial_rotary_factor`)."""


def _model(name: str, fields: Fields) -> Model:
    size = build.sizes(fields, key_value_required=True)
    bias, normed = fields.flag("attention_bias", False), fields.flag("use_qk_norm", False)
    middle = fields.count("intermediate_size")
    routed = routed_and_shared(fields, size, mlp_bias=False)
    dense_first = min(dense_layers_first(fields, default=1), size.layers)

    def layer(has_experts: bool) -> Layer:
        attention = normed_attention if normed else build.attention
        return (
            build.norm("input_layernorm", size.hidden),
            *attention(size, bias, output_bias=False),
            build.norm("post_attention_layernorm", size.hidden),
            *(routed if has_experts else build.gated(size.hidden, middle)),
        )

    layers = [build.stack(dense_first, *layer(False)), build.stack(size.layers - dense_first, *layer(True))]
    tied, activation = fields.flag("tie_word_embeddings", False), fields.text("hidden_act", "silu")
    return build.decoder("glm4_moe", name, fields, size, layers, activation, tied=tied)


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Llama's attention half, then experts or a dense MLP: the mean over the layers.

    The router takes its input in fp32.
    """
    keep, hidden, function = Keep(precision, attention), model.d_model, model.activation_function
    heads, key_heads = model.attention_heads, model.key_value_heads
    kept = (
        keep.rms_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(heads, key_heads, model.head_dim, rotated=_ROTATED)
    )
    if model.has("self_attn.q_norm"):
        kept += keep.rms_norm(heads * model.head_dim, rows=heads)
        kept += keep.rms_norm(key_heads * model.head_dim, rows=key_heads)
    if model.has("mlp.experts"):
        experts, shared = model.operator("mlp.experts"), model.operator("mlp.shared_experts.down_proj")
        routed = keep.routed(hidden, experts, function) + keep.gated(0, shared.in_features, function)
        routed += Kept(written=beside_routed(keep.element, hidden, in_groups=True))
        kept += (routed + keep.eager_only(hidden * 4 / keep.element)) * (experts.count / model.layer_count)
    if model.has("mlp.down_proj"):
        dense = model.operator("mlp.down_proj")
        kept += keep.gated(hidden, dense.in_features, function) * (dense.count / model.layer_count)
    return kept.bytes


GLM4_MOE = Family(_model, activation_bytes)
