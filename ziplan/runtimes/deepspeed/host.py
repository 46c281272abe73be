"""Host memory under DeepSpeed, line by line, as its source allocates it: bytes of one node."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ziplan.laws.law import maximum, where
from ziplan.laws.memory import activation_bytes, held_bytes, sharded_bytes
from ziplan.runtimes.deepspeed import laws
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.knobs import largest_trained_tensor
from ziplan.runtimes.deepspeed.leaving import pins
from ziplan.runtimes.runtime import MEMLOCK, RUNNING, Ledger
from ziplan.runtimes.shared.facts import FP32_BYTES, UNFUSED_TEMPORARIES
from ziplan.runtimes.shared.loading import checkpoint_files, whole_model
from ziplan.runtimes.shared.memory import add_processes
from ziplan.runtimes.shared.pinned import pinned_high

WHOLE_GRADIENTS = "accumulated whole gradients"
"""The line of gradients that ranks below stage 3 add up on the host."""

SAVED = "weights to be saved"
"""The line of what rank 0 alone has of its model: once, however many ranks a node has."""


def add_host(book: Ledger, facts: Facts, host: str) -> None:
    """All lines of a node's DRAM, the tier called `host`."""
    for chapter in (
        _load,
        _states,
        _states_below_stage3,
        _gradients,
        _whole_gradients,
        _checkpoints,
        _params,
        _swap_buffers,
        _save,
    ):
        chapter(book, facts, host)


