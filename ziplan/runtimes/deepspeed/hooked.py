"""Modules without parameters of their own, which stage 3's hooks reach like any other and read ahead at.

Source: DeepSpeed 0.19.8, `runtime/zero/parameter_offload.py` (`_register_deepspeed_module`: every module has
hooks, one around others is reached before them, forward and backward), and the modules of transformers 5.24.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

_ATTENTION = "self_attn( q_proj q_norm k_proj k_norm v_proj q_norm k_norm o_proj )"
_GATED = "mlp( gate_proj .act_fn up_proj down_proj )"
_LLAMA = f"( input_layernorm {_ATTENTION} post_attention_layernorm {_GATED} )"
_SHARED = "( gate_proj .act_fn up_proj down_proj )"
_EXPERTS = (
    f"mlp( gate_proj .act_fn up_proj down_proj shared_expert{_SHARED} gate experts+( .act_fn ) "
    f"shared_experts{_SHARED} shared_expert_gate & )"
)
_MOE = f"( input_layernorm {_ATTENTION} post_attention_layernorm {_EXPERTS} )"
_LATENT = (
    "self_attn( q_proj q_a_proj q_a_layernorm q_b_proj kv_a_proj_with_mqa kv_a_layernorm kv_b_proj o_proj )"
)
_GLM = "mlp( gate_up_proj .activation_fn down_proj )"
_GPT2 = "( ln_1 attn( c_attn c_proj .resid_dropout! ) ln_2 mlp( c_fc .act c_proj .dropout! ) )"
_BART = (
    "( self_attn_layer_norm self_attn( q_proj k_proj v_proj out_proj ) self_attn_layer_norm "
    "encoder_attn_layer_norm encoder_attn( q_proj k_proj v_proj out_proj ) encoder_attn_layer_norm "
    "final_layer_norm fc1 .activation_fn fc2 ! final_layer_norm )"
)
_BERT = (
    "( attention( self( query key value ) output( dense .dropout! LayerNorm ) ) "
    "intermediate( dense .intermediate_act_fn ) output( dense .dropout! LayerNorm ) )"
)
_DENSE = "DenseReluDense^wo( wi .act .dropout! wi_0 .act wi_1 .dropout! wo ) .dropout!"
_T5_SELF = "( layer_norm SelfAttention( q k v relative_attention_bias o ) .dropout! )"
_T5 = f"( {_T5_SELF} ( layer_norm {_DENSE} ) )"
_T5_CROSS = f"( {_T5_SELF} ( layer_norm EncDecAttention( q k v o ) .dropout! ) ( layer_norm {_DENSE} ) )"

LAYERS = {
    "bart": _BART,
    "bert": _BERT,
    "blenderbot": _BART,
    "bloom": "( input_layernorm self_attention( query_key_value .attention_dropout dense ? ) "
    "post_attention_layernorm mlp( dense_h_to_4h .gelu_impl dense_4h_to_h ? ) )",
    "cohere": f"( input_layernorm {_ATTENTION} {_GATED} )",
    "deepseek_v2": f"( input_layernorm {_LATENT} post_attention_layernorm {_EXPERTS} )",
    "falcon": "( ln_attn ln_mlp input_layernorm self_attention( query_key_value dense ) "
    "post_attention_layernorm mlp( dense_h_to_4h .act dense_4h_to_h ) ? )",
    "gemma2": f"( input_layernorm {_ATTENTION} post_attention_layernorm pre_feedforward_layernorm {_GATED} "
    "post_feedforward_layernorm )",
    "glm": f"( input_layernorm {_ATTENTION} post_self_attn_layernorm post_attention_layernorm {_GLM} "
    "post_mlp_layernorm )",
    "gpt2": _GPT2,
    "gpt_neo": "( ln_1 attn( attention( q_proj k_proj v_proj .attn_dropout out_proj .resid_dropout ) ) "
    "ln_2 mlp( c_fc .act c_proj .dropout? ) )",
    "gpt_neox": "( input_layernorm attention( query_key_value dense ) .post_attention_dropout "
    "post_attention_layernorm mlp( dense_h_to_4h .act dense_4h_to_h ) .post_mlp_dropout? )",
    "gpt_oss": "( input_layernorm self_attn+( q_proj k_proj v_proj o_proj ) post_attention_layernorm "
    "mlp( router experts ) )",
    "gptj": "( ln_1 attn( q_proj k_proj v_proj out_proj .resid_dropout ) "
    "mlp( fc_in .act fc_out .dropout? ) )",
    "granitemoe": f"( input_layernorm {_ATTENTION} post_attention_layernorm "
    "block_sparse_moe( router experts+( .act_fn ) ) )",
    "llama": _LLAMA,
    "llama4_text": "( input_layernorm self_attn( q_proj k_proj v_proj .qk_norm .qk_norm o_proj ) "
    "post_attention_layernorm feed_forward( gate_proj .activation_fn up_proj down_proj "
    "router experts+( .act_fn ) shared_expert( gate_proj .activation_fn up_proj down_proj ) ) )",
    "mixtral": _MOE,
    "mpt": "( norm_1 attn( Wqkv out_proj ) .resid_attn_dropout norm_2 ffn( up_proj .act down_proj ? ) )",
    "olmo": f"( .input_layernorm {_ATTENTION} .post_attention_layernorm {_GATED} )",
    "olmo2": f"( {_ATTENTION} post_attention_layernorm {_GATED} post_feedforward_layernorm )",
    "opt": _BART,
    "phi": "( input_layernorm self_attn( q_proj k_proj v_proj dense ) .resid_dropout "
    "mlp( fc1 .activation_fn fc2 ) .resid_dropout? )",
    "phi3": "( input_layernorm self_attn( qkv_proj o_proj ) .resid_attn_dropout post_attention_layernorm "
    f"{_GLM} .resid_mlp_dropout? )",
    "seed_oss": f"( input_layernorm {_ATTENTION} post_attention_layernorm "
    "mlp( gate_proj .act_fn up_proj down_proj ! ) )",
    "stablelm": f"( input_layernorm {_ATTENTION} post_attention_layernorm {_GATED} .dropout? )",
    "starcoder2": f"( input_layernorm {_ATTENTION} post_attention_layernorm mlp( c_fc .act c_proj ? ) )",
    "t5 encoder": _T5,
    "t5 decoder": _T5_CROSS,
    "vit": "( layernorm_before attention( q_proj k_proj v_proj o_proj ) .dropout layernorm_after "
    "mlp( fc1 .activation_fn fc2 ) .dropout? )",
}
"""Modules of a layer, in forward's order, of the families that have one of their own.

