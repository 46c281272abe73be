"""FSDP2's memory, line by line, as its source allocates it."""

from __future__ import annotations

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation, maximum, where
from ziplan.laws.memory import activation_bytes, allocator_slack, held_bytes, logits_bytes, sharded_bytes
from ziplan.plan import Plan
from ziplan.runtimes.fsdp import laws
from ziplan.runtimes.fsdp.facts import FP32_BYTES, MOMENT_BYTES, Facts
from ziplan.runtimes.runtime import RUNNING, TRAINING, Ledger
from ziplan.workload.training import Workload

CUDA_CONTEXT = (0.4e9, 1.2e9)
"""Bytes of a CUDA context with its loaded kernels, by GPU and library version."""

COLLECTIVE_BUFFERS = (0.1e9, 1.0e9)
"""Bytes of NCCL's channels on each GPU, when there is more than one."""

ALLOCATOR_SLACK = 0.04
"""Share of a GPU's memory that PyTorch's allocator may hold without using it."""

PROCESS = (1.5e9, 4.0e9)
"""Resident host bytes of one training process before any model state: libraries, contexts, workers."""

LOGIT_BYTES = (6.0, 14.0)
"""Per token and vocabulary entry, from a loss fused with its softmax (16-bit logits and one fp32 copy) to
separate tensors: 16-bit logits, their fp32 copy, the log-softmax and its gradient."""

GRADIENT_COPIES = 2.0
"""Whole gradients stand twice while they are reduced: autograd's, and flat for the reduce-scatter."""

BATCH_KNOB = "micro_batch_size, sequence_length, activation_checkpointing"


def ledger(derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan) -> Ledger:
    """All lines of a plan. One instance of HBM is a GPU, of DRAM a node."""
    facts, book = Facts(derivation, cluster, workload, plan), Ledger(derivation)
    _states(book, facts, facts.gpu, 1 - facts.offloaded, 1.0)
    chapters = (_gathered, _unreduced, _staged, _activations, _logits, _gpu_overhead)
    for chapter in chapters:
        chapter(book, facts)
    if facts.host:
        _states(book, facts, facts.host, facts.offloaded, facts.ranks)
        _host(book, facts, facts.host)
    return book


def _states(book: Ledger, f: Facts, tier: str, share: float, ranks: float) -> None:
    """The shards, padding included: 4 bytes each of parameter and gradient, 8 of moments."""
    on_host = tier == f.host
    kinds = (
        ("parameters", FP32_BYTES, RUNNING, share, on_host),
        ("gradients", FP32_BYTES, ("backward", "step"), share, on_host),
        (
            "gradients of earlier micro-steps",
            FP32_BYTES,
            ("forward",),
            share * where(f.plan.accumulation_steps > 1, 1.0, 0.0),
            on_host,
        ),
        ("optimizer state", MOMENT_BYTES, RUNNING, share, False),
    )
    for name, bytes_per_param, phases, part, pinned in kinds:
        amount = f.derivation.apply(
            sharded_bytes,
            f"{name} on {tier}",
            params=f.groups.all,
            state_bytes_per_param=bytes_per_param,
            dp_degree=f.plan.dp_degree,
            share=part,
            ranks_per_instance=ranks,
        )
        knob = "offload_policy, PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb" if pinned else ""
        book.add(name, tier, phases, amount, pinned=pinned, knob=knob or "offload_policy, dp_degree")


def _gathered(book: Ledger, f: Facts) -> None:
    """Unsharded parameters, and the flat outputs of gathers before they are copied out of."""
    apply, groups, sweeps = f.derivation.apply, f.groups, ("forward", "backward")
    unsharded = apply(
        laws.unsharded_group_bytes,
        "gathered parameters of the root and one layer",
        root_group_params=groups.root,
        layer_group_params=groups.layer,
        param_bytes_per_param=f.element,
    )
    knob = "which modules fully_shard is given"
    book.add("gathered parameters", f.gpu, sweeps, unsharded, knob=knob)
    # At least the layer ahead; at most a gather not yet freed beside it, the root's before the first layer.
    low, high = (
        apply(
            laws.all_gather_buffer_bytes,
            "outputs of gathers",
            buffered_params=buffered,
            param_bytes_per_param=f.element,
            dp_degree=f.plan.dp_degree,
        )
        for buffered in (groups.layer, groups.layer + maximum(groups.layer, groups.root))
    )
    book.add("gather buffers", f.gpu, sweeps, high, low=low, knob=knob)


def _unreduced(book: Ledger, f: Facts) -> None:
    groups = f.groups
    gone = groups.root + 2 * groups.layer  # all that the other two lines count is resharded by then
    low, high = (
        f.derivation.apply(
            laws.unreduced_grad_bytes,
            "gradients of a layer and of the root before they are reduced",
            held_root_params=held,
            root_group_params=groups.root,
            layer_group_params=groups.layer,
            released_params=released,
            grad_bytes_per_param=f.element,
            copy_count=GRADIENT_COPIES,
        )
        for held, released in ((0.0, gone), (groups.root, 0.0))
    )
    book.add("gradients before they are reduced", f.gpu, ("backward",), high, low=low, knob="the vocabulary")


