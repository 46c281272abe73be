"""Stand-ins for DeepSpeed's compiled ops, in plain Python, so that its engine runs without a compiler.

They are put where DeepSpeed keeps ops that it has built. Everything above them (ZeRO, the swappers,
the engine) is DeepSpeed's own. All bytes to and from swap files and all page-locked memory pass
through here and are counted in a `Meter`.
"""

from __future__ import annotations

import math
import os
from types import SimpleNamespace

import torch


class AioHandle:
    """The asynchronous file handle, made synchronous."""

    def __init__(self, meter, block_size, intra_op_parallelism=1):
        if block_size % 512:
            raise ValueError(f"aio.block_size {block_size} is not a multiple of 512")
        self._meter = meter
        self._parallelism = intra_op_parallelism
        self._pending = 0

    def new_cpu_locked_tensor(self, count, example):
        return self._meter.lock(torch.empty(count, dtype=example.dtype))

    def free_cpu_locked_tensor(self, tensor):
        return self._meter.unlock(tensor.data_ptr())

    def is_pinned(self, tensor):
        return self._meter.is_locked(tensor)

    def async_pread(self, tensor, path, offset):
        self._check(tensor)
        with open(path, "rb") as file:
            file.seek(offset)
            assert file.readinto(_bytes_of(tensor)) == tensor.nbytes, f"{path} is too short"
        self._meter.read(path, tensor.nbytes)
        return 0

    def async_pwrite(self, tensor, path, offset):
        self._check(tensor)
        with open(path, "r+b" if os.path.exists(path) else "wb") as file:
            file.seek(offset)
            file.write(_bytes_of(tensor))
        self._meter.write(path, tensor.nbytes)
        return 0

    def wait(self):
        done, self._pending = self._pending, 0
        return done

    def _check(self, tensor):
        assert tensor.nbytes % self._parallelism == 0, "a request must divide evenly among the threads"
        self._pending += 1


class PinHandle:
    """The allocator behind DS_PIN_MEMORY_BACKEND=native: makes what torch would pin visible."""

    def __init__(self, meter):
        self._meter = meter

    def new_cpu_locked_tensor(self, count, example):
        return self._meter.lock(torch.empty(count, dtype=example.dtype))

    def free_cpu_locked_tensor_by_ptr(self, pointer):
        return self._meter.unlock(pointer)


class CpuAdam:
    """Adam on one flat tensor; in place, as the compiled one."""

    def __init__(self):
        self._decoupled = {}

    def create_adam(self, optimizer, lr, beta1, beta2, eps, weight_decay, decoupled, log):
        self._decoupled[optimizer] = decoupled

    def destroy_adam(self, optimizer):
        self._decoupled.pop(optimizer, None)

    def adam_update(
        self, optimizer, step, lr, beta1, beta2, eps, weight_decay, correct, param, grad, mean, square
    ):
        settings = (lr, beta1, beta2, eps, step, self._decoupled[optimizer], correct, weight_decay)
        _adam(grad, param, mean, square, *settings)


@torch.no_grad()
def _multi_tensor_adam(chunk_size, overflow, tensors, *settings):
    for one in zip(*tensors, strict=True):
        _adam(*one, *settings)


def _adam(grad, param, mean, square, lr, beta1, beta2, eps, step, decoupled, correct, weight_decay):
    grad = grad.to(mean.dtype)
    if weight_decay and not decoupled:
        grad = grad + weight_decay * param.to(mean.dtype)
    mean.mul_(beta1).add_(grad, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    if weight_decay and decoupled:
        param.mul_(1 - lr * weight_decay)
    bias1, bias2 = (1 - beta1**step, math.sqrt(1 - beta2**step)) if correct else (1.0, 1.0)
    denominator = (square.sqrt() / bias2).add_(eps)
    param.addcdiv_(mean.to(param.dtype), denominator.to(param.dtype), value=-lr / bias1)


class CpuLion:
    """Lion on one flat tensor; in place, as the compiled one."""

    def create_lion(self, optimizer, lr, beta1, beta2, weight_decay, log):
        pass

    def destroy_lion(self, optimizer):
        pass

    def lion_update(self, optimizer, step, lr, beta1, beta2, weight_decay, param, grad, mean):
        _lion(grad, param, mean, lr, beta1, beta2, step, weight_decay)


@torch.no_grad()
def _multi_tensor_lion(chunk_size, overflow, tensors, *settings):
    for one in zip(*tensors, strict=True):
        _lion(*one, *settings)


def _lion(grad, param, mean, lr, beta1, beta2, step, weight_decay):
    grad = grad.to(mean.dtype)
    direction = mean.mul(beta1).add_(grad, alpha=1 - beta1).sign_()
    param.mul_(1 - lr * weight_decay).add_(direction.to(param.dtype), alpha=-lr)
    mean.mul_(beta2).add_(grad, alpha=1 - beta2)


def _bytes_of(tensor):
    return memoryview(tensor.detach().view(torch.uint8).numpy())


def install(meter):
    """Make DeepSpeed find the stand-ins where it looks for ops already loaded."""
    import deepspeed
    from deepspeed.ops.op_builder.builder import OpBuilder
    from deepspeed.ops.op_builder.pin_memory import PinMemoryBuilder

    def aio_handle(
        block_size=1 << 20, queue_depth=8, single_submit=False, overlap_events=True, intra_op_parallelism=1
    ):
        return AioHandle(meter, block_size, intra_op_parallelism)

    OpBuilder._loaded_ops.update(
        {
            "async_io": SimpleNamespace(aio_handle=aio_handle),
            "cpu_adam": CpuAdam(),
            "fused_adam": SimpleNamespace(multi_tensor_adam=_multi_tensor_adam),
            "cpu_lion": CpuLion(),
            "fused_lion": SimpleNamespace(multi_tensor_lion=_multi_tensor_lion),
            PinMemoryBuilder.NAME: SimpleNamespace(pin_handle=lambda: PinHandle(meter)),
        }
    )
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
