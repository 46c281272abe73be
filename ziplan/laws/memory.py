"""Memory: bytes of states, activations and logits, split over ranks or held by each."""

from __future__ import annotations

from ziplan.laws.law import law
from ziplan.units import Bytes, BytesPerParam, BytesPerToken, Count, Params, Ratio, Tokens


@law("article: What ZeRO-Infinity adds on top of stage 3")
def sharded_bytes(
    params: Params,
    state_bytes_per_param: BytesPerParam,
    dp_degree: Count,
    share: Ratio,
    ranks_per_instance: Count,
) -> Bytes:
    """Bytes on one instance of a tier of a state that the ranks split among them.

    `share` is the part of the state that lives on the tier, `ranks_per_instance` how many
    ranks keep their shard on the same instance (1 for a GPU, the ranks of a node for DRAM).
    """
    return share * ranks_per_instance * state_bytes_per_param * params / dp_degree


@law("article: What ZeRO-Infinity adds on top of stage 3")
def held_bytes(
    params: Params, state_bytes_per_param: BytesPerParam, share: Ratio, ranks_per_instance: Count
) -> Bytes:
    """Bytes on one instance of a tier of elements that each of its ranks holds whole."""
    return share * ranks_per_instance * state_bytes_per_param * params


@law("arXiv:2205.05198 sec 4")
def activation_bytes(
    tokens_per_rank: Tokens,
    layer_count: Count,
    activation_bytes_per_token: BytesPerToken,
    share: Ratio,
    ranks_per_instance: Count,
) -> Bytes:
    """Bytes that `layer_count` layers keep for backward, of every rank on one instance of a tier."""
    return share * ranks_per_instance * layer_count * activation_bytes_per_token * tokens_per_rank


@law("arXiv:2205.05198 sec 4.3")
def logits_bytes(tokens_per_rank: Tokens, vocab_size: Count, logit_bytes_per_token: BytesPerToken) -> Bytes:
    """Bytes of the logits and of the loss made from them, so many for each token and vocabulary entry."""
    return vocab_size * logit_bytes_per_token * tokens_per_rank


@law("torch.cuda memory management: reserved against allocated")
def allocator_slack(capacity: Bytes, share: Ratio) -> Bytes:
    """Bytes of a GPU's memory that the caching allocator may hold without using them."""
    return share * capacity
