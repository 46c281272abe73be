"""DeepSeek-V2 and V3: latent attention, experts beside ones that every token takes, dense layers first."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ziplan.units import Precision
from ziplan.workload.families import build
from ziplan.workload.families.family import Attention, Family, Fields
from ziplan.workload.families.kept import Keep, Kept
from ziplan.workload.families.moved import beside_routed
from ziplan.workload.model import ActivationBytes, Layer, Model


@dataclass(frozen=True)
class _Latent:
    """Widths of latent attention; `query_rank` is 0 where queries come straight from the input."""

    query_rank: int
    rank: int
    rotated: int
    plain: int
    value: int

    @property
    def head(self) -> int:
        """Width of a head of queries and keys."""
        return self.rotated + self.plain


def _model(family: str, name: str, fields: Fields) -> Model:
    size, latent = _sizes(fields)
    attention_bias = fields.flag("attention_bias", False)
    mlp_bias = family == "deepseek_v2" and fields.flag("mlp_bias", False)
    dense_first = min(dense_layers_first(fields, 3 if family == "deepseek_v3" else 0), size.layers)
    routed = routed_and_shared(fields, size, mlp_bias)
    middle = fields.count("intermediate_size")

    def layer(has_experts: bool) -> Layer:
        return (
            build.norm("input_layernorm", size.hidden),
            *_attention(size, latent, attention_bias),
            build.norm("post_attention_layernorm", size.hidden),
            *(routed if has_experts else build.gated(size.hidden, middle, bias=mlp_bias)),
        )

    layers = [build.stack(dense_first, *layer(False)), build.stack(size.layers - dense_first, *layer(True))]
    tied, activation = fields.flag("tie_word_embeddings", False), fields.text("hidden_act", "silu")
    whole = build.decoder(family, name, fields, size, layers, activation, tied=tied)
    return replace(whole, value_head_dim=latent.value)


def _sizes(fields: Fields) -> tuple[build.Sizes, _Latent]:
    latent = _Latent(
        fields.count("q_lora_rank", 0),
        fields.count("kv_lora_rank"),
        fields.count("qk_rope_head_dim"),
        fields.count("qk_nope_head_dim"),
        fields.count("v_head_dim"),
    )
    heads = fields.count("num_attention_heads")
    size = build.Sizes(
        layers=fields.count("num_hidden_layers"),
        hidden=fields.count("hidden_size"),
        vocabulary=fields.count("vocab_size"),
        heads=heads,
        key_value_heads=heads,
        head_dim=latent.head,
        positions=fields.count("max_position_embeddings", 0) or None,
    )
    return size, latent


def dense_layers_first(fields: Fields, default: int) -> int:
    """Dense layers before the experts; 0 is a number here."""
    if fields.zero("first_k_dense_replace"):
        return 0
    return fields.count("first_k_dense_replace", default)


def _attention(size: build.Sizes, latent: _Latent, bias: bool) -> Layer:
    """Down to the rank and up again, for queries and for keys and values; one rotated key for all heads."""
    query = size.heads * latent.head
    queries: Layer = (build.linear("self_attn.q_proj", size.hidden, query),)
    if latent.query_rank:
        queries = (
            build.linear("self_attn.q_a_proj", size.hidden, latent.query_rank, bias),
            build.norm("self_attn.q_a_layernorm", latent.query_rank),
            build.linear("self_attn.q_b_proj", latent.query_rank, query),
        )
    return (
        *queries,
        build.linear("self_attn.kv_a_proj_with_mqa", size.hidden, latent.rank + latent.rotated, bias),
        build.norm("self_attn.kv_a_layernorm", latent.rank),
        build.linear("self_attn.kv_b_proj", latent.rank, size.heads * (latent.plain + latent.value)),
        build.linear("self_attn.o_proj", size.heads * latent.value, size.hidden, bias),
    )


def routed_and_shared(fields: Fields, size: build.Sizes, mlp_bias: bool) -> Layer:
    """A router, the experts it chooses from, and one MLP of all that every token takes."""
    count, middle = fields.count("n_routed_experts"), fields.count("moe_intermediate_size")
    chosen = build.chosen(fields, "num_experts_per_tok", "n_routed_experts", count)
    shared = fields.count("n_shared_experts") * middle
    return (
        build.router("mlp.gate", size.hidden, count),
        build.experts("mlp.experts", size.hidden, middle, count, chosen),
        *build.gated(size.hidden, shared, "mlp.shared_experts", mlp_bias),
    )


def activation_bytes(model: Model, attention: Attention, precision: Precision) -> ActivationBytes:
    """Latent attention, then experts or a dense MLP: the mean over the layers.

    Both ranks are normed, so each keeps its norm's input and the norm's output, which is the
    input of the way up. Queries and keys are put together from rotated and plain parts, which
    the modules keep whole beside them.
    """
    keep, hidden, function = Keep(precision, attention), model.d_model, model.activation_function
    kept = (
        keep.rms_norm(hidden, hidden)
        + keep.inputs(hidden)
        + keep.residuals(hidden, hidden)
        + _latent_kept(keep, model)
    )
    if model.has("mlp.experts"):
        experts, shared = model.operator("mlp.experts"), model.operator("mlp.shared_experts.down_proj")
        routed = keep.routed(hidden, experts, function) + keep.gated(0, shared.in_features, function)
        routed += Kept(written=beside_routed(keep.element, hidden, model.family == "deepseek_v3"))
        kept += routed * (experts.count / model.layer_count)
    if model.has("mlp.down_proj"):
        dense = model.operator("mlp.down_proj")
        kept += keep.gated(hidden, dense.in_features, function) * (dense.count / model.layer_count)
    return kept.bytes


def _latent_kept(keep: Keep, model: Model) -> Kept:
    heads, rank = model.attention_heads, model.operator("self_attn.kv_a_layernorm").out_features
    ranks = [rank]
    if model.has("self_attn.q_a_layernorm"):
        ranks.append(model.operator("self_attn.q_a_layernorm").out_features)
    rotated = model.operator("self_attn.kv_a_proj_with_mqa").out_features - rank
    whole = model.operator("self_attn.kv_b_proj").out_features + heads * model.head_dim
    return (
        keep.rms_norm(*ranks)
        + keep.rotary(heads * rotated, rotated)
        + keep.cut(heads * model.head_dim, heads * model.head_dim)
        + keep.inputs(*ranks)
        + keep.attention(heads, heads, model.head_dim, model.value_head_dim, copies=whole)
    )


def _family(family: str) -> Family:
    return Family(lambda name, fields: _model(family, name, fields), activation_bytes)


DEEPSEEK_V2 = _family("deepseek_v2")
DEEPSEEK_V3 = _family("deepseek_v3")
