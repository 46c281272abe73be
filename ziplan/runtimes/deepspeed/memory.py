"""DeepSpeed's memory, line by line, as its source allocates it."""

from __future__ import annotations

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation, where
from ziplan.laws.memory import activation_bytes, allocator_slack, held_bytes, logits_bytes, sharded_bytes
from ziplan.plan import Plan
from ziplan.runtimes.deepspeed import laws
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.knobs import PERSISTENCE_THRESHOLD, largest_tensor, played
from ziplan.runtimes.runtime import RUNNING, TRAINING, Ledger
from ziplan.workload.model import Model
from ziplan.workload.training import Workload

CUDA_CONTEXT = (0.4e9, 1.2e9)
"""Bytes of a CUDA context with its loaded kernels, by GPU and library version."""

COLLECTIVE_BUFFERS = (0.1e9, 1.0e9)
"""Bytes of NCCL's channels on each GPU, when there is more than one."""

ALLOCATOR_SLACK = 0.04
"""Share of a GPU's memory that PyTorch's allocator may hold without using it."""

PROCESS = (1.5e9, 4.0e9)
"""Resident host bytes of one training process before any model state: libraries, contexts, workers."""

CHECKPOINT_FILE = 5e9
"""Bytes of one checkpoint file, Hugging Face's default `max_shard_size` of 5 GB."""

LOGIT_BYTES = (6.0, 14.0)
"""Per token and vocabulary entry, from a loss fused with its softmax (16-bit logits and one fp32 copy) to
separate tensors: 16-bit logits, their fp32 copy, the log-softmax and its gradient."""

NORM_BYTES, NORM_CHUNK = 8.0, 2.5e8
"""`_constant_buffered_norm2`: fp64, at most 250,000,000 elements at a time."""


def ledger(derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan) -> Ledger:
    """All lines of a plan. One instance of HBM is a GPU, of DRAM and NVMe a node."""
    facts = Facts(derivation, cluster, workload, plan)
    book = gpu_ledger(facts)
    if facts.host:
        for chapter in (_host_load, _host_states, _host_params, _host_optimizer_swap, _host_params_swap):
            chapter(book, facts)
    if facts.nvme:
        _flash(book, facts)
    return book


def gpu_ledger(facts: Facts) -> Ledger:
    """The lines of one GPU's memory alone."""
    book = Ledger(facts.derivation)
    for chapter in (_gpu_states, _gpu_buffers, _gpu_step, _gpu_activations, _gpu_overhead):
        chapter(book, facts)
    return book


def _gpu_states(book: Ledger, f: Facts) -> None:
    apply, plan = f.derivation.apply, f.plan
    resident = apply(
        laws.resident_param_bytes,
        "parameters on the GPU",
        zero_stage=plan.zero_stage,
        params=f.params,
        owned_params=f.shards.owned,
        param_bytes_per_param=f.element,
        share=f.params_on(f.gpu),
    )
    book.add("parameters", f.gpu, RUNNING, resident, knob="zero_optimization.stage, offload_param")
    flatten = where(plan.zero_stage < 3, 1.0, 0.0) * resident
    book.add("flattening the parameters", f.gpu, ("init",), flatten, low=0.0, knob="zero_optimization.stage")
    gradients = apply(
        laws.resident_grad_bytes,
        "gradients on the GPU",
        zero_stage=plan.zero_stage,
        params=f.params,
        grad_bytes_per_param=f.element,
        dp_degree=plan.dp_degree,
        share=1 - f.optimizer_off_gpu,
    )
    book.add(
        "gradients", f.gpu, ("backward", "step"), gradients, knob="zero_optimization.stage, offload_optimizer"
    )
    states = apply(
        laws.resident_optimizer_bytes,
        "master weights and moments on the GPU",
        zero_stage=plan.zero_stage,
        params=f.params,
        optimizer_state_bytes_per_param=f.states,
        dp_degree=plan.dp_degree,
        share=f.optimizer_on(f.gpu),
    )
    book.add("optimizer state", f.gpu, RUNNING, states, knob="offload_optimizer.device, ratio")


