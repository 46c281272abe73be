"""The pipeline ahead of compute: layer times, depth, buffers, what stays exposed."""

from __future__ import annotations

from ziplan.laws.law import ceil, law, maximum
from ziplan.units import Bytes, Count, FlopsPerParamToken, FlopsPerSecond, Params, Seconds, Tokens


@law("article: Prefetch depth: how far ahead the pipeline must run")
def layer_time(step_compute_time: Seconds, layer_count: Count) -> Seconds:
    """One layer's share of a whole micro-step's compute: forward, recompute and backward."""
    return step_compute_time / layer_count


@law("arXiv:2104.07857 sec 4.1")
def layer_forward_time(
    params: Params,
    tokens_per_rank: Tokens,
    forward_flops_per_param_token: FlopsPerParamToken,
    layer_count: Count,
    sustained_flops_per_s: FlopsPerSecond,
) -> Seconds:
    """Compute time of one layer in the forward sweep."""
    return forward_flops_per_param_token * params * tokens_per_rank / (layer_count * sustained_flops_per_s)


@law("arXiv:2104.07857 sec 4.1")
def layer_backward_time(
    params: Params,
    tokens_per_rank: Tokens,
    recompute_flops_per_param_token: FlopsPerParamToken,
    backward_flops_per_param_token: FlopsPerParamToken,
    layer_count: Count,
    sustained_flops_per_s: FlopsPerSecond,
) -> Seconds:
    """Compute time of one layer in the backward sweep, recomputation included."""
    return (
        (recompute_flops_per_param_token + backward_flops_per_param_token)
        * params
        * tokens_per_rank
        / (layer_count * sustained_flops_per_s)
    )


@law("article: Prefetch depth: how far ahead the pipeline must run")
def prefetch_depth(fetch_time: Seconds, layer_time: Seconds) -> Count:
    """Layers of lookahead that hide a fetch, at least one.

    Parameters are fetched once in each sweep, so a plan takes the layer time of the faster
    sweep, the forward one; the article divides by the layer time of the whole micro-step.
    """
    return maximum(1, ceil(fetch_time / layer_time))


@law("article: Prefetch depth: how far ahead the pipeline must run")
def prefetch_buffer_bytes(prefetch_depth: Count, layer_bytes: Bytes) -> Bytes:
    """Bytes of the lookahead buffers, beside the layer in use."""
    return prefetch_depth * layer_bytes


@law("article: Prefetch depth: how far ahead the pipeline must run")
def resident_layer_bytes(prefetch_depth: Count, layer_bytes: Bytes) -> Bytes:
    """Bytes of the lookahead buffers and of the layer in use."""
    return (prefetch_depth + 1) * layer_bytes


@law("article: Prefetch depth: how far ahead the pipeline must run")
def stall_time(fetch_time: Seconds, layer_time: Seconds) -> Seconds:
    """Time for which compute waits on one layer when fetches run side by side with compute."""
    return maximum(0, fetch_time - layer_time)
