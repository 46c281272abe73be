"""What a run is measured by: bytes by class, locked memory by owner, parameters gathered and live."""

from __future__ import annotations

import os
import sys
from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode

FILE_CLASSES = (
    ("_param.tensor.swp", "param"),
    ("_gradient_", "gradient"),
    ("exp_avg_sq", "exp_avg_sq"),
    ("exp_avg", "exp_avg"),
)


def file_class(path):
    """What a swap file holds: param, gradient, exp_avg, exp_avg_sq, or else the fp32 master."""
    name = os.path.basename(path)
    return next((kind for part, kind in FILE_CLASSES if part in name), "master")


class Meter:
    """Counters of one process. `start_step` begins a step; `step` is what was counted since."""

    def __init__(self):
        self._locked = {}
        self._params = []
        self.names = {}
        self.peak = Counter()
        self.start_step()

    def start_step(self):
        self.reads, self.writes, self.gathers = Counter(), Counter(), []
        self.accumulated = Counter()
        self.reached = self.gather_calls = 0

    def read(self, path, count):
        self.reads[file_class(path)] += count

    def write(self, path, count):
        self.writes[file_class(path)] += count

    # Page-locked memory.

    def lock(self, tensor):
        begin = tensor.data_ptr()
        self._locked[begin] = (begin + tensor.nbytes, tensor.nbytes, _owner())
        self.peak["locked_bytes"] = max(self.peak["locked_bytes"], sum(self.locked.values()))
        return tensor

    def unlock(self, begin):
        return self._locked.pop(begin, None) is not None

    def is_locked(self, tensor):
        begin, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
        return any(first <= begin and end <= last for first, (last, _, _) in self._locked.items())

    @property
    def locked(self):
        """Bytes now locked, by the DeepSpeed function that locked them."""
        by_owner = Counter()
        for _, count, owner in self._locked.values():
            by_owner[owner] += count
        return dict(by_owner)

    # Parameters.

    def watch_model(self, model):
        """Remember the model's partitioned parameters and their names."""
        named = [(name, p) for name, p in model.named_parameters() if hasattr(p, "ds_numel")]
        self._params = [param for _, param in named]
        self.names = {param.ds_id: name for name, param in named}

    def watch_engine(self):
        """Have DeepSpeed's coordinator and swappers report here; before the engine is made."""
        from deepspeed.runtime.swap_tensor.partitioned_param_swapper import AsyncPartitionedParameterSwapper
        from deepspeed.runtime.swap_tensor.utils import SwapBufferManager
        from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator
        from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

        gather = "_PartitionedParameterCoordinator__all_gather_params_"
        _wrap(PartitionedParameterCoordinator, gather, before=self._gathering, after=self._gathered)
        allocate = "_allocate_and_return_buffers_for_swap_in"
        _wrap(AsyncPartitionedParameterSwapper, allocate, after=self._param_buffers)
        _wrap(PartitionedParameterCoordinator, "fetch_sub_module", before=self._reaching)
        _wrap(SwapBufferManager, "allocate", after=self._optimizer_buffers)
        accumulate = "async_accumulate_grad_in_cpu_via_gpu"
        _wrap(DeepSpeedZeroOptimizer, accumulate, before=self._accumulating, after=self._accumulated)

    def _gathering(self, coordinator, params, forward, **_):
        away = [p for p in params if p.ds_status.name == "NOT_AVAILABLE"]
        self.gathers += [(forward, p.ds_id, p.ds_numel) for p in away]
        self.gather_calls += bool(away)

    def _reaching(self, _, module, **__):
        leaf = getattr(module, "_z3_leaf", False)
        self.reached += any(True for _ in module.parameters(recurse=leaf))

    def _gathered(self, *_, **__):
        live = sum(p.ds_numel for p in self._params if p.ds_status.name != "NOT_AVAILABLE")
        self.peak["live_elements"] = max(self.peak["live_elements"], live)

    def _param_buffers(self, swapper, *_):
        used = swapper.param_buffer_count - len(swapper.available_buffer_ids)
        self.peak["param_buffers"] = max(self.peak["param_buffers"], used)

    def _optimizer_buffers(self, manager, *_, **__):
        used = manager.count - len(manager.free_buffer_index)
        self.peak["optimizer_buffers"] = max(self.peak["optimizer_buffers"], used)

    def _accumulating(self, optimizer, param):
        key = optimizer.get_param_id(param)
        buffers = {"up": optimizer.temp_grad_buffer_for_gpu_offload}
        if key in optimizer.accumulated_grads_in_cpu:
            buffers["down"] = optimizer.accumulated_grads_in_cpu[key]
        places = {tensor.untyped_storage().data_ptr(): way for way, tensor in buffers.items()}
        self._copies = _Copies(places, self.accumulated)
        self._copies.__enter__()

    def _accumulated(self, *_):
        self._copies.__exit__(None, None, None)

    def watch_gradients(self, model, optimizer):
        """Note what gradients take on the device as backward makes them; after the engine is made."""
        params = [param for param in model.parameters() if param.requires_grad]
        if hasattr(params[0], "ds_numel"):
            _wrap(type(optimizer), "reduce_ready_partitions_and_remove_grads", before=self._reducing(params))
        if not hasattr(optimizer, "averaged_gradients") or hasattr(params[0], "ds_numel"):
            return  # only stages 1 and 2 keep whole tensors

        def note(*_, **__):
            self.peak["gradient_bytes"] = max(self.peak["gradient_bytes"], held_gradients(params, optimizer))

        _wrap(type(optimizer), "copy_grads_in_partition", after=note)
        for param in params:
            param.register_post_accumulate_grad_hook(note)

    def _reducing(self, params):
        """Notes, in stage 3, the elements of gradients that are whole and in no bucket yet."""

        def note(optimizer, *_):
            buckets = [
                bucket.buffer for bucket in optimizer.ipg_buckets.values() if bucket.buffer is not None
            ]
            taken = {buffer.untyped_storage().data_ptr() for buffer in buckets}
            kept = [param.grad for param in params if param.grad is not None]
            whole = sum(grad.numel() for grad in kept if grad.untyped_storage().data_ptr() not in taken)
            self.peak["whole_gradient_elements"] = max(self.peak["whole_gradient_elements"], whole)

        return note

    def unswapped_gradients(self, optimizer):
        """Note the fp32 gradients that stay with the GPU until the step, and the storage behind them."""
        swapper = getattr(optimizer, "optimizer_swapper", None)
        infos = swapper.swap_params_info.values() if swapper else ()
        kept = [tensor for info in infos for tensor in info.unswapped_gradients.values()]
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept}
        held = sum(storages.values())
        self.peak["unswapped_gradient_bytes"] = max(self.peak["unswapped_gradient_bytes"], held)


