"""DeepSpeed's own formulas; the source of each is a function of DeepSpeed 0.19.8."""

from __future__ import annotations

from ziplan.laws.law import ceil, law, minimum, where
from ziplan.units import Bytes, BytesPerParam, Count, Params, ParamsPerSecond, Ratio, Seconds


@law("DeepSpeed 0.19.8 runtime/zero/stage3.py:_create_fp16_partitions_with_defragmentation; stage_1_and_2.py")
def resident_param_bytes(
    zero_stage: Count,
    params: Params,
    owned_params: Params,
    param_bytes_per_param: BytesPerParam,
    share: Ratio,
) -> Bytes:
    """16-bit parameters on one GPU: its shard of what stage 3 keeps there, all of them below stage 3."""
    return param_bytes_per_param * where(zero_stage >= 3, share * owned_params, params)


@law("DeepSpeed 0.19.8 runtime/zero/partitioned_param_coordinator.py:fetch_sub_module")
def gathered_param_bytes(
    zero_stage: Count, live_params: Params, param_bytes_per_param: BytesPerParam
) -> Bytes:
    """Parameters gathered at once in stage 3."""
    return where(zero_stage >= 3, param_bytes_per_param * live_params, 0.0)


@law("DeepSpeed 0.19.8 runtime/zero/partition_parameters.py:AllGatherCoalescedHandle.wait")
def coalesced_fetch_bytes(
    zero_stage: Count, fetched_params: Params, param_bytes_per_param: BytesPerParam, dp_degree: Count
) -> Bytes:
    """The flat buffer of one gather of several tensors, which outlives the copies made from it."""
    return where((zero_stage >= 3) & (dp_degree > 1), param_bytes_per_param * fetched_params, 0.0)


@law(
    "DeepSpeed 0.19.8 runtime/zero/stage3.py:_setup_for_real_optimizer; "
    "stage_1_and_2.py:setup_buckets and allreduce_bucket"
)
def reduce_bucket_bytes(
    zero_stage: Count, reduce_bucket_params: Params, grad_bytes_per_param: BytesPerParam, bucket_count: Count
) -> Bytes:
    """Buffers that gradients are reduced from (stage 0 has none of its own)."""
    return where(zero_stage >= 1, bucket_count * grad_bytes_per_param * reduce_bucket_params, 0.0)


@law("DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py:average_tensor; stage3.py:partition_grads")
def resident_grad_bytes(
    zero_stage: Count,
    params: Params,
    grad_bytes_per_param: BytesPerParam,
    dp_degree: Count,
    share: Ratio,
) -> Bytes:
    """Gradients on one GPU: all of them below stage 2, its shard from stage 2 on (none where offloaded)."""
    return grad_bytes_per_param * params * where(zero_stage >= 2, share / dp_degree, 1.0)


@law("DeepSpeed 0.19.8 runtime/zero/stage3.py:_create_fp32_partitions; stage_1_and_2.py")
def resident_optimizer_bytes(
    zero_stage: Count,
    params: Params,
    optimizer_state_bytes_per_param: BytesPerParam,
    dp_degree: Count,
    share: Ratio,
) -> Bytes:
    """Master weights and moments on one GPU: whole at stage 0, its shard from stage 1 on."""
    return optimizer_state_bytes_per_param * params * share * where(zero_stage >= 1, 1.0 / dp_degree, 1.0)


@law("DeepSpeed 0.19.8 runtime/zero/stage3.py:_prepare_fp32_grad_for_sub_group; stage_1_and_2.py:step")
def step_gradient_bytes(
    stepped_params: Params,
    grad_bytes_per_param: BytesPerParam,
    fp32_bytes_per_param: BytesPerParam,
    share: Ratio,
) -> Bytes:
    """The gradient of what one optimizer call updates on the GPU, flat and once more in fp32."""
    return share * (grad_bytes_per_param + fp32_bytes_per_param) * stepped_params