def _sharded(f: Facts, label: str, bytes_per_param: float, share: float) -> float:
    """Bytes on one node of what all ranks divide among them of each parameter that is trained."""
    return f.derivation.apply(
        sharded_bytes,
        label,
        params=f.trained,
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
    """Below stage 3, and without zero.Init, every rank loads the whole model before it is divided."""
    add_processes(book, f, host)
    low, high = whole_model(f, "the model, whole, on every rank", 1 - f.divided_at_once, f.ranks)
    knob = "training.loading: zero_init, dtype, copies"
    book.add("model on every rank", host, ("load",), high, low=low, knob=knob)
    # What a rank loaded may still be there while its states are made.
    book.add("model not yet freed", host, ("init",), high, low=0.0, knob=knob)
    low, high = checkpoint_files(f, 1.0)
    low = low * f.divided_at_once  # the model that it was read into is counted already
    book.add("checkpoint file", host, ("load",), high, low=low, knob="training.loading: largest_file, copies")


def _save(book: Ledger, f: Facts, host: str) -> None:
    """Below stage 3 rank 0 clones the module's weights; stage 3 gathers them there only when asked."""
    cloned = f.derivation.apply(
        held_bytes,
        "16-bit weights of the whole model on rank 0",
        params=f.params,
        state_bytes_per_param=f.element,
        share=where(f.plan.zero_stage >= 3, f.gathers_to_save, 1.0),
        ranks_per_instance=1.0,
    )
    book.add(SAVED, host, ("save",), cloned, knob="training.saving")
    # torch.save brings what is on the GPU to the host, a tensor at a time.
    states = _sharded(f, "one kind of optimizer state of every rank", FP32_BYTES, f.optimizer_on(f.gpu))
    book.add(
        "optimizer state on its way to a file", host, ("save",), states, low=0.0, knob="offload_optimizer"
    )


def _states(book: Ledger, f: Facts, host: str) -> None:
    on_host, knob = f.optimizer_on(host), "offload_optimizer.device"
    master = _sharded(f, "master weights", f.master, f.stage3 * on_host)
    book.add("master weights", host, RUNNING, master, knob=knob)
    book.add("optimizer state", host, RUNNING, _sharded(f, "moments", f.moments, on_host), knob=knob)
    each = UNFUSED_TEMPORARIES * f.master * f.of_operators
    made = _held(f, "tensors that an update of single operators makes", f.sub_group, each, on_host)
    book.add("temporaries of the update", host, ("step",), made, knob="training.optimizer.fused")


def _states_below_stage3(book: Ledger, f: Facts, host: str) -> None:
    """Stages 1 and 2 pin the master weights, and a 16-bit copy of them for the way back to the GPU."""
    on_host, knob = (1 - f.stage3) * f.optimizer_on(host), "offload_optimizer.device"
    master = _sharded(f, "master weights off the GPU", f.master, (1 - f.traits.pins_master_weights) * on_host)
    book.add("unpinned master weights", host, RUNNING, master, knob=knob)
    kinds = (
        ("pinned master weights", f.master, f.traits.pins_master_weights),
        ("16-bit copy of the weights", f.element, f.traits.keeps_16_bit_copy),
    )
    for name, bytes_per_param, has in kinds:
        amount = _sharded(f, name, bytes_per_param, has * on_host)
        whatever = name == "pinned master weights" and not f.traits.pins_master_weights_by_choice
        _pin(book, f, host, name, amount, f.ranks, knob, pinned=whatever or pins(f))
    label = "fp32 gradients that pinned ones were copied from"
    copied = _sharded(f, label, f.master, pins(f) * f.traits.steps_to_initialize * on_host)
    book.add("fp32 gradients before they are pinned", host, ("init",), copied, low=0.0, knob=knob)
    label = "gradient of the largest tensor on its way to the host"
    staged = _held(f, label, float(largest_trained_tensor(f.workload.model)), f.element, on_host)
    _pin(
        book, f, host, "gradient staging", staged, f.ranks, "the model's vocabulary and width", pinned=pins(f)
    )


def _gradients(book: Ledger, f: Facts, host: str) -> None:
    label, knob = "fp32 gradients, one buffer a sub-group", "offload_optimizer.device"
    gradients = _sharded(f, label, f.master, f.optimizer_on(host))
    _pin(book, f, host, "fp32 gradients", gradients, f.ranks * f.sub_groups, knob, pinned=pins(f))
    if f.traits.stages_gradients:
        label, share = "buffer that last gradients go through", f.stage3 * f.optimizer_on(host)
        staged = _held(f, label, f.trained_shards.largest, f.master, share)
        _pin(book, f, host, "staging of last gradients", staged, f.ranks, knob)
    several = where(f.plan.accumulation_steps > 1, 1.0, 0.0)
    needed = f.stage3 * f.optimizer_off_gpu * maximum(f.traits.always_accumulates, several)
    name, knob = "gradient accumulation buffer", "data_types.grad_accum_dtype"
    accumulated = _sharded(f, name, f.accumulated, needed)
    _pin(book, f, host, name, accumulated, f.ranks, knob, pinned=pins(f))
    # The buffer is made after the moments, zeroed, and a copy of it is pinned.
    copied = accumulated if pins(f) else 0.0
    book.add("buffer before it is pinned", host, ("init",), copied, low=0.0, knob=knob)


def _whole_gradients(book: Ledger, f: Facts, host: str) -> None:
    """A buffer for each, made in the first backward of several."""
    if not np.any(f.accumulates_whole):
        return

    def most(kind: str) -> float:
        return f.derivation.apply(
            held_bytes,
            "gradients of the tensors that the ranks of one node own parts of, each whole",
            params=f.reached(kind),
            state_bytes_per_param=f.element,
            share=f.accumulates_whole,
            ranks_per_instance=1.0,
        )

    low = most("node")
    high = most("rounded") if f.rounds_pinned and pins(f) else low
    phases = ("forward", "backward", "step", "save")
    knob = "gradient_accumulation_steps, zero_optimization.stage"
    book.add(WHOLE_GRADIENTS, host, phases, high, low=low, pinned=pins(f), knob=knob)


def _checkpoints(book: Ledger, f: Facts, host: str) -> None:
    layers = float(f.workload.model.layer_count)
    checkpoints = f.derivation.apply(
        activation_bytes,
        "activation checkpoints on the host",
        tokens_per_rank=f.peak_tokens,
        layer_count=layers,
        activation_bytes_per_token=f.element * f.workload.model.d_model,
        share=f.full * f.checkpoints_on(host),
        ranks_per_instance=f.ranks,
    )
    knob, phases = "activation_checkpointing.cpu_checkpointing", ("forward", "backward")
    if f.traits.checkpoints_wait:
        # Copied by `.cpu()`, which pins nothing.
        book.add("activation checkpoints", host, phases, checkpoints, knob=knob)
        return
    _pin(book, f, host, "activation checkpoints", checkpoints, f.ranks * layers, knob, phases)


def _params(book: Ledger, f: Facts, host: str) -> None:
    """As zero.Init made them; what is trained is moved to a flat buffer, and its first place is kept."""
    on_host = f.params_on(host)
    moved = _held(f, "16-bit shards that are trained", f.trained_shards.owned, f.element, on_host)
    # What has a swapper was written to files first, and is read into the flat buffer.
    first = _held(f, "16-bit shards", f.shards.owned, f.element, on_host * (1 - f.swaps_params))
    tensors = f.ranks * float(sum(count for _, count, _ in f.workload.model.tensors))
    _pin(book, f, host, "parameters", moved, f.ranks, "offload_param.device")
    high = pinned_high(f, "parameters as first partitioned", first, tensors)
    # Where nobody asks for pinned memory, a release that does not pin by itself frees what has moved.
    low = first * f.traits.pins_by_default
    knob = "offload_param.device, pin_memory"
    book.add("parameters as first partitioned", host, RUNNING, high, low=low, pinned=True, knob=knob)
    aside = _held(f, "pinned for parameters that stay in DRAM, and unused", f.set_aside, f.element, 1.0)
    _pin(book, f, host, "DRAM set aside for parameters", aside, f.ranks, "offload_param.max_in_cpu")
    label = "defragmenting the shards that stay on the GPU"
    moving = _sharded(f, label, f.element, f.stage3 * f.params_on(f.gpu))
    book.add("defragmenting parameters", host, ("init",), moving, low=0.0)


def _pin(
    book: Ledger,
    f: Facts,
    host: str,
    name: str,
    amount: float,
    blocks: float,
    knob: str,
    phases: tuple[str, ...] = RUNNING,
    pinned: bool = True,
) -> None:
    """A line that PyTorch pins, in so many blocks on one node, unless `pin_memory` is off."""
    high = pinned_high(f, name, amount, blocks) if pinned else amount
    book.add(name, host, phases, high, low=amount, pinned=pinned, knob=knob)


def _swap_buffers(book: Ledger, f: Facts, host: str) -> None:
    """Buffers of the swappers, locked to the byte by `mlock` or pinned by PyTorch, and what cannot swap."""
    for name, amount, knob, blocks in _swappers(f):
        if not f.traits.locks_swap_buffers:
            _pin(book, f, host, name, amount, f.ranks * blocks, knob)
            continue
        book.add(name, host, RUNNING, amount, pinned=True, knob=knob)
        if f.cluster.node.memlock_limit is not None:
            book.add(name, MEMLOCK, RUNNING, amount / f.ranks, pinned=True, knob=f"ulimit -l, {knob}")
    unswapped = f.shards.owned - f.shards.swappable_params
    small = _held(f, "16-bit shards too small to swap", unswapped, f.element, f.swaps_params)
    book.add("parameters that cannot swap", host, RUNNING, small, pinned=True, knob="aio.block_size")


def _swappers(f: Facts) -> Iterator[tuple[str, float, str, float]]:
    """(name, bytes on one node, knob, blocks of a rank) of all that NVMe is read into or written from."""
    apply, plan, on_nvme = f.derivation.apply, f.plan, where(f.params_on(f.nvme) > 0, 1.0, 0.0)
    states = apply(
        laws.optimizer_swap_buffer_bytes,
        "pinned buffers that optimizer state is swapped through",
        optimizer_buffer_count=plan.optimizer_buffer_count,
        sub_group_params=f.sub_group,
        buffer_bytes_per_param=FP32_BYTES,
        share=f.swaps_optimizer,
        ranks_per_instance=f.ranks,
    )
    count = maximum(plan.optimizer_buffer_count, 1.0)
    yield "optimizer swap buffers", states, "sub_group_size, offload_optimizer.buffer_count", count
    read = apply(
        laws.param_swap_buffer_bytes,
        "pinned buffers that parameters are read into",
        param_buffer_count=plan.param_buffer_count,
        param_buffer_params=f.param_buffer,
        param_bytes_per_param=f.element,
        share=f.swaps_params,
        ranks_per_instance=f.ranks,
    )
    yield "parameter swap buffers", read, "offload_param.buffer_size, buffer_count", 1.0
    written = apply(
        laws.param_write_back_bytes,
        "pinned buffer for updated parameters",
        dp_degree=where(f.traits.writes_back_whole_tensors > 0, plan.dp_degree, 1.0),
        sub_group_params=f.sub_group,
        param_bytes_per_param=f.element,
        share=on_nvme,
        ranks_per_instance=f.ranks,
    )
    yield "parameter write-back buffer", written, "sub_group_size, dp_degree", 1.0
