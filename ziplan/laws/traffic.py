"""What moves, and how long moving and computing take."""

from __future__ import annotations

from ziplan.laws.law import law, maximum
from ziplan.units import (
    Bytes,
    BytesPerParam,
    BytesPerSecond,
    BytesPerToken,
    Count,
    Flops,
    FlopsPerSecond,
    Params,
    Seconds,
    Tokens,
)


@law("article: The FLOPs-per-byte test every tier must pass")
def streamed_bytes_per_param(param_bytes_per_param: BytesPerParam, param_loads: Count) -> BytesPerParam:
    """Bytes that climb for each parameter in a micro-step: two loads of 2 B, gradients left out."""
    return param_loads * param_bytes_per_param


@law("arXiv:2104.07857 sec 4.1")
def streamed_bytes_per_param_with_gradients(
    param_bytes_per_param: BytesPerParam,
    param_loads: Count,
    grad_bytes_per_param: BytesPerParam,
    grad_stores: Count,
) -> BytesPerParam:
    """Bytes that move for each parameter in a micro-step: three loads and one gradient store, 8 B."""
    return param_loads * param_bytes_per_param + grad_stores * grad_bytes_per_param


@law("article: The FLOPs-per-byte test every tier must pass")
def parameter_traffic(params: Params, streamed_bytes_per_param: BytesPerParam) -> Bytes:
    """Bytes of parameters (and gradients, where counted) that move in one micro-step."""
    return streamed_bytes_per_param * params


@law("article: The FLOPs-per-byte test every tier must pass")
def transfer_time(bytes_moved: Bytes, link_bandwidth: BytesPerSecond) -> Seconds:
    """Time to move bytes over a link that nothing else uses."""
    return bytes_moved / link_bandwidth


@law("article: The FLOPs-per-byte test every tier must pass")
def compute_time(flops: Flops, sustained_flops_per_s: FlopsPerSecond) -> Seconds:
    """Time of arithmetic at the sustained rate."""
    return flops / sustained_flops_per_s


@law("arXiv:2007.00072 sec 3")
def product_time(flops: Flops, product_flops_per_s: FlopsPerSecond) -> Seconds:
    """Time of one kind of products (with matrices, of attention) at the rate that its kernels reach."""
    return flops / product_flops_per_s


@law("arXiv:2205.05198 sec 4.1; arXiv:2007.00072 sec 3")
def activation_traffic(
    tokens_per_rank: Tokens,
    layer_count: Count,
    activation_bytes_per_token: BytesPerToken,
    access_count: Count,
) -> Bytes:
    """Bytes that activations move through the GPU's memory in one micro-step.

    A tensor that backward needs is written and read in forward (2 accesses), so again where it is
    recomputed (2), and read once more in backward, where its gradient is written and read (3).
    """
    return tokens_per_rank * layer_count * activation_bytes_per_token * access_count


@law("https://doi.org/10.1145/1498765.1498785")
def exposed_weight_bytes(
    weight_bytes: Bytes, flops: Flops, product_flops_per_s: FlopsPerSecond, memory_bandwidth: BytesPerSecond
) -> Bytes:
    """Bytes of weights that are still to be read when their products are done: the roofline's other side."""
    return maximum(0.0, weight_bytes - memory_bandwidth * flops / product_flops_per_s)