def _gpu_buffers(book: Ledger, f: Facts) -> None:
    apply, plan, model, settings = f.derivation.apply, f.plan, f.workload.model, f.knobs
    live = apply(
        laws.gathered_param_bytes,
        "most parameters gathered at once",
        zero_stage=plan.zero_stage,
        live_params=played(model, plan, settings, lambda fetched, _: fetched.peak_live) / plan.tile_count
        + _persistent(model),
        param_bytes_per_param=f.element,
    )
    book.add("gathered parameters", f.gpu, ("forward", "backward"), live, knob="stage3_max_live_parameters")
    coalesced = apply(
        laws.coalesced_fetch_bytes,
        "flat buffer of the largest gather",
        zero_stage=plan.zero_stage,
        fetched_params=played(model, plan, settings, lambda fetched, _: fetched.largest_fetch)
        / plan.tile_count,
        param_bytes_per_param=f.element,
        dp_degree=plan.dp_degree,
    )
    book.add(
        "gather buffer",
        f.gpu,
        ("forward", "backward"),
        coalesced,
        low=0.0,
        knob="stage3_prefetch_bucket_size",
    )
    bucket = apply(
        laws.reduce_bucket_bytes,
        "reduce bucket",
        zero_stage=plan.zero_stage,
        reduce_bucket_params=settings.reduce_bucket,
        grad_bytes_per_param=f.element,
        bucket_count=2.0,
    )
    book.add("reduce buckets", f.gpu, RUNNING, bucket, low=bucket / 2, knob="reduce_bucket_size")
    whole = apply(
        held_bytes,
        "gradient of the largest tensor before it is reduced",
        params=float(largest_tensor(model)) / plan.tile_count,
        state_bytes_per_param=f.element,
        share=where(plan.zero_stage >= 2, 1.0, 0.0),
        ranks_per_instance=1.0,
    )
    book.add(
        "gradient of the largest tensor", f.gpu, ("backward",), whole, knob="the model's vocabulary and width"
    )


def _persistent(model: Model) -> float:
    return float(sum(n * count for n, count, _ in model.tensors if n <= PERSISTENCE_THRESHOLD))


def _gpu_step(book: Ledger, f: Facts) -> None:
    apply = f.derivation.apply
    gradient = apply(
        laws.step_gradient_bytes,
        "fp32 gradient of one sub-group",
        stepped_params=f.sub_group,
        grad_bytes_per_param=f.element,
        fp32_bytes_per_param=4.0,
        share=where(f.optimizer_on(f.gpu) > 0, 1.0, 0.0),
    )
    book.add("gradient of one sub-group", f.gpu, ("step",), gradient, knob="sub_group_size")
    norm = apply(
        laws.gradient_norm_bytes,
        "fp64 copy for the gradient norm",
        largest_shard_params=f.shards.largest,
        norm_bytes_per_param=NORM_BYTES,
        norm_chunk=NORM_CHUNK,
    )
    book.add("gradient norm", f.gpu, ("step",), f.stage3 * norm, knob="gradient_clipping")
    kept = apply(
        held_bytes,
        "fp32 gradients too small or unaligned to swap",
        params=f.shards.unswapped_gradients,
        state_bytes_per_param=4.0,
        share=f.swaps_optimizer,
        ranks_per_instance=1.0,
    )
    book.add(
        "gradients that cannot swap", f.gpu, ("backward", "step"), kept, knob="aio.block_size, dp_degree"
    )


