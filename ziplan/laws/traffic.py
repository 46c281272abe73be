"""What moves, and how long moving and computing take."""

from __future__ import annotations

from ziplan.laws.law import law
from ziplan.units import (
    Bytes,
    BytesPerParam,
    BytesPerSecond,
    Count,
    Flops,
    FlopsPerSecond,
    Params,
    Seconds,
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
