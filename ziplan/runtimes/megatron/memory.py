"""Megatron's memory, line by line: one GPU of the fullest stage.

The first stage keeps the activations of as many micro-batches as there are stages (of a few more where
they are interleaved), the last one makes the logits: where there are several stages, logits stand on
another GPU than most activations, and only the high end has both.
"""

from __future__ import annotations

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation, where
from ziplan.laws.memory import activation_bytes, logits_bytes
from ziplan.plan import Plan
from ziplan.runtimes.megatron import laws
from ziplan.runtimes.megatron.facts import Facts
from ziplan.runtimes.runtime import RUNNING, Ledger
from ziplan.runtimes.shared import memory as shared
from ziplan.runtimes.shared.outside import add_outside
from ziplan.workload.training import Workload

DEGREES = "tp_degree, pp_degree"
BATCH = f"micro_batch_size, sequence_length, activation_checkpointing, {DEGREES}, vpp_degree"


def ledger(derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan) -> Ledger:
    """All lines of a plan. One instance of HBM is a GPU, of DRAM a node."""
    facts, book = Facts(derivation, cluster, workload, plan), Ledger(derivation)
    _states(book, facts)
    _activations(book, facts)
    add_outside(book, facts, surely=where(plan.pp_degree > 1, 0.0, 1.0))
    _logits(book, facts)
    shared.add_gpu_overhead(book, facts)
    add_groups(book, facts)
    if facts.host:
        shared.add_processes(book, facts, facts.host)
    return book


def _states(book: Ledger, f: Facts) -> None:
    """Parameters and gradients whole, the optimizer's state whole or divided over the replicas."""
    for name, replicated, sharded, phases in (
        ("parameters and gradients", f.states.replicated, 0.0, RUNNING),
        ("optimizer state", 0.0, f.states.sharded, RUNNING),
    ):
        amount = f.derivation.apply(
            laws.rank_state_bytes,
            name,
            params=f.stage,
            replicated_bytes_per_param=replicated,
            sharded_bytes_per_param=sharded,
            shard_count=f.shards,
        )
        book.add(name, f.gpu, phases, amount, knob=f"zero_stage, dp_degree, {DEGREES}")


def _activations(book: Ledger, f: Facts) -> None:
    """What forward keeps of the micro-batches in flight, one layer recomputed, gradients between layers."""
    acts = f.workload.activations
    sequence, none = float(f.workload.training.longest), 1 - f.full - f.selective
    layers = _in_flight(f)
    ends = (
        (0.0, acts.selective_low, acts.none_low, acts.attention_scores_low * sequence),
        (1.0, acts.selective_high, acts.none_high, acts.attention_scores_high * sequence),
    )
    kept, again = [], []
    for masks, selective, whole, scores in ends:
        part = f.divided("a layer's activations on one GPU", whole + scores, masks)
        small = f.divided("those without attention's own", selective, masks)
        kept.append(f.full * f.boundary + f.selective * small + none * part)
        again.append(f.full * part + f.selective * scores / f.plan.tp_degree)
    for name, count, (low, high), phases in (
        ("activations", layers, kept, ("forward", "backward")),
        ("recomputed layer", 1.0, again, ("backward",)),
    ):
        least, most = (_of_tokens(f, name, count, each) for each in (low, high))
        book.add(name, f.gpu, phases, most, low=least, knob=BATCH)
    widest = max(o.token_features for o in f.workload.model.operators if o.block)
    flowing = _of_tokens(f, "gradients in flight", 1.0, 2 * f.boundary)
    inside = _of_tokens(f, "gradients inside a layer", 1.0, 2 * f.element * widest / f.plan.tp_degree)
    book.add("activation gradients", f.gpu, ("backward",), flowing + inside, low=flowing / 2, knob=BATCH)
    _scores(book, f)


def _in_flight(f: Facts) -> float:
    """Layers times micro-batches that the first stage keeps, in one piece or interleaved."""
    plan = f.plan
    sizes = {
        "layer_count": float(f.workload.model.layer_count),
        "pp_degree": plan.pp_degree,
        "accumulation_steps": plan.accumulation_steps,
    }
    pieces = f.derivation.apply(laws.interleaved_layers_in_flight, vpp_degree=plan.vpp_degree, **sizes)
    return where(plan.vpp_degree > 1, pieces, f.derivation.apply(laws.layers_in_flight, **sizes))


def _scores(book: Ledger, f: Facts) -> None:
    """Attention without a fused kernel may take the softmax of a layer's scores in fp32."""
    training = f.workload.training
    wide = f.workload.model.attention_heads / f.plan.tp_degree * training.longest
    low, high = (
        _of_tokens(f, "attention scores in fp32", 1.0, wide * each) for each in shared.fp32_scores(training)
    )
    name, phases = "attention scores in fp32", ("forward", "backward")
    book.add(name, f.gpu, phases, high, low=low, knob=shared.SCORES_KNOB)


def _of_tokens(f: Facts, label: str, layers: float, per_token: float) -> float:
    return f.derivation.apply(
        activation_bytes,
        label,
        tokens_per_rank=f.peak_tokens,
        layer_count=layers,
        activation_bytes_per_token=per_token,
        share=1.0,
        ranks_per_instance=1.0,
    )


def _logits(book: Ledger, f: Facts) -> None:
    """Logits and loss, the vocabulary divided over the tensor-parallel ranks."""
    model, alone = f.workload.model, where(f.plan.pp_degree > 1, 0.0, 1.0)
    low, high = (
        f.derivation.apply(
            logits_bytes,
            "logits and loss",
            tokens_per_rank=f.peak_tokens,
            vocab_size=model.logits_share * float(model.vocab_size) / f.plan.tp_degree,
            logit_bytes_per_token=per_token,
        )
        for per_token in shared.logit_bytes(f.workload)
    )
    book.add("logits and loss", f.gpu, ("forward",), high, low=alone * low, knob=shared.LOGITS_KNOB)


def add_groups(book: Ledger, f: Facts) -> None:
    """Channels of the groups beside the replicas'."""
    low, high = shared.group_buffers(f.cluster.node)
    count = where(f.plan.tp_degree > 1, 1.0, 0.0) + where(f.plan.pp_degree > 1, 1.0, 0.0)
    name = "collective buffers of tensor and pipeline groups"
    book.add(name, f.gpu, RUNNING, count * high, low=count * low, knob="NCCL_BUFFSIZE")