def _gpu_activations(book: Ledger, f: Facts) -> None:
    apply, acts, model, training = (
        f.derivation.apply,
        f.workload.activations,
        f.workload.model,
        f.workload.training,
    )
    layers, sequence = float(model.layer_count), float(training.sequence_length)
    none = (
        acts.none_low + acts.attention_scores_low * sequence,
        acts.none_high + acts.attention_scores_high * sequence,
    )
    kept_by_mode = [
        _by_mode(f, f.element * model.d_model, selective, whole)
        for selective, whole in zip((acts.selective_low, acts.selective_high), none, strict=True)
    ]
    on_gpu = 1 - f.full * f.checkpoints_on(f.host)
    kept = [
        apply(
            activation_bytes,
            "activations kept for backward",
            tokens_per_rank=f.tokens,
            layer_count=layers,
            activation_bytes_per_token=per_token,
            share=on_gpu,
            ranks_per_instance=1.0,
        )
        for per_token in kept_by_mode
    ]
    knob = "micro_batch_size, sequence_length, activation_checkpointing"
    book.add("activations", f.gpu, ("forward", "backward"), kept[1], low=kept[0], knob=knob)
    scores = [acts.attention_scores_low * sequence, acts.attention_scores_high * sequence]
    again = [
        apply(
            activation_bytes,
            "one layer recomputed",
            tokens_per_rank=f.tokens,
            layer_count=1.0,
            activation_bytes_per_token=f.full * whole + f.selective * score,
            share=1.0,
            ranks_per_instance=1.0,
        )
        for whole, score in zip(none, scores, strict=True)
    ]
    book.add("recomputed layer", f.gpu, ("backward",), again[1], low=again[0], knob=knob)
    wide = [o.token_features for o in model.operators if o.block and o.kind in ("linear", "experts")]
    widest = float(max(wide))
    flowing = apply(
        activation_bytes,
        "gradients of activations in flight",
        tokens_per_rank=f.tokens,
        layer_count=1.0,
        activation_bytes_per_token=f.element * 2 * widest,
        share=1.0,
        ranks_per_instance=1.0,
    )
    book.add("activation gradients", f.gpu, ("backward",), flowing, low=flowing / 2, knob=knob)
    _logits(book, f)


def _by_mode(f: Facts, full: float, selective: float, none: float) -> float:
    return f.full * full + f.selective * selective + (1 - f.full - f.selective) * none


def _logits(book: Ledger, f: Facts) -> None:
    low, high, held = (
        f.derivation.apply(
            logits_bytes,
            "logits and loss",
            tokens_per_rank=f.tokens,
            vocab_size=f.workload.model.logits_share * float(f.workload.model.vocab_size),
            logit_bytes_per_token=per_token,
        )
        for per_token in (*LOGIT_BYTES, f.element)
    )
    knob = "micro_batch_size, sequence_length, the vocabulary"
    book.add("logits and loss", f.gpu, ("forward",), high, low=low, knob=knob)
    book.add("logits held by the output", f.gpu, ("backward",), held, low=0.0, knob=knob)


def _gpu_overhead(book: Ledger, f: Facts) -> None:
    every = ("load", *RUNNING)
    book.add("CUDA context", f.gpu, every, CUDA_CONTEXT[1], low=CUDA_CONTEXT[0])
    many = where(f.plan.dp_degree > 1, 1.0, 0.0)
    book.add(
        "collective buffers",
        f.gpu,
        RUNNING,
        many * COLLECTIVE_BUFFERS[1],
        low=many * COLLECTIVE_BUFFERS[0],
        knob="NCCL_BUFFSIZE",
    )
    capacity = f.cluster.node.tiers[f.gpu].capacity
    slack = f.derivation.apply(allocator_slack, "allocator slack", capacity=capacity, share=ALLOCATOR_SLACK)
    book.add("allocator slack", f.gpu, TRAINING, slack, low=0.0, knob="PYTORCH_CUDA_ALLOC_CONF")