A name is a module with parameters, which a layer may lack; with a dot it has none, with a tilde its output
has no gradient. What ends in `(` is around others, with `+` it has parameters itself; `^` names the module
inside whose weight it reads (`DenseReluDense` looks at `wo.weight.dtype`), so that the weight is fetched for
it too, as an external parameter (`parameter_offload.py:ZeROOrderedDict`). `!` drops out,
`?` only if it is said, and `&` multiplies: backward needs what forward kept of it.
"""

_DECODER = "( model( embed_tokens ~rotary_emb * norm ) lm_head )"
_BERT_LIKE = (
    "embeddings( word_embeddings token_type_embeddings position_embeddings LayerNorm .dropout ) encoder( * )"
)
_STACKS = (
    "( model( encoder( embed_tokens {0} layernorm_embedding * layer_norm ) "
    "decoder( embed_tokens {0} layernorm_embedding * layer_norm ) ) lm_head )"
)
WHOLE = {
    "bart": _STACKS.format("embed_positions"),
    "bert": f"( bert( {_BERT_LIKE} ) "
    "cls( predictions( transform( dense .transform_act_fn LayerNorm ) decoder ) ) )",
    "blenderbot": _STACKS.format("embed_positions"),
    "bloom": "( transformer( word_embeddings word_embeddings_layernorm * ln_f ) lm_head )",
    "falcon": "( transformer( word_embeddings ~rotary_emb * ln_f ) lm_head )",
    "gpt2": "( transformer( wte wpe .drop * ln_f ) lm_head )",
    "gpt_neox": "( gpt_neox( embed_in .emb_dropout ~rotary_emb * final_layer_norm ) lm_head embed_out )",
    "gptj": "( transformer( wte .drop ~rotary_emb * ln_f ) lm_head )",
    "m2m_100": _STACKS.format("~embed_positions"),
    "mpt": "( transformer( wte * norm_f ) lm_head )",
    "olmo": "( model( embed_tokens ~rotary_emb * .norm ) lm_head )",
    "opt": "( decoder( embed_tokens embed_positions project_in * final_layer_norm project_out ) lm_head )",
    "phi": "( model( embed_tokens .embed_dropout ~rotary_emb * final_layernorm ) lm_head )",
    **dict.fromkeys(
        ("roberta", "xlm-roberta"),
        f"( roberta( {_BERT_LIKE} ) lm_head( dense layer_norm decoder ) )",
    ),
    "t5": "( encoder( embed_tokens .dropout * final_layer_norm .dropout ) "
    "decoder( embed_tokens .dropout * final_layer_norm .dropout ) lm_head )",
    "vit": "( vit( embeddings+( patch_embeddings( projection ) .dropout ) * layernorm ) classifier )",
}
"""The same of whole models; a star is a stack of layers."""

_LIKE = {
    **dict.fromkeys(("cohere2",), "cohere"),
    **dict.fromkeys(("deepseek_v3",), "deepseek_v2"),
    **dict.fromkeys(("gemma3_text",), "gemma2"),
    **dict.fromkeys(("glm4",), "glm"),
    **dict.fromkeys(("glm4_moe", "minimax_m2", "olmoe", "qwen2_moe", "qwen3_moe"), "mixtral"),
    **dict.fromkeys(("gpt_bigcode", "gpt_neo"), "gpt2"),
    **dict.fromkeys(("m2m_100", "mbart"), "bart"),
    **dict.fromkeys(("mt5",), "t5"),
    **dict.fromkeys(("olmo3",), "olmo2"),
    **dict.fromkeys(("xlm-roberta", "roberta"), "bert"),
}
"""Families that are built like another; those that are not named are like Llama."""


@dataclass
class Node:
    """A module as the tables have it.

    `own`: it has parameters; `drops`: whether it needs what forward kept; `reads`: whose weight it reads.
    """

    name: str
    path: str = ""
    own: bool = False
    silent: bool = False
    drops: str = ""
    reads: str = ""
    inside: list[Node] = field(default_factory=list)


@lru_cache(maxsize=128)
def layer_tree(family: str, stack: str) -> Node:
    """A layer of a family; `stack` is what the names of its operators begin with."""
    like = _LIKE.get(family, "llama")
    keys = (f"{family} {stack}", f"{like} {stack}", family, like)
    return _parsed(next(LAYERS[key] for key in keys if key in LAYERS))


@lru_cache(maxsize=128)
def whole_tree(family: str) -> Node:
    """A model of a family, around its stacks of layers."""
    like = _LIKE.get(family, "llama")
    return _parsed(next((WHOLE[key] for key in (family, like) if key in WHOLE), _DECODER))


def _parsed(text: str) -> Node:
    top = Node("")
    around = [top]
    for word in text.split():
        if word == ")":
            around.pop()
            continue
        node = _node(word)
        parent = around[-1]
        node.path = f"{parent.path}.{node.name}".strip(".") if node.name else parent.path
        parent.inside.append(node)
        if word.endswith("("):
            around.append(node)
    return top


def _node(word: str) -> Node:
    if word in ("!", "?", "&"):
        return Node("", drops=word)
    bare = word.strip("(")
    if bare.startswith((".", "~")):
        name = bare[1:].rstrip("!?")
        return Node(name, silent=bare[0] == "~", drops=bare[len(name) + 1 :])
    name, _, reads = bare.partition("^")
    own = not word.endswith("(") or name.endswith("+")
    return Node(name.rstrip("+"), own=own, reads=reads)