def held_gradients(params, optimizer):
    """Bytes of the gradients of stages 1 and 2 on the device, what is only in a bucket left out."""
    kept = [param.grad for param in params] + [optimizer.grads_in_partition]
    for groups in (optimizer.all_grad_tensors, optimizer.averaged_gradients):
        kept += [tensor for tensors in groups.values() for tensor in tensors or ()]
    buckets = [buffer for bucket in optimizer.ipg_buckets.values() for buffer in bucket.buffer]
    in_buckets = {buffer.untyped_storage().data_ptr() for buffer in buckets}
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in kept
        if tensor is not None
    }
    return sum(size for begin, size in storages.items() if begin not in in_buckets)


class _Copies(TorchDispatchMode):
    """Counts elements that are copied to some storages."""

    def __init__(self, places, counts):
        super().__init__()
        self._places, self._counts = places, counts

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.copy_.default:
            way = self._places.get(args[0].untyped_storage().data_ptr())
            self._counts[way] += args[0].numel() if way else 0
        return function(*args, **(kwargs or {}))


def _wrap(owner, name, *, before=None, after=None):
    original = getattr(owner, name)

    def wrapped(self, *arguments, **keywords):
        if before:
            before(self, *arguments, **keywords)
        value = original(self, *arguments, **keywords)
        if after:
            after(self, *arguments, **keywords)
        return value

    setattr(owner, name, wrapped)


ALLOCATORS = ("pin_memory.py", "cpu_accelerator.py", "abstract_accelerator.py", "ops.py", "meter.py")


def _owner():
    """The DeepSpeed function that asked for locked memory: "stage3._setup_for_real_optimizer"."""
    frame = sys._getframe(1)
    while os.path.basename(frame.f_code.co_filename) in ALLOCATORS or frame.f_code.co_name.startswith("<"):
        frame = frame.f_back
    module = os.path.splitext(os.path.basename(frame.f_code.co_filename))[0]
    return f"{module}.{frame.f_code.co_name}"
