"""FSDP2's memory, line by line, as its source allocates it."""

from __future__ import annotations

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation, maximum, where
from ziplan.laws.memory import held_bytes, sharded_bytes
from ziplan.plan import Plan
from ziplan.runtimes.fsdp import laws
from ziplan.runtimes.fsdp.facts import Facts
from ziplan.runtimes.runtime import RUNNING, Ledger
from ziplan.runtimes.shared import memory as shared
from ziplan.runtimes.shared.loading import whole_model
from ziplan.runtimes.shared.outside import add_outside
from ziplan.workload.training import Workload

GRADIENT_COPIES = 2.0
"""Whole gradients stand twice while they are reduced: autograd's, and flat for the reduce-scatter."""


def ledger(
    derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan, flat: bool = False
) -> Ledger:
    """All lines of a plan. One instance of HBM is a GPU, of DRAM a node; `flat` of FSDP1."""
    facts, book = Facts(derivation, cluster, workload, plan, flat), Ledger(derivation)
    _states(book, facts, facts.gpu, 1 - facts.offloaded, 1.0)
    for chapter in (_gathered, _unreduced, _staged):
        chapter(book, facts)
    shared.add_activations(book, facts)
    add_outside(book, facts)
    shared.add_logits(book, facts)
    shared.add_gpu_overhead(book, facts)
    if facts.host:
        _states(book, facts, facts.host, facts.offloaded, facts.ranks)
        _host(book, facts, facts.host)
    return book


def _states(book: Ledger, f: Facts, tier: str, share: float, ranks: float) -> None:
    """The shards, padding included, of what is trained: 4 bytes each of parameter and gradient, 8 of Adam's,
    or half of all that in 16 bits.

    What is frozen has no more than its shard, in the precision that computes.
    """
    on_host = tier == f.host
    kinds = (
        ("parameters", f.master, RUNNING, share, on_host),
        ("frozen parameters", f.element, RUNNING, share, on_host),
        ("gradients", f.master, ("backward", "step"), share, on_host),
        (
            "gradients of earlier micro-steps",
            f.master,
            ("forward",),
            share * where(f.plan.accumulation_steps > 1, 1.0, 0.0),
            on_host,
        ),
        ("optimizer state", f.moments, RUNNING, share, False),
        ("gradients with weight decay", f.decayed, ("step",), 0.0 if on_host else share, False),
    )
    for name, bytes_per_param, phases, part, pinned in kinds:
        frozen = name == "frozen parameters"
        if frozen and f.workload.model.trainable_params == f.workload.model.params:
            continue
        if name == "gradients with weight decay" and not f.decayed:
            continue
        amount = f.derivation.apply(
            sharded_bytes,
            f"{name} on {tier}",
            params=f.frozen if frozen else f.trained_groups.all,
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
    groups = f.trained_groups
    gone = f.groups.root + 2 * f.groups.layer  # all that the other two lines count is resharded by then
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
    widest, copied = maximum(f.groups.layer, f.groups.root), f.master * f.offloaded
    for name, bytes_per_param, phases in (
        ("shards of a group before its gather", f.element * f.cast + copied, ("forward", "backward")),
        ("reduced gradients of a group", f.element + f.master * f.cast, ("backward",)),
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
        state_bytes_per_param=f.master,
        share=1.0,
        ranks_per_instance=1.0,
    )
    book.add("loading the weights", f.gpu, ("init",), loading, low=0.0, knob="the vocabulary and width")


def _host(book: Ledger, f: Facts, host: str) -> None:
    """What every process needs, and the whole weights that rank 0 alone reads."""
    shared.add_processes(book, f, host)
    low, high = whole_model(f, "the weights, whole, on rank 0", 1.0, 1.0)
    made = f.derivation.apply(
        sharded_bytes,
        "tensors that the update of the largest tensor makes",
        params=f.groups.largest_tensor,
        state_bytes_per_param=f.temporaries * f.master,
        dp_degree=f.plan.dp_degree,
        share=f.offloaded,
        ranks_per_instance=f.ranks,
    )
    book.add("temporaries of the update", host, ("step",), made, knob="training.optimizer.fused")
    book.add("weights on rank 0", host, ("load", "init"), high, low=low, knob="dtype of from_pretrained")
    gathered = f.derivation.apply(
        held_bytes,
        "weights of the whole model on rank 0, as they are trained",
        params=f.params,
        state_bytes_per_param=f.master,
        share=1.0 if f.workload.training.saving == "gathered" else 0.0,
        ranks_per_instance=1.0,
    )
    book.add("weights to be saved", host, ("save",), gathered, knob="training.saving")
