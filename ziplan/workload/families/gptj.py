"""GPT-J: one LayerNorm for attention and MLP side by side; biases in the MLP and the head."""

from __future__ import annotations

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep, Kept
from ziplan.workload.model import ActivationBytes, Model

_ROTATED = 0.25
"""Share of each head that has rotary positions, by default (64 of 256, `rotary_dim`)."""


def _model(name: str, fields: Fields) -> Model:
    hidden, heads = fields.count("n_embd"), fields.count("n_head")
    size = build.Sizes(
        layers=fields.count("n_layer"),
        hidden=hidden,
        vocabulary=fields.count("vocab_size"),
        heads=heads,
        key_value_heads=heads,
        head_dim=build.even_heads(fields, hidden, heads, ("n_head", "n_embd")),
        positions=fields.count("n_positions", 2048),
    )
    middle = fields.count("n_inner", 4 * hidden)
    layer = (
        build.norm("ln_1", hidden, bias=True),
        *(
            build.linear(f"attn.{part}", hidden, hidden)
            for part in ("q_proj", "k_proj", "v_proj", "out_proj")
        ),
        build.linear("mlp.fc_in", hidden, middle, bias=True),
        build.linear("mlp.fc_out", middle, hidden, bias=True),
    )
    tied = "wte" if fields.flag("tie_word_embeddings", False) else None
    sections = [
        build.outside(build.embedding("wte", hidden, size.vocabulary)),
        build.stack(size.layers, *layer),
        build.outside(
            build.norm("ln_f", hidden, bias=True),
            build.linear("lm_head", hidden, size.vocabulary, bias=True, tied_to=tied),
        ),
    ]
    return build.model("gptj", name, fields, size, sections, fields.text("activation_function", "gelu_new"))


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """One norm's output feeds all. Written out, attention takes queries and keys in fp32.

    Each layer looks up its own cosines and sines, in fp32 and no wider than a head."""
    keep, hidden = Keep(precision, attention), model.d_model
    in_fp32 = 0 if keep.flash else 2 * hidden * (4 / keep.element - 1)
    return (
        keep.layer_norm(hidden)
        + keep.residuals(hidden, hidden)
        + Kept(0, 8 * model.head_dim)
        + keep.attention(
            model.attention_heads,
            model.key_value_heads,
            model.head_dim,
            rotated=_ROTATED,
            dropout=True,
            copies=in_fp32,
        )
        + keep.plain(hidden, model.operator("mlp.fc_in").out_features, model.activation_function)
        + keep.masks(hidden, hidden)
    ).bytes


GPTJ = Family(_model, activation_bytes)
