"""What the host's memory costs beside the bytes that pass through it."""

from __future__ import annotations

from ziplan.laws.law import law
from ziplan.units import Bytes, BytesPerParam, Count, Params, Ratio, Seconds


@law(
    "https://man7.org/linux/man-pages/man3/mallopt.3.html (M_MMAP_THRESHOLD); "
    "https://docs.kernel.org/admin-guide/mm/concepts.html (anonymous memory)"
)
def fresh_memory_time(
    fresh_bytes: Bytes,
    page_bytes: Bytes,
    page_fault_time: Seconds,
    page_free_time: Seconds,
    threads_per_rank: Count,
) -> Seconds:
    """Time in which the system hands out memory, page by page as threads write to it, and takes it back.

    A large block goes back when it is freed: page by page too, in the one thread that frees it.
    """
    return fresh_bytes / page_bytes * (page_fault_time / threads_per_rank + page_free_time)


@law("torch 2.13 optim/adam.py:_single_tensor_adam")
def temporary_bytes(
    params: Params, bytes_per_param: BytesPerParam, temporary_count: Count, dp_degree: Count, share: Ratio
) -> Bytes:
    """Bytes of new tensors that one rank's update of single operators makes and drops on the host."""
    return share * temporary_count * bytes_per_param * params / dp_degree


@law("torch 2.13 nn/utils/clip_grad.py:get_total_norm; aten/src/ATen/native/cpu/ReduceOpsKernel.cpp")
def measured_gradient_bytes(
    params: Params, grad_bytes_per_param: BytesPerParam, dp_degree: Count, share: Ratio
) -> Bytes:
    """Bytes of one rank's gradients on the host that their norm is taken of."""
    return share * grad_bytes_per_param * params / dp_degree