@law("DeepSpeed 0.19.8 runtime/zero/stage3.py:_constant_buffered_norm2")
def gradient_norm_bytes(
    largest_shard_params: Params, norm_bytes_per_param: BytesPerParam, norm_chunk: Params
) -> Bytes:
    """The fp64 copy that the gradient norm is computed from, at most one chunk."""
    return norm_bytes_per_param * minimum(largest_shard_params, norm_chunk)


@law("DeepSpeed 0.19.8 runtime/swap_tensor/partitioned_param_swapper.py:_configure_aio")
def param_swap_buffer_bytes(
    param_buffer_count: Count,
    param_buffer_params: Params,
    param_bytes_per_param: BytesPerParam,
    share: Ratio,
    ranks_per_instance: Count,
) -> Bytes:
    """Pinned buffers that parameters are read from NVMe into, of all ranks of a node."""
    return share * ranks_per_instance * param_bytes_per_param * param_buffer_count * param_buffer_params


@law("DeepSpeed 0.19.8 runtime/zero/stage3.py:_create_fp16_partitions_with_defragmentation")
def param_write_back_bytes(
    dp_degree: Count,
    sub_group_params: Params,
    param_bytes_per_param: BytesPerParam,
    share: Ratio,
    ranks_per_instance: Count,
) -> Bytes:
    """Pinned buffer for writing updated parameters back, sized by whole tensors: dp times the sub-group."""
    return share * ranks_per_instance * param_bytes_per_param * dp_degree * sub_group_params


@law("DeepSpeed 0.19.8 runtime/swap_tensor/optimizer_utils.py:OptimizerSwapper")
def optimizer_swap_buffer_bytes(
    optimizer_buffer_count: Count,
    sub_group_params: Params,
    buffer_bytes_per_param: BytesPerParam,
    share: Ratio,
    ranks_per_instance: Count,
) -> Bytes:
    """Pinned fp32 buffers that optimizer state is swapped through, of all ranks of a node."""
    return share * ranks_per_instance * optimizer_buffer_count * buffer_bytes_per_param * sub_group_params


@law("DeepSpeed 0.19.8 runtime/zero/partition_parameters.py:_all_gather_dtype")
def gathered_bytes_per_step(
    zero_stage: Count,
    fetched_params: Params,
    param_bytes_per_param: BytesPerParam,
    dp_degree: Count,
) -> Bytes:
    """Parameter bytes that one rank receives from the others in a micro-step (stage 3)."""
    return where(zero_stage >= 3, param_bytes_per_param * fetched_params * (dp_degree - 1) / dp_degree, 0.0)


@law(
    "DeepSpeed 0.19.8 runtime/comm/coalesced_collectives.py:reduce_scatter_coalesced; "
    "stage_1_and_2.py:allreduce_and_scatter"
)
def reduced_bytes(
    params: Params, grad_bytes_per_param: BytesPerParam, dp_degree: Count, passes: Count
) -> Bytes:
    """Gradient bytes that one rank exchanges; a reduce-scatter is one pass, an all-reduce two."""
    return passes * grad_bytes_per_param * params * (dp_degree - 1) / dp_degree


@law("DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py:reduce_ready_partitions_and_remove_grads; stage3.py")
def bucket_passes(params: Params, bucket_params: Params, passes: Count) -> Count:
    """Ways around the ring of all ranks that so many parameters take, a bucket at a time."""
    return passes * ceil(params / bucket_params)


@law("DeepSpeed 0.19.8 runtime/zero/partition_parameters.py:AllGatherCoalescedHandle.wait")
def joined_copy_bytes(
    zero_stage: Count, joined_params: Params, param_bytes_per_param: BytesPerParam, dp_degree: Count
) -> Bytes:
    """Bytes through the GPU's memory to copy tensors that were gathered together out of what was received.

    Each is read and written once; one rank gathers nothing.
    """
    return where((zero_stage >= 3) & (dp_degree > 1), 2 * param_bytes_per_param * joined_params, 0.0)


