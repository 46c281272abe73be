"""ViT with its classifier: patches of an image for tokens, LayerNorms before each half."""

from __future__ import annotations

from dataclasses import replace

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep
from ziplan.workload.model import ActivationBytes, Model, Operator


def _model(name: str, fields: Fields) -> Model:
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    image, patch = fields.count("image_size", 224), fields.count("patch_size", 16)
    fields.divides("patch_size", patch, "image_size", image)
    tokens = (image // patch) ** 2 + 1 if patch else 0
    labels = fields.count("num_labels", fields.entries("id2label", 2))
    size = build.Sizes(
        layers=fields.count("num_hidden_layers"),
        hidden=hidden,
        vocabulary=labels,
        heads=heads,
        key_value_heads=heads,
        head_dim=build.even_heads(fields, hidden, heads),
        positions=tokens,
    )
    pixels = fields.count("num_channels", 3) * patch * patch
    # One token of an image, that of the class, goes to the classifier.
    share = 1 / tokens if tokens else 0.0
    classifier = Operator("classifier", "linear", hidden, labels, bias=True, active_share=share)
    layer = _layer(size, fields.count("intermediate_size"), fields.flag("qkv_bias", True))
    table = Operator("embeddings", "parameter", hidden, 1 + tokens, weights=((hidden, 1), (hidden, tokens)))
    sections = [
        build.outside(
            table, build.linear("embeddings.patch_embeddings.projection", pixels, hidden, bias=True)
        ),
        build.stack(size.layers, *layer),
        build.outside(build.norm("layernorm", hidden, bias=True), classifier),
    ]
    whole = build.model("vit", name, fields, size, sections, fields.text("hidden_act", "gelu"))
    return replace(whole, causal_share=0.0, logits_share=share)


def _layer(size: build.Sizes, middle: int, bias: bool) -> tuple[Operator, ...]:
    hidden = size.hidden
    return (
        build.norm("layernorm_before", hidden, bias=True),
        *(build.linear(f"attention.{part}", hidden, hidden, bias) for part in ("q_proj", "k_proj", "v_proj")),
        build.linear("attention.o_proj", hidden, hidden, bias=True),
        build.norm("layernorm_after", hidden, bias=True),
        build.linear("mlp.fc1", hidden, middle, bias=True),
        build.linear("mlp.fc2", middle, hidden, bias=True),
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Two norms and their outputs, a plain MLP, dropouts where the config asks for them."""
    keep, hidden, heads = Keep(precision, attention), model.d_model, model.attention_heads
    return (
        keep.layer_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + keep.attention(heads, heads, model.head_dim, dropout=True)
        + keep.plain(hidden, model.operator("mlp.fc1").out_features, model.activation_function)
        + keep.masks(hidden, hidden)
    ).bytes


VIT = Family(_model, activation_bytes)
