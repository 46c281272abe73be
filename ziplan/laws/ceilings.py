"""The largest model by capacity, by width and by compute."""

from __future__ import annotations

from ziplan.laws.law import law, sqrt
from ziplan.units import (
    Bytes,
    BytesPerParam,
    BytesPerToken,
    Count,
    Flops,
    FlopsPerParamToken,
    FlopsPerSecond,
    Params,
    Ratio,
    Seconds,
    Tokens,
    TokensPerParam,
)


@law("article: What ZeRO-Infinity adds on top of stage 3")
def aggregate_capacity(
    node_count: Count, hbm_capacity: Bytes, dram_capacity: Bytes, nvme_capacity: Bytes
) -> Bytes:
    """Bytes of all tiers of all nodes; each capacity is a whole node's."""
    return node_count * (hbm_capacity + dram_capacity + nvme_capacity)


@law("article: The ceiling that is advertised, and the one that binds")
def tier_capacity(node_count: Count, instances_per_node: Count, instance_capacity: Bytes) -> Bytes:
    """Bytes of one tier over all nodes: so many drives (or GPUs) of so many bytes in each."""
    return node_count * instances_per_node * instance_capacity


@law("article: The ceiling that is advertised, and the one that binds")
def max_params_by_capacity(capacity: Bytes, state_bytes_per_param: BytesPerParam) -> Params:
    """The largest model whose persistent state fits."""
    return capacity / state_bytes_per_param


@law("article: The ceiling that is advertised, and the one that binds")
def max_d_model_by_width(
    available_bytes: Bytes,
    tokens_per_rank: Tokens,
    widest_params_per_squared_width: Params,
    param_bytes_per_param: BytesPerParam,
    tile_buffer_count: Count,
    tile_count: Count,
    operator_bytes_per_token_width: BytesPerToken,
) -> Count:
    """The widest model whose widest operator runs in this memory, in so many tiles at most.

    The width d that solves a d^2 + b d = available bytes, where a d^2 is the buffers for a tile
    (4 d^2 parameters over the tile count) and b d the operator's input and output
    (tokens, times d + 4d, times 2 B).
    """
    return (
        2
        * available_bytes
        / (
            operator_bytes_per_token_width * tokens_per_rank
            + sqrt(
                (operator_bytes_per_token_width * tokens_per_rank) ** 2
                + 4
                * available_bytes
                * widest_params_per_squared_width
                * param_bytes_per_param
                * tile_buffer_count
                / tile_count
            )
        )
    )


@law("article: The ceiling that is advertised, and the one that binds")
def max_params_by_compute(
    training_time: Seconds,
    cluster_flops_per_s: FlopsPerSecond,
    flops_per_param_token: FlopsPerParamToken,
    tokens_per_param: TokensPerParam,
) -> Params:
    """The largest model that this much time trains on its share of tokens."""
    return sqrt(training_time * cluster_flops_per_s / (flops_per_param_token * tokens_per_param))


@law("article: The ceiling that is advertised, and the one that binds")
def ceiling_gap(max_params_by_capacity: Params, max_params_by_compute: Params) -> Ratio:
    """How many times more parameters the capacity holds than the compute trains."""
    return max_params_by_capacity / max_params_by_compute


@law("article: The ceiling that is advertised, and the one that binds")
def training_tokens(params: Params, tokens_per_param: TokensPerParam) -> Tokens:
    """Tokens that a model of this size is to be trained on."""
    return tokens_per_param * params


@law("article: The ceiling that is advertised, and the one that binds")
def training_flops(
    params: Params, training_tokens: Tokens, flops_per_param_token: FlopsPerParamToken
) -> Flops:
    """FLOPs of the whole training."""
    return flops_per_param_token * params * training_tokens


@law("article: The ceiling that is advertised, and the one that binds")
def training_time(
    params: Params,
    training_tokens: Tokens,
    flops_per_param_token: FlopsPerParamToken,
    cluster_flops_per_s: FlopsPerSecond,
) -> Seconds:
    """Time of the whole training at the rate that the cluster sustains."""
    return flops_per_param_token * params * training_tokens / cluster_flops_per_s


@law("article: The ceiling that is advertised, and the one that binds")
def training_years(training_time: Seconds, year_length: Seconds) -> Ratio:
    """Training time counted in years of a stated length."""
    return training_time / year_length