def _staged(book: Ledger, f: Facts) -> None:
    """One group's shard on its way: cast for its gather, copied from the host, reduced and cast back."""
    widest, copied = maximum(f.groups.layer, f.groups.root), FP32_BYTES * f.offloaded
    for name, bytes_per_param, phases in (
        ("shards of a group before its gather", f.element + copied, ("forward", "backward")),
        ("reduced gradients of a group", f.element + FP32_BYTES, ("backward",)),
    ):
        amount = f.derivation.apply(
            sharded_bytes,
            name,
            params=widest,
            state_bytes_per_param=bytes_per_param,
            dp_degree=f.plan.dp_degree,
            share=1.0,
            ranks_per_instance=1.0,
        )
        book.add(name, f.gpu, phases, amount, low=0.0, knob="dp_degree")
    # A layer is moved to the GPU whole, then sharded; the largest tensor is spread from rank 0 whole.
    loading = f.derivation.apply(
        held_bytes,
        "tensors that are spread from rank 0",
        params=f.groups.largest_tensor,
        state_bytes_per_param=FP32_BYTES,
        share=1.0,
        ranks_per_instance=1.0,
    )
    book.add("loading the weights", f.gpu, ("init",), loading, low=0.0, knob="the vocabulary and width")


def _by_mode(f: Facts, full: float, selective: float, none: float) -> float:
    return f.full * full + f.selective * selective + (1 - f.full - f.selective) * none


def _tokens_kept(f: Facts, label: str, layers: float, per_token: float) -> float:
    return f.derivation.apply(
        activation_bytes,
        label,
        tokens_per_rank=f.tokens,
        layer_count=layers,
        activation_bytes_per_token=per_token,
        share=1.0,
        ranks_per_instance=1.0,
    )


def _activations(book: Ledger, f: Facts) -> None:
    acts, model = f.workload.activations, f.workload.model
    layers, sequence = float(model.layer_count), float(f.workload.training.sequence_length)
    scores = (acts.attention_scores_low * sequence, acts.attention_scores_high * sequence)
    whole = (acts.none_low + scores[0], acts.none_high + scores[1])
    modes = zip((acts.selective_low, acts.selective_high), whole, strict=True)
    kept = [_by_mode(f, f.element * model.d_model, selective, none) for selective, none in modes]
    low, high = (_tokens_kept(f, "activations kept for backward", layers, each) for each in kept)
    book.add("activations", f.gpu, ("forward", "backward"), high, low=low, knob=BATCH_KNOB)
    again = [f.full * none + f.selective * score for none, score in zip(whole, scores, strict=True)]
    low, high = (_tokens_kept(f, "one layer recomputed", 1.0, each) for each in again)
    book.add("recomputed layer", f.gpu, ("backward",), high, low=low, knob=BATCH_KNOB)
    linears = [o for o in model.operators if o.block and o.kind == "linear"]
    widest = float(max(o.in_features + o.out_features for o in linears))
    flowing = _tokens_kept(f, "gradients of activations in flight", 1.0, f.element * 2 * widest)
    book.add("activation gradients", f.gpu, ("backward",), flowing, low=flowing / 2, knob=BATCH_KNOB)


def _logits(book: Ledger, f: Facts) -> None:
    model = f.workload.model
    low, high, held = (
        f.derivation.apply(
            logits_bytes,
            "logits and loss",
            tokens_per_rank=f.tokens,
            vocab_size=model.logits_share * float(model.vocab_size),
            logit_bytes_per_token=per_token,
        )
        for per_token in (*LOGIT_BYTES, f.element)
    )
    knob = "micro_batch_size, sequence_length, the vocabulary"
    book.add("logits and loss", f.gpu, ("forward",), high, low=low, knob=knob)
    book.add("logits held by the output", f.gpu, ("backward",), held, low=0.0, knob=knob)


def _gpu_overhead(book: Ledger, f: Facts) -> None:
    low, high = CUDA_CONTEXT
    book.add("CUDA context", f.gpu, ("load", *RUNNING), high, low=low)
    many = where(f.plan.dp_degree > 1, 1.0, 0.0)
    low, high = COLLECTIVE_BUFFERS
    book.add("collective buffers", f.gpu, RUNNING, many * high, low=many * low, knob="NCCL_BUFFSIZE")
    capacity = f.cluster.node.tiers[f.gpu].capacity
    slack = f.derivation.apply(allocator_slack, "allocator slack", capacity=capacity, share=ALLOCATOR_SLACK)
    book.add("allocator slack", f.gpu, TRAINING, slack, low=0.0, knob="PYTORCH_ALLOC_CONF")


def _host(book: Ledger, f: Facts, host: str) -> None:
    """What every process needs, and the whole weights that rank 0 alone reads."""
    low, high = PROCESS
    knob = "ranks per node"
    book.add(
        "processes and libraries", host, ("load", *RUNNING), f.ranks * high, low=f.ranks * low, knob=knob
    )
    whole = f.derivation.apply(
        held_bytes,
        "the weights, whole, on rank 0",
        params=float(f.workload.model.params),
        state_bytes_per_param=FP32_BYTES,
        share=1.0,
        ranks_per_instance=1.0,
    )
    low = whole * f.element / FP32_BYTES
    book.add("weights on rank 0", host, ("load", "init"), whole, low=low, knob="dtype of from_pretrained")
