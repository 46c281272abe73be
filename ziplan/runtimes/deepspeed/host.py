"""Host memory under DeepSpeed, line by line, as its source allocates it: bytes of one node."""

from __future__ import annotations

from ziplan.laws.law import where
from ziplan.laws.memory import activation_bytes, held_bytes, sharded_bytes
from ziplan.runtimes.deepspeed import laws
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.knobs import largest_tensor
from ziplan.runtimes.runtime import RUNNING, Ledger
from ziplan.runtimes.shared.facts import FP32_BYTES
from ziplan.runtimes.shared.memory import add_processes

CHECKPOINT_FILE = 5e9
"""Bytes of one checkpoint file, Hugging Face's default `max_shard_size` of 5 GB."""


def add_host(book: Ledger, facts: Facts, host: str) -> None:
    """All lines of a node's DRAM, the tier called `host`."""
    for chapter in (_load, _states, _states_below_stage3, _gradients, _checkpoints, _params, _swap_buffers):
        chapter(book, facts, host)


def _sharded(f: Facts, label: str, bytes_per_param: float, share: float) -> float:
    """Bytes on one node of state that all ranks divide among them."""
    return f.derivation.apply(
        sharded_bytes,
        label,
        params=f.params,
        state_bytes_per_param=bytes_per_param,
        dp_degree=f.plan.dp_degree,
        share=share,
        ranks_per_instance=f.ranks,
    )


def _held(f: Facts, label: str, params: float, bytes_per_param: float, share: float) -> float:
    """Bytes on one node of so many elements that each of its ranks holds."""
    return f.derivation.apply(
        held_bytes,
        label,
        params=params,
        state_bytes_per_param=bytes_per_param,
        share=share,
        ranks_per_instance=f.ranks,
    )


def _load(book: Ledger, f: Facts, host: str) -> None:
    add_processes(book, f, host)
    label = "the model, whole, on every rank (no zero.Init below stage 3)"
    whole = _held(f, label, f.params, FP32_BYTES, 1 - f.stage3)
    low, knob = whole * f.element / FP32_BYTES, "torch_dtype, stage"
    book.add("model on every rank", host, ("load",), whole, low=low, knob=knob)
    # What a rank loaded may still be there while its states are made.
    book.add("model not yet freed", host, ("init",), whole, low=0.0, knob=knob)
    files = f.ranks * f.stage3 * min(CHECKPOINT_FILE, f.element * f.params)
    book.add("checkpoint file on every rank", host, ("load",), files, low=0.0, knob="max_shard_size")


def _states(book: Ledger, f: Facts, host: str) -> None:
    on_host, knob = f.optimizer_on(host), "offload_optimizer.device"
    master = _sharded(f, "master weights", f.master, f.stage3 * on_host)
    book.add("master weights", host, RUNNING, master, knob=knob)
    book.add("optimizer state", host, RUNNING, _sharded(f, "moments", f.moments, on_host), knob=knob)


def _states_below_stage3(book: Ledger, f: Facts, host: str) -> None:
    """Stages 1 and 2 pin the master weights, and a 16-bit copy of them for the way back to the GPU."""
    on_host = (1 - f.stage3) * f.optimizer_on(host)
    kinds = (("pinned master weights", f.master), ("16-bit copy of the weights", f.element))
    for name, bytes_per_param in kinds:
        amount = _sharded(f, name, bytes_per_param, on_host)
        book.add(name, host, RUNNING, amount, pinned=True, knob="offload_optimizer.device")
    label = "gradient of the largest tensor on its way to the host"
    staged = _held(f, label, float(largest_tensor(f.workload.model)), f.element, on_host)
    knob = "the model's vocabulary and width"
    book.add("gradient staging", host, RUNNING, staged, pinned=True, knob=knob)


def _gradients(book: Ledger, f: Facts, host: str) -> None:
    label = "fp32 gradients, one pinned buffer a sub-group"
    gradients = _sharded(f, label, FP32_BYTES, f.optimizer_on(host))
    book.add("fp32 gradients", host, RUNNING, gradients, pinned=True, knob="offload_optimizer.device")
    accumulated = _sharded(f, "gradient accumulation buffer", f.element, f.optimizer_off_gpu)
    # Stage 2 has the buffer only when gradients are accumulated; stage 1 accumulates on the GPU.
    accumulating = (f.plan.zero_stage >= 2) & (f.plan.accumulation_steps > 1)
    needed = accumulated * where((f.plan.zero_stage >= 3) | accumulating, 1.0, 0.0)
    knob = "data_types.grad_accum_dtype"
    book.add("gradient accumulation buffer", host, RUNNING, needed, pinned=True, knob=knob)


def _checkpoints(book: Ledger, f: Facts, host: str) -> None:
    checkpoints = f.derivation.apply(
        activation_bytes,
        "activation checkpoints on the host",
        tokens_per_rank=f.tokens,
        layer_count=float(f.workload.model.layer_count),
        activation_bytes_per_token=f.element * f.workload.model.d_model,
        share=f.full * f.checkpoints_on(host),
        ranks_per_instance=f.ranks,
    )
    knob = "activation_checkpointing.cpu_checkpointing"
    phases = ("forward", "backward")
    book.add("activation checkpoints", host, phases, checkpoints, pinned=True, knob=knob)


def _params(book: Ledger, f: Facts, host: str) -> None:
    shard = _held(f, "16-bit shards", f.shards.owned, f.element, f.params_on(host))
    for name in ("parameters", "parameters as first partitioned"):
        book.add(name, host, RUNNING, shard, pinned=True, knob="offload_param.device")
    label = "defragmenting the shards that stay on the GPU"
    moving = _sharded(f, label, f.element, f.stage3 * f.params_on(f.gpu))
    book.add("defragmenting parameters", host, ("init",), moving, low=0.0)


def _swap_buffers(book: Ledger, f: Facts, host: str) -> None:
    """Pinned buffers of the swappers, and what is too small to swap."""
    apply, plan, on_nvme = f.derivation.apply, f.plan, f.params_on(f.nvme)
    states = apply(
        laws.optimizer_swap_buffer_bytes,
        "pinned buffers that optimizer state is swapped through",
        optimizer_buffer_count=plan.optimizer_buffer_count,
        sub_group_params=f.sub_group,
        buffer_bytes_per_param=FP32_BYTES,
        share=f.swaps_optimizer,
        ranks_per_instance=f.ranks,
    )
    read = apply(
        laws.param_swap_buffer_bytes,
        "pinned buffers that parameters are read into",
        param_buffer_count=plan.param_buffer_count,
        param_buffer_params=f.shards.largest,
        param_bytes_per_param=f.element,
        share=on_nvme,
        ranks_per_instance=f.ranks,
    )
    written = apply(
        laws.param_write_back_bytes,
        "pinned buffer for updated parameters",
        dp_degree=plan.dp_degree,
        sub_group_params=f.sub_group,
        param_bytes_per_param=f.element,
        share=on_nvme,
        ranks_per_instance=f.ranks,
    )
    unswapped = f.shards.owned - f.shards.swappable_params
    small = _held(f, "16-bit shards too small to swap", unswapped, f.element, on_nvme)
    for name, amount, knob in (
        ("optimizer swap buffers", states, "sub_group_size, offload_optimizer.buffer_count"),
        ("parameter swap buffers", read, "offload_param.buffer_size, buffer_count"),
        ("parameter write-back buffer", written, "sub_group_size, dp_degree"),
        ("parameters that cannot swap", small, "aio.block_size"),
    ):
        book.add(name, host, RUNNING, amount, pinned=True, knob=knob)