def _host_load(book: Ledger, f: Facts) -> None:
    assert f.host
    apply = f.derivation.apply
    book.add(
        "processes and libraries",
        f.host,
        ("load", *RUNNING),
        f.ranks * PROCESS[1],
        low=f.ranks * PROCESS[0],
        knob="ranks per node",
    )
    whole = apply(
        held_bytes,
        "the model, whole, on every rank (no zero.Init below stage 3)",
        params=f.params,
        state_bytes_per_param=4.0,
        share=1 - f.stage3,
        ranks_per_instance=f.ranks,
    )
    book.add(
        "model on every rank",
        f.host,
        ("load",),
        whole,
        low=whole * f.element / 4.0,
        knob="torch_dtype, stage",
    )
    # What a rank loaded may still be there while its states are made.
    book.add("model not yet freed", f.host, ("init",), whole, low=0.0, knob="torch_dtype, stage")
    files = f.ranks * f.stage3 * min(CHECKPOINT_FILE, f.element * f.params)
    book.add("checkpoint file on every rank", f.host, ("load",), files, low=0.0, knob="max_shard_size")


def _host_states_below_stage3(book: Ledger, f: Facts) -> None:
    """Stages 1 and 2 pin the master weights, and a 16-bit copy of them for the way back to the GPU."""
    assert f.host
    apply, on_host = f.derivation.apply, (1 - f.stage3) * f.optimizer_on(f.host)
    for name, bytes_per_param in (("master weights", f.master), ("16-bit copy of the weights", f.element)):
        amount = apply(
            sharded_bytes,
            name,
            params=f.params,
            state_bytes_per_param=bytes_per_param,
            dp_degree=f.plan.dp_degree,
            share=on_host,
            ranks_per_instance=f.ranks,
        )
        book.add(name, f.host, RUNNING, amount, pinned=True, knob="offload_optimizer.device")
    staged = apply(
        held_bytes,
        "gradient of the largest tensor on its way to the host",
        params=float(largest_tensor(f.workload.model)),
        state_bytes_per_param=f.element,
        share=on_host,
        ranks_per_instance=f.ranks,
    )
    book.add(
        "gradient staging", f.host, RUNNING, staged, pinned=True, knob="the model's vocabulary and width"
    )


def _host_states(book: Ledger, f: Facts) -> None:
    assert f.host
    apply, plan = f.derivation.apply, f.plan
    on_host = f.optimizer_on(f.host)
    states = apply(
        sharded_bytes,
        "master weights and moments (below stage 3 the moments)",
        params=f.params,
        state_bytes_per_param=f.states - (1 - f.stage3) * f.master,
        dp_degree=plan.dp_degree,
        share=on_host,
        ranks_per_instance=f.ranks,
    )
    book.add("optimizer state", f.host, RUNNING, states, knob="offload_optimizer.device")
    _host_states_below_stage3(book, f)
    gradients = apply(
        sharded_bytes,
        "fp32 gradients, one pinned buffer a sub-group",
        params=f.params,
        state_bytes_per_param=4.0,
        dp_degree=plan.dp_degree,
        share=on_host,
        ranks_per_instance=f.ranks,
    )
    book.add("fp32 gradients", f.host, RUNNING, gradients, pinned=True, knob="offload_optimizer.device")
    accumulated = apply(
        sharded_bytes,
        "gradient accumulation buffer",
        params=f.params,
        state_bytes_per_param=f.element,
        dp_degree=plan.dp_degree,
        share=f.optimizer_off_gpu,
        ranks_per_instance=f.ranks,
    )
    # Stage 2 has the buffer only when gradients are accumulated; stage 1 accumulates on the GPU.
    accumulating = (plan.zero_stage >= 2) & (plan.accumulation_steps > 1)
    needed = where((plan.zero_stage >= 3) | accumulating, 1.0, 0.0)
    book.add(
        "gradient accumulation buffer",
        f.host,
        RUNNING,
        accumulated * needed,
        pinned=True,
        knob="data_types.grad_accum_dtype",
    )
    checkpoints = apply(
        activation_bytes,
        "activation checkpoints on the host",
        tokens_per_rank=f.tokens,
        layer_count=float(f.workload.model.layer_count),
        activation_bytes_per_token=f.element * f.workload.model.d_model,
        share=f.full * f.checkpoints_on(f.host),
        ranks_per_instance=f.ranks,
    )
    book.add(
        "activation checkpoints",
        f.host,
        ("forward", "backward"),
        checkpoints,
        pinned=True,
        knob="activation_checkpointing.cpu_checkpointing",
    )