@law(
    "DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py:reduce_independent_p_g_buckets_and_remove_grads and "
    "average_tensor; stage3.py:__add_grad_to_ipg_bucket; runtime/engine.py:allreduce_bucket; "
    "torch 2.13 csrc/distributed/c10d/reducer.cpp"
)
def swept_gradient_bytes(params: Params, grad_bytes_per_param: BytesPerParam, access_count: Count) -> Bytes:
    """Bytes through the GPU's memory of passes over gradients that are no product's and no update's."""
    return access_count * grad_bytes_per_param * params


@law(
    "DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py:copy_grads_in_partition, get_grad_norm_direct and step; "
    "stage3.py:partition_grads and _prepare_fp32_grad_for_sub_group"
)
def swept_shard_bytes(
    params: Params, bytes_per_param: BytesPerParam, dp_degree: Count, share: Ratio
) -> Bytes:
    """The same of passes over what one rank owns."""
    return share * bytes_per_param * params / dp_degree


@law("DeepSpeed 0.19.8 runtime/zero/partition_parameters.py:AllGatherCoalescedHandle.wait")
def view_time(tensor_count: Count, dp_degree: Count, views_per_rank: Count, view_latency: Seconds) -> Seconds:
    """Time in which the Python thread makes views of what each rank has of tensors."""
    return where(dp_degree > 1, tensor_count * dp_degree * views_per_rank * view_latency, 0.0)


@law("DeepSpeed 0.19.8 runtime/zero/stage3.py:partition_grads")
def host_link_bytes(params: Params, bytes_per_param: BytesPerParam, dp_degree: Count, share: Ratio) -> Bytes:
    """Bytes of one rank's shard that cross its host link."""
    return share * bytes_per_param * params / dp_degree


@law(
    "DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py:reduce_ipg_grads; "
    "https://github.com/deepspeedai/DeepSpeed/pull/1067"
)
def owners_at_once(
    params: Params, dp_degree: Count, reduce_bucket_params: Params, ranks_per_node: Count
) -> Count:
    """How many ranks copy gradients to the host at once, where each owns a stretch of the model.

    Backward comes to one owner after the other. A bucket that reaches over all ranks of a node or more is
    copied by them at once; over fewer, they are neighbours and share a way to the host, and are counted as
    one: at 32 and 64 GPUs, where tensors reach over two and three, backward took as long as at 16
    (arXiv:2104.07857 figure 6c).
    """
    return where(
        minimum(reduce_bucket_params * dp_degree / params, dp_degree) >= ranks_per_node,
        minimum(reduce_bucket_params * dp_degree / params, dp_degree),
        1.0,
    )


@law("DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py:reduce_ipg_grads")
def awaited_bytes(own_bytes: Bytes, dp_degree: Count, owners_at_once: Count) -> Bytes:
    """Bytes that other ranks copy, one turn after the other, while a rank waits."""
    return own_bytes * (dp_degree / owners_at_once - 1)


@law("DeepSpeed 0.19.8 runtime/swap_tensor/partitioned_optimizer_swapper.py")
def swapped_bytes(elements: Params, bytes_per_param: BytesPerParam, share: Ratio) -> Bytes:
    """Bytes of one rank that move between DRAM and NVMe."""
    return share * bytes_per_param * elements


@law("DeepSpeed 0.19.8 runtime/zero/parameter_offload.py:pre_sub_module_forward_function")
def hook_time(module_visits: Count, hook_latency: Seconds) -> Seconds:
    """Time that the Python thread takes to go through the modules, whatever they compute."""
    return module_visits * hook_latency


@law("DeepSpeed 0.19.8 runtime/zero/stage3.py:has_overflow")
def checked_gradients(params: Params, dp_degree: Count, share: Ratio) -> Params:
    """16-bit gradients of one rank that are looked through for what is infinite or no number."""
    return share * params / dp_degree


@law("DeepSpeed 0.19.8 runtime/zero/stage3.py:has_overflow")
def check_time(gradients: Params, check_rate: ParamsPerSecond, threads_per_rank: Count) -> Seconds:
    """Time in which the threads of a rank compute what is infinite or no number."""
    return gradients / (threads_per_rank * check_rate)
