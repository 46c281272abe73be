"""Train a small model with the real FSDP and count what it passes through memory by itself.

A program of the nursery; a job has `model` (a Hugging Face config), `world`, of which this process is rank 0
(the others are torch's fake process group), `steps` of accumulation, `dtype`, `frozen` (ends of the names of
what is not trained), and `flat` for FSDP1 in FSDP2's place. Counted are the bytes that kernels read and write
for gathers, for sums of gradients and for clipping, by the function that asked for them: not what layers
compute, collectives, nor the update.
"""

from __future__ import annotations

import os
import sys
from collections import Counter

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine.fsdp_train import join

IMPORTS = ("torch.testing._internal.distributed.fake_pg", "transformers.models.llama.modeling_llama")

WRITTEN_FIRST = {"copy_", "_foreach_copy_"}
"""Operators that write their first argument and do not read it."""

WRITTEN_OUT = {"chunk_cat", "split_with_sizes_copy"}
"""Operators that write what `out` names."""

READ_ALONE = {"_foreach_norm", "linalg_vector_norm"}
NO_KERNEL = {"detach", "empty", "empty_like", "empty_strided", "new_empty", "_local_scalar_dense", "resize_"}
COLLECTIVES = {"allgather_", "allreduce_", "_allgather_base_", "_reduce_scatter_base_"}

HELPERS = {"_to_dtype_if_needed", "_div_if_needed"}
"""Functions that are told apart by who calls them."""

OWNERS = (os.path.join("distributed", "fsdp"), "clip_grad.py")


class Counted(TorchDispatchMode):
    """Bytes by the function of FSDP's that asks for a kernel; "autograd" where autograd joins gradients."""

    def __init__(self):
        super().__init__()
        self.bytes = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = function(*args, **kwargs)
        name = function.name().split("::")[1].split(".")[0]
        owner = asker()
        if not function.is_view and name not in NO_KERNEL | COLLECTIVES and owner:
            self.bytes[owner] += moved(name, args, kwargs, out)
        elif name == "cat" and owner is None:
            self.bytes["autograd"] += moved(name, args, kwargs, out)
        return out


def moved(name, args, kwargs, out):
    """Bytes that a kernel reads and writes."""
    if name == "all_gather_copy_in":  # shards, into their place in what is gathered
        return 2 * size(args[0])
    if name in WRITTEN_OUT:
        return size(args) + size(kwargs["out"])
    if name in WRITTEN_FIRST | READ_ALONE:
        return size(args)
    return size((args, kwargs)) + size(out if out is not None else args[0])


def size(values):
    """Bytes of tensors, of a DTensor those that this rank has."""
    tensors = (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))
    return sum((each._local_tensor if isinstance(each, DTensor) else each).nbytes for each in tensors)


def asker():
    """The nearest function of FSDP's, or of clipping's, that called it; None where a layer did."""
    frame = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename
        if frame.f_code.co_name not in HELPERS and any(owner in path for owner in OWNERS):
            return frame.f_code.co_name
        if frame.f_code.co_name in ("forward", "backward") and f"{os.sep}distributed{os.sep}" not in path:
            return None
        frame = frame.f_back
    return None


def sharded(job, model):
    """The model as FSDP2 or FSDP1 divides it, and what clips its gradients."""
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    dtype = getattr(torch, job["dtype"])
    if job["flat"]:
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        model = FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy({LlamaDecoderLayer}),
            mixed_precision=MixedPrecision(param_dtype=dtype, reduce_dtype=dtype),
            device_id=torch.device("cpu"),
        )
        return model, model.clip_grad_norm_
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
    for layer in (*model.model.layers, model):
        fully_shard(layer, mp_policy=policy)
    return model, lambda most: torch.nn.utils.clip_grad_norm_(model.parameters(), most)


def run(job):
    from transformers import AutoConfig, AutoModelForCausalLM

    join({"simulated": True, "rank": 0, "world": job["world"]})
    shape = AutoConfig.for_model(**job["model"])
    model = AutoModelForCausalLM.from_config(shape, attn_implementation="sdpa", dtype=torch.float32).train()
    for name, parameter in model.named_parameters():
        if name.removesuffix(".weight").endswith(tuple(job["frozen"])):
            parameter.requires_grad_(False).data = parameter.data.to(getattr(torch, job["dtype"]))
    model, clip = sharded(job, model)
    batches = torch.Generator().manual_seed(1)
    for _ in range(2):
        with Counted() as counted:
            for _ in range(job["steps"]):
                tokens = torch.randint(0, job["model"]["vocab_size"], (1, 4), generator=batches)
                model(input_ids=tokens, labels=tokens).loss.backward()
            clip(1.0)
        model.zero_grad()
    return dict(counted.bytes)
