"""The optimizer's pass over its state, which no GPU compute hides."""

from __future__ import annotations

from ziplan.laws.law import law
from ziplan.units import (
    BytesPerParam,
    BytesPerSecond,
    Count,
    FlopsPerByte,
    FlopsPerParam,
    Params,
    ParamsPerSecond,
    Seconds,
)


@law("article: Applying the test: which state can live where")
def optimizer_intensity(
    optimizer_flops_per_param: FlopsPerParam, optimizer_bytes_per_param: BytesPerParam
) -> FlopsPerByte:
    """Intensity of the optimizer's update: Adam does 12 FLOPs on 24 B."""
    return optimizer_flops_per_param / optimizer_bytes_per_param


@law("arXiv:2101.06840 sec 5.1")
def optimizer_bytes_per_param(
    grad_bytes_per_param: BytesPerParam,
    optimizer_state_bytes_per_param: BytesPerParam,
    access_count: Count,
) -> BytesPerParam:
    """Bytes that one pass moves for each parameter: its gradient once, its state both ways."""
    return grad_bytes_per_param + access_count * optimizer_state_bytes_per_param


@law("arXiv:2101.06840 sec 5.1")
def cpu_adam_time(params: Params, cpu_adam_params_per_s: ParamsPerSecond) -> Seconds:
    """Time of the CPU's update at a measured rate."""
    return params / cpu_adam_params_per_s


@law("arXiv:2101.06840 sec 5.1")
def cpu_adam_time_by_bandwidth(
    params: Params, optimizer_bytes_per_param: BytesPerParam, dram_bandwidth: BytesPerSecond
) -> Seconds:
    """Time of the CPU's update when DRAM limits it: 28 B read and written for each parameter."""
    return optimizer_bytes_per_param * params / dram_bandwidth


@law(
    "https://sites.utexas.edu/jdm4372/2025/02/17/single-core-memory-bandwidth-latency-bandwidth-and-concurrency"
)
def cpu_adam_time_by_threads(
    params: Params,
    fetched_bytes_per_param: BytesPerParam,
    thread_count: Count,
    core_bandwidth: BytesPerSecond,
) -> Seconds:
    """Time of the CPU's update where its threads are too few for DRAM to limit it.

    A core has so many reads of memory under way at once, and what it writes in place it has read.
    """
    return fetched_bytes_per_param * params / (thread_count * core_bandwidth)


@law("article: Applying the test: which state can live where")
def optimizer_flash_time(
    params: Params,
    optimizer_bytes_per_param: BytesPerParam,
    drive_count: Count,
    drive_bandwidth: BytesPerSecond,
) -> Seconds:
    """Time of the update's reads and writes over all drives at once."""
    return optimizer_bytes_per_param * params / (drive_count * drive_bandwidth)


@law("article: Applying the test: which state can live where")
def amortized_optimizer_time(optimizer_time: Seconds, accumulation_steps: Count) -> Seconds:
    """The optimizer's share of one micro-step; accumulation amortises nothing else."""
    return optimizer_time / accumulation_steps
