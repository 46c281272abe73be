"""GLM-4: Llama's layer with gate and up in one matrix; the 0414 models (`glm4`) norm after each half too."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Model

_ROTATED = 0.5
"""Share of each head that has rotary positions, by default (`partial_rotary_factor`)."""


def _model(family: str, name: str, fields: Fields) -> Model:
    size, middle = (
        build.sizes(fields, key_value_required=True, head_dim=128),
        fields.count("intermediate_size"),
    )
    after = family == "glm4"
    layer = (
        build.norm("input_layernorm", size.hidden),
        *build.attention(size, fields.flag("attention_bias", True), output_bias=False),
        *((build.norm("post_self_attn_layernorm", size.hidden),) if after else ()),
        build.norm("post_attention_layernorm", size.hidden),
        build.linear("mlp.gate_up_proj", size.hidden, 2 * middle),
        build.linear("mlp.down_proj", middle, size.hidden),
        *((build.norm("post_mlp_layernorm", size.hidden),) if after else ()),
    )
    tied, activation = fields.flag("tie_word_embeddings", False), fields.text("hidden_act", "silu")
    return build.decoder(
        family, name, fields, size, [build.stack(size.layers, *layer)], activation, tied=tied
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Llama's, and the inputs of the norms after each half.

    Each layer makes its own cosines and sines, no wider than a head.
    """
    keep, hidden = Keep(precision, attention), model.d_model
    norms = 4 if model.has("post_mlp_layernorm") else 2
    return (
        keep.rms_norm(*[hidden] * norms)
        + keep.eager_only(2 * model.head_dim)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(model.attention_heads, model.key_value_heads, model.head_dim, rotated=_ROTATED)
        + keep.gated(hidden, model.operator("mlp.down_proj").in_features, model.activation_function)
    ).bytes


def _family(family: str) -> Family:
    return Family(lambda name, fields: _model(family, name, fields), activation_bytes)


GLM = _family("glm")
GLM4 = _family("glm4")
