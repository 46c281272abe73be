"""Train a small model with the real DeepSpeed and count what it passes through memory by itself.

A program of the nursery; a job has `config`, `model` (a Hugging Face config) and `world`, of which this
process is rank 0 (the others are torch's fake process group). Counted are the bytes that kernels read and
write in the backward of the first and the last micro-step, and in the step after it: not products, what
autograd runs, collectives, nor the update itself.
"""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine import train
from engine.meter import Meter
from engine.ops import install

IMPORTS = train.IMPORTS

OVERWRITTEN = {"copy_", "zero_", "fill_"}
"""Operators that do not read what they write to."""

NO_KERNEL = {"detach", "empty", "empty_like", "empty_strided", "new_empty", "_local_scalar_dense"}
COLLECTIVES = {"allreduce_", "_allgather_base_", "_reduce_scatter_base_", "broadcast_"}


class Counted(TorchDispatchMode):
    """Bytes that DeepSpeed's own operators read and write while it is on."""

    bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        name = function.name().split("::")[1].split(".")[0]
        if not function.is_view and name not in NO_KERNEL | COLLECTIVES and engines_own():
            read = tensors((args[1:] if name in OVERWRITTEN else args, kwargs))
            self.bytes += sum(each.nbytes for each in (*read, *tensors(out)))
        return out


def tensors(values):
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def engines_own():
    """Whether a function of DeepSpeed called it, and not autograd, which one has called."""
    frame = sys._getframe(2)
    while frame is not None and f"{os.sep}deepspeed{os.sep}" not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name != "backward"


def run(job):
    import deepspeed
    from deepspeed.ops.op_builder.builder import OpBuilder

    train.prepare_environment({"rank": 0, "world": job["world"]})
    install(Meter())
    OpBuilder._loaded_ops["fused_adam"] = SimpleNamespace(multi_tensor_adam=lambda *_: None)
    train.join({"rank": 0, "world": job["world"], "simulated": True})
    spec = {"model": job["model"], "checkpointing": "none", "trainable": "all", "sequence_length": 4}
    model = train.build_model(spec, job["config"])
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=job["config"])
    batches = torch.Generator().manual_seed(1)
    steps, first = engine.gradient_accumulation_steps(), 0
    for number in range(3 * steps):
        tokens = torch.randint(0, job["model"]["vocab_size"], (1, 4), generator=batches)
        loss = engine(input_ids=tokens, labels=tokens).loss
        with Counted() as backward:
            engine.backward(loss)
        with Counted() as step:
            engine.step()
        if number % steps == 0:
            first = backward.bytes
    return {"first": first, "last": backward.bytes, "step": step.bytes}
