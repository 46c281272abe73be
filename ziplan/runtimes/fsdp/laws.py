"""FSDP2's own formulas; the source of each is a function of PyTorch 2.13.

Parameters are counted as FSDP2 pads them: each tensor's first dimension up to a multiple of the
ranks. A group is what one `fully_shard` call gathers together: a layer, or the root with all that
belongs to no layer.
"""

from __future__ import annotations

from ziplan.laws.law import law, maximum, where
from ziplan.units import Bytes, BytesPerParam, Count, Params, Ratio


@law("torch 2.13 fsdp/_fully_shard/_fsdp_param_group.py:wait_for_unshard; _fsdp_state.py:_lazy_init")
def unsharded_group_bytes(
    root_group_params: Params, layer_group_params: Params, param_bytes_per_param: BytesPerParam
) -> Bytes:
    """Gathered parameters on one GPU: the root's group throughout, and the layer in use."""
    return param_bytes_per_param * (root_group_params + layer_group_params)


@law("torch 2.13 fsdp/_fully_shard/_fsdp_collectives.py:foreach_all_gather")
def all_gather_buffer_bytes(
    buffered_params: Params, param_bytes_per_param: BytesPerParam, dp_degree: Count
) -> Bytes:
    """Flat outputs of gathers under way or not yet copied out; a single rank gathers nothing."""
    return where(dp_degree > 1, param_bytes_per_param * buffered_params, 0.0)


@law("torch 2.13 fsdp/_fully_shard/_fsdp_param_group.py:post_backward")
def unreduced_grad_bytes(
    held_root_params: Params,
    root_group_params: Params,
    layer_group_params: Params,
    released_params: Params,
    grad_bytes_per_param: BytesPerParam,
    copy_count: Count,
) -> Bytes:
    """Whole gradients before they are reduced, each once from autograd and once flat for the reduce-scatter.

    A layer's stand beside those of the root that backward has by then; the root's own are reduced
    last of all, when the parameters of the layers are gone.
    """
    return grad_bytes_per_param * maximum(
        held_root_params + copy_count * layer_group_params, copy_count * root_group_params - released_params
    )


@law("torch 2.13 fsdp/_fully_shard/_fsdp_collectives.py:foreach_all_gather")
def all_gathered_bytes(
    padded_params: Params, param_loads: Count, param_bytes_per_param: BytesPerParam, dp_degree: Count
) -> Bytes:
    """Parameter bytes that one rank receives from the others, gathered so many times."""
    return param_loads * param_bytes_per_param * padded_params * (dp_degree - 1) / dp_degree


@law("torch 2.13 fsdp/_fully_shard/_fsdp_collectives.py:foreach_reduce")
def reduce_scattered_bytes(
    padded_params: Params, grad_bytes_per_param: BytesPerParam, dp_degree: Count
) -> Bytes:
    """Gradient bytes that one rank exchanges in a reduce-scatter."""
    return grad_bytes_per_param * padded_params * (dp_degree - 1) / dp_degree


@law("torch 2.13 fsdp/_fully_shard/_fsdp_param.py:all_gather_inputs; _fsdp_collectives.py:foreach_reduce")
def offload_copy_bytes(
    padded_params: Params,
    param_loads: Count,
    state_bytes_per_param: BytesPerParam,
    dp_degree: Count,
    share: Ratio,
) -> Bytes:
    """Bytes of one rank's shard that cross its host link, as they are held there: in fp32 what is trained."""
    return share * param_loads * state_bytes_per_param * padded_params / dp_degree


@law(
    "torch 2.13 fsdp/_fully_shard/_fsdp_collectives.py:foreach_all_gather, foreach_all_gather_copy_out, "
    "foreach_reduce; fsdp/_flat_param.py and _runtime_utils.py:_reduce_grad"
)
def passed_bytes(
    padded_params: Params,
    whole_bytes_per_param: BytesPerParam,
    own_bytes_per_param: BytesPerParam,
    dp_degree: Count,
) -> Bytes:
    """Bytes through the GPU's memory of passes over whole tensors and over what one rank owns of them."""
    return padded_params * (whole_bytes_per_param + own_bytes_per_param / dp_degree)


@law("torch 2.13 nn/utils/clip_grad.py:_get_total_norm and _clip_grads_with_norm_")
def clipped_bytes(
    padded_params: Params, accessed_bytes_per_param: BytesPerParam, dp_degree: Count, share: Ratio
) -> Bytes:
    """Bytes through one GPU's memory to measure its own gradients and to scale them."""
    return share * accessed_bytes_per_param * padded_params / dp_degree


@law("torch 2.13 optim/adam.py:_fused_adam")
def adam_pass_bytes(
    padded_params: Params, optimizer_bytes_per_param: BytesPerParam, dp_degree: Count, share: Ratio
) -> Bytes:
    """Bytes that the fused optimizer reads and writes in one GPU's memory."""
    return share * optimizer_bytes_per_param * padded_params / dp_degree


@law("torch 2.13 fsdp/_fully_shard/_fsdp_collectives.py:foreach_reduce (sharded_param.grad +=)")
def accumulated_params(
    padded_params: Params,
    dp_degree: Count,
    accumulation_steps: Count,
    added_bytes_per_param: BytesPerParam,
    optimizer_bytes_per_param: BytesPerParam,
    share: Ratio,
    ranks_per_instance: Count,
) -> Params:
    """What adding gradients on the host costs in a micro-step, in parameters that Adam would update.

    The first of the micro-steps adds nothing; host memory limits both kinds of work.
    """
    return (
        share
        * ranks_per_instance
        * padded_params
        / dp_degree
        * (added_bytes_per_param / optimizer_bytes_per_param)
        * (accumulation_steps - 1)
        / accumulation_steps
    )