def _host_params(book: Ledger, f: Facts) -> None:
    assert f.host
    apply, plan = f.derivation.apply, f.plan
    shard = apply(
        held_bytes,
        "16-bit shards",
        params=f.shards.owned,
        state_bytes_per_param=f.element,
        share=f.params_on(f.host),
        ranks_per_instance=f.ranks,
    )
    book.add("parameters", f.host, RUNNING, shard, pinned=True, knob="offload_param.device")
    book.add(
        "parameters as first partitioned", f.host, RUNNING, shard, pinned=True, knob="offload_param.device"
    )
    moving = apply(
        sharded_bytes,
        "defragmenting the shards that stay on the GPU",
        params=f.params,
        state_bytes_per_param=f.element,
        dp_degree=plan.dp_degree,
        share=f.stage3 * f.params_on(f.gpu),
        ranks_per_instance=f.ranks,
    )
    book.add("defragmenting parameters", f.host, ("init",), moving, low=0.0)


def _host_optimizer_swap(book: Ledger, f: Facts) -> None:
    assert f.host
    buffers = f.derivation.apply(
        laws.optimizer_swap_buffer_bytes,
        "pinned buffers that optimizer state is swapped through",
        optimizer_buffer_count=f.plan.optimizer_buffer_count,
        sub_group_params=f.sub_group,
        buffer_bytes_per_param=4.0,
        share=f.swaps_optimizer,
        ranks_per_instance=f.ranks,
    )
    book.add(
        "optimizer swap buffers",
        f.host,
        RUNNING,
        buffers,
        pinned=True,
        knob="sub_group_size, offload_optimizer.buffer_count",
    )


def _host_params_swap(book: Ledger, f: Facts) -> None:
    assert f.host
    apply, plan, on_nvme = f.derivation.apply, f.plan, f.params_on(f.nvme)
    buffers = apply(
        laws.param_swap_buffer_bytes,
        "pinned buffers that parameters are read into",
        param_buffer_count=plan.param_buffer_count,
        param_buffer_params=f.shards.largest,
        param_bytes_per_param=f.element,
        share=on_nvme,
        ranks_per_instance=f.ranks,
    )
    book.add(
        "parameter swap buffers",
        f.host,
        RUNNING,
        buffers,
        pinned=True,
        knob="offload_param.buffer_size, buffer_count",
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
    book.add(
        "parameter write-back buffer", f.host, RUNNING, written, pinned=True, knob="sub_group_size, dp_degree"
    )
    small = apply(
        held_bytes,
        "16-bit shards too small to swap",
        params=f.shards.owned - f.shards.swappable_params,
        state_bytes_per_param=f.element,
        share=on_nvme,
        ranks_per_instance=f.ranks,
    )
    book.add("parameters that cannot swap", f.host, RUNNING, small, pinned=True, knob="aio.block_size")


def _flash(book: Ledger, f: Facts) -> None:
    assert f.nvme
    apply = f.derivation.apply
    params = apply(
        held_bytes,
        "parameter files",
        params=f.shards.swappable_params,
        state_bytes_per_param=f.element,
        share=f.params_on(f.nvme),
        ranks_per_instance=f.ranks,
    )
    book.add("parameter files", f.nvme, RUNNING, params, knob="offload_param.device")
    states = apply(
        held_bytes,
        "master weights and moments",
        params=f.shards.owned,
        state_bytes_per_param=f.states,
        share=f.swaps_optimizer,
        ranks_per_instance=f.ranks,
    )
    book.add("optimizer files", f.nvme, RUNNING, states, knob="offload_optimizer.device")
    gradients = apply(
        held_bytes,
        "fp32 gradient files",
        params=f.shards.swappable_gradients,
        state_bytes_per_param=4.0,
        share=f.swaps_optimizer,
        ranks_per_instance=f.ranks,
    )
    book.add(
        "gradient files", f.nvme, ("backward", "step", "save"), gradients, knob="offload_optimizer.device"
    )
