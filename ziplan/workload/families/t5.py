"""T5, T5 v1.1, Flan-T5 and mT5: an encoder and a decoder, relative positions in each stack's first layer."""

from __future__ import annotations

from dataclasses import replace

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep, Kept
from ziplan.workload.model import ActivationBytes, Layer, Model, Section


def _model(family: str, name: str, fields: Fields) -> Model:
    heads, encoders = fields.count("num_heads"), fields.count("num_layers")
    decoders = fields.count("num_decoder_layers", encoders)
    size = build.Sizes(
        layers=encoders + decoders,
        hidden=fields.count("d_model"),
        vocabulary=fields.count("vocab_size"),
        heads=heads,
        key_value_heads=heads,
        head_dim=fields.count("d_kv"),
    )
    gate, function = _function(fields, "relu" if family == "t5" else "gated-gelu")
    middle, buckets = fields.count("d_ff"), fields.count("relative_attention_num_buckets", 32)
    # The checkpoints that state no tie have a head of their own, and training keeps it.
    tied = "encoder.embed_tokens" if fields.flag("tie_word_embeddings", True) else None
    sections = [
        build.outside(build.embedding("encoder.embed_tokens", size.hidden, size.vocabulary)),
        *_stack("encoder", size, encoders, middle, gate, buckets),
        build.outside(build.norm("encoder.final_layer_norm", size.hidden)),
        build.outside(
            build.embedding("decoder.embed_tokens", size.hidden, size.vocabulary, "encoder.embed_tokens")
        ),
        *_stack("decoder", size, decoders, middle, gate, buckets),
        build.outside(
            build.norm("decoder.final_layer_norm", size.hidden),
            build.linear("lm_head", size.hidden, size.vocabulary, tied_to=tied),
        ),
    ]
    whole = build.model(family, name, fields, size, sections, function)
    attentions = encoders + 2 * decoders
    return replace(
        whole, attention_count=attentions, causal_share=decoders / attentions if attentions else 0.0
    )


def _function(fields: Fields, default: str) -> tuple[bool, str]:
    """Whether the MLP is gated, and its function; `gated-gelu` means the one with tanh, in steps."""
    said = fields.text("feed_forward_proj", default)
    gate, _, name = said.rpartition("-")
    if gate not in ("", "gated"):
        fields.unsupported("feed_forward_proj", f"expected a function or gated-FUNCTION, not {said!r:.40}")
    return gate == "gated", "gelu_new" if said == "gated-gelu" else name


def _stack(
    name: str, size: build.Sizes, count: int, middle: int, gate: bool, buckets: int
) -> tuple[Section, Section]:
    """The first layer, which has the table of relative positions, and the others."""

    def layer(first: bool) -> Layer:
        cross = name == "decoder"
        self_attention = f"{name}.SelfAttention"
        table = build.embedding(f"{self_attention}.relative_attention_bias", size.heads, buckets)
        query, key, value, output = _attention(self_attention, size)
        return (
            build.norm(f"{name}.layer.0.layer_norm", size.hidden),
            query,
            key,
            value,
            *((table,) if first else ()),
            output,
            *((build.norm(f"{name}.layer.1.layer_norm", size.hidden),) if cross else ()),
            *(_attention(f"{name}.EncDecAttention", size) if cross else ()),
            build.norm(f"{name}.layer.{1 + cross}.layer_norm", size.hidden),
            *_mlp(f"{name}.DenseReluDense", size.hidden, middle, gate),
        )

    return build.stack(min(count, 1), *layer(True)), build.stack(max(count - 1, 0), *layer(False))


def _attention(name: str, size: build.Sizes) -> Layer:
    inwards = tuple(build.linear(f"{name}.{part}", size.hidden, size.query) for part in "qkv")
    return (*inwards, build.linear(f"{name}.o", size.query, size.hidden))


def _mlp(name: str, hidden: int, middle: int, gate: bool) -> Layer:
    up = ("wi_0", "wi_1") if gate else ("wi",)
    return (
        *(build.linear(f"{name}.{part}", hidden, middle) for part in up),
        build.linear(f"{name}.wo", middle, hidden),
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Attention once in an encoder's layer and twice in a decoder's, an MLP: the mean over the layers.

    Cross-attention takes keys and values from the encoder's output, which all layers share.
    Dropout stands after each half and inside the MLP; ReLU keeps its output alone.
    """
    keep, layers = Keep(precision, attention), model.layer_count
    attentions = model.attentions * (1 / layers)
    return (_attention_half(keep, model) * attentions + _mlp_half(keep, model)).bytes


def _attention_half(keep: Keep, model: Model) -> Kept:
    hidden, heads = model.d_model, model.attention_heads
    return (
        keep.rms_norm(hidden)
        + keep.inputs(hidden)
        + keep.attention(heads, heads, model.head_dim, dropout=True)
        + keep.masks(hidden)
        + keep.residuals(hidden)
    )


def _mlp_half(keep: Keep, model: Model) -> Kept:
    hidden, function = model.d_model, model.activation_function
    middle = next(o.in_features for o in model.operators if o.name.endswith("DenseReluDense.wo"))
    gate = any(o.name.endswith("wi_0") for o in model.operators)
    if gate:
        # Dropout's result is the input of the last matrix; the product before it is kept by nothing.
        inside = keep.gated(hidden, middle, function)
    else:
        inside = keep.inputs(hidden) + keep.output_function(middle) + keep.eager_only(middle)
    return keep.rms_norm(hidden) + inside + keep.masks(middle, hidden) + keep.residuals(hidden)


def _family(family: str) -> Family:
    return Family(lambda name, fields: _model(family, name, fields), activation_bytes)


T5 = _family("t5")
MT5 = _family("mt5")
