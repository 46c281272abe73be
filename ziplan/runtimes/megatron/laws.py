"""Formulas of tensor and pipeline parallelism, those of Megatron-LM's papers and documentation.

A *stage* is what one pipeline rank holds; its tensor-parallel ranks divide every matrix of it.
"""

from __future__ import annotations

from ziplan.laws.law import law, maximum, minimum
from ziplan.units import Bytes, BytesPerParam, BytesPerToken, Count, Flops, Params, Ratio, Tokens


@law("arXiv:2104.04473 sec 2.2 and 2.3")
def stage_params(block_params: Params, outer_params: Params, tp_degree: Count, pp_degree: Count) -> Params:
    """Parameters of one GPU of the fullest stage: its layers, and what lies before or after all layers."""
    return (block_params / pp_degree + outer_params) / tp_degree


@law("Megatron-LM docs/user-guide/features/dist_optimizer.md")
def rank_state_bytes(
    params: Params,
    replicated_bytes_per_param: BytesPerParam,
    sharded_bytes_per_param: BytesPerParam,
    shard_count: Count,
) -> Bytes:
    """Bytes of the state of a GPU's own parameters, of which the distributed optimizer divides a part."""
    return params * (replicated_bytes_per_param + sharded_bytes_per_param / shard_count)


@law("arXiv:2205.05198 eq 2")
def divided_bytes_per_token(
    whole_bytes_per_token: BytesPerToken, replicated_bytes_per_token: BytesPerToken, tp_degree: Count
) -> BytesPerToken:
    """Bytes that a layer keeps on one GPU: what is not divided over the group, and a part of the rest."""
    return (
        replicated_bytes_per_token
        + maximum(0.0, whole_bytes_per_token - replicated_bytes_per_token) / tp_degree
    )


@law("arXiv:2104.04473 sec 2.2 (1F1B)")
def layers_in_flight(layer_count: Count, pp_degree: Count, accumulation_steps: Count) -> Count:
    """Layers times micro-batches whose activations the first stage keeps at once."""
    return layer_count / pp_degree * minimum(pp_degree, accumulation_steps)


@law("arXiv:2205.05198 sec 4.2.3")
def interleaved_layers_in_flight(
    layer_count: Count, pp_degree: Count, vpp_degree: Count, accumulation_steps: Count
) -> Count:
    """The same where stages are cut into pieces: of one piece pp_degree - 1 micro-batches more."""
    return (
        layer_count
        / (pp_degree * vpp_degree)
        * minimum(vpp_degree * pp_degree + pp_degree - 1, vpp_degree * accumulation_steps)
    )


@law("arXiv:2104.04473 sec 2.2 (time of the bubble)")
def idle_micro_steps(pp_degree: Count, vpp_degree: Count) -> Count:
    """Micro-steps' worth of time that a stage waits in a step, filling and draining the pipeline."""
    return (pp_degree - 1) / vpp_degree


@law("arXiv:2104.04473 sec 2.3")
def divided_flops(flops: Flops, tp_degree: Count, pp_degree: Count) -> Flops:
    """What one GPU computes of a micro-batch that stages divide (of the head 1 stage has all)."""
    return flops / (tp_degree * pp_degree)


@law("arXiv:2205.05198 sec 4.2")
def divided_traffic(
    memory_bytes: Bytes, replicated_share: Ratio, tp_degree: Count, pp_degree: Count
) -> Bytes:
    """Bytes through one GPU's memory of a micro-batch: norms, dropouts and residuals are not divided."""
    return memory_bytes / pp_degree * (replicated_share + (1 - replicated_share) / tp_degree)


@law("arXiv:2104.04473 sec 3.2")
def all_reduced_bytes(
    tokens_per_rank: Tokens,
    boundary_bytes_per_token: BytesPerToken,
    layer_count: Count,
    pp_degree: Count,
    all_reduce_count: Count,
    ring_passes: Count,
    tp_degree: Count,
) -> Bytes:
    """Bytes that one GPU sends in the all-reduces of a micro-batch within its tensor-parallel group."""
    return (
        all_reduce_count
        * ring_passes
        * (tp_degree - 1)
        / tp_degree
        * tokens_per_rank
        * boundary_bytes_per_token
        * layer_count
        / pp_degree
    )


@law("arXiv:2104.04473 sec 3.2 and 4.1")
def boundary_bytes(
    tokens_per_rank: Tokens,
    boundary_bytes_per_token: BytesPerToken,
    sweep_count: Count,
    vpp_degree: Count,
    sender_count: Count,
) -> Bytes:
    """Bytes between two stages in a micro-batch: activations forward, gradients backward, of each piece."""
    return sweep_count * vpp_degree * sender_count * boundary_bytes_per_token * tokens_per_rank


@law("arXiv:2104.04473 sec 3.3")
def data_parallel_bytes(
    params: Params, exchanged_bytes_per_param: BytesPerParam, dp_degree: Count, ring_count: Count
) -> Bytes:
    """Bytes of a rank's gradients (and updated parameters) in rings over the replicas, so many at once."""
    return ring_count * exchanged_bytes_per_param * params * (dp_degree - 1) / dp_degree
