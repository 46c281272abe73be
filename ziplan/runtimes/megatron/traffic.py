"""Megatron's step: what one GPU computes and exchanges, and what waits.

- A layer's all-reduces within the tensor-parallel group stand between its products: they hide behind
  nothing (two in forward, two in backward, two more where the layer is recomputed; arXiv:1909.08053
  sec 3, arXiv:2104.04473 sec 2.3).
- Stages exchange activations and gradients before and after they compute each of their pieces (1F1B, in
  one piece or interleaved in several; arXiv:2104.04473 sec 2.2): counted as exposed.
- Stages have as many layers each, and the last one the head and the loss besides: every micro-batch waits
  for it (Megatron-LM megatron/core/transformer/transformer_block.py, get_num_layers_to_build, where the
  stages of embedding and loss are not asked to have fewer layers).
- Filling and draining the pipeline costs the time of a micro-batch in a piece of each stage but the slowest.
- Replicas exchange gradients when backward has ended: Megatron overlaps them only where it is asked to
  (`--overlap-grad-reduce`).
- Products with weights' gradients add them to earlier micro-batches' themselves (gradient accumulation
  fusion); in DeepSpeed's pipeline autograd adds them, another pass over them all
  (DeepSpeed runtime/pipe/engine.py:_exec_backward_pass).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from ziplan.hardware.cluster import Cluster
from ziplan.laws.counts import step_flops
from ziplan.laws.law import Derivation, minimum, where
from ziplan.laws.memory import held_bytes
from ziplan.laws.traffic import activation_traffic
from ziplan.plan import Plan
from ziplan.runtimes.deepspeed.laws import swept_gradient_bytes
from ziplan.runtimes.deepspeed.swept import ADDED
from ziplan.runtimes.megatron import laws
from ziplan.runtimes.megatron.facts import Facts
from ziplan.runtimes.megatron.sliced import sliced
from ziplan.runtimes.runtime import FABRIC, NETWORK, Demand, Segment, total
from ziplan.runtimes.shared.compute import (
    MOVED,
    SWEEP,
    attention_flops_of,
    idle_in_waves,
    matrix_flops,
    moved_by_layers,
    moved_by_loss,
    moved_by_matrices,
    products,
)
from ziplan.runtimes.shared.facts import FP32_BYTES
from ziplan.runtimes.shared.launches import launches
from ziplan.runtimes.terms import GRADIENT_PASSES
from ziplan.workload.model import Model
from ziplan.workload.training import Workload

ALL_REDUCES = 4.0
"""All-reduces of a layer in forward and backward (arXiv:1909.08053 sec 3)."""

RECOMPUTED_ALL_REDUCES = 2.0
"""Those of forward once more, where a layer is recomputed whole."""

RING_PASSES = 2.0
"""An all-reduce in a ring sends every part twice: once to add, once to spread."""

SWEEPS = 2.0
"""Between two stages pass activations forward and gradients backward."""

STATE_BYTES = 12.0
"""Master weight and both moments, that the update reads and writes."""

SAVED_FORWARD, SAVED_BACKWARD = 4.0, 4.0
"""Accesses of an attention score that Megatron's fused softmax saves in forward and in backward.

Scale, causal mask and softmax are one kernel that reads and writes a score once, not three that each do
(arXiv:2104.04473 sec 4.2); backward's is one as well.
"""

SAVED_MASK = 1.0
"""Bytes of the causal mask that no sweep reads then: the kernel knows it."""

BUBBLE, UNEVEN = "pipeline bubble", "uneven stages"
"""Terms of what a GPU of an average stage waits for: the pipeline filling, and the stage with the head."""

TRAINED_SWEEPS = 3.0
"""Products with a matrix that is trained and not recomputed: forward's and those of its two gradients."""


def program(
    derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan, autograd_adds: float = 0.0
) -> Sequence[Segment]:
    """The segments of one step of a GPU of an average stage, in order (`autograd_adds` 1: DeepSpeed's)."""
    facts = Facts(derivation, cluster, workload, plan)
    passed = (_added_up(facts, autograd_adds), *all_reduced(facts), *_passed_on(facts))
    layers, head = _layers(facts), _head(facts)
    last = 1 / plan.pp_degree
    average = (*(_added(both, last) for both in zip(layers, head, strict=True)), *passed)
    more = tuple(demand._replace(term=UNEVEN, amount=(1 - last) * demand.amount) for demand in head)
    idle = derivation.apply(laws.idle_micro_steps, pp_degree=plan.pp_degree, vpp_degree=plan.vpp_degree)
    waiting = tuple(
        demand._replace(term=BUBBLE, amount=idle * demand.amount) for demand in (*layers, *passed)
    )
    return (
        Segment("micro-step", plan.accumulation_steps, (average, (launches(facts, last),))),
        Segment(UNEVEN, plan.accumulation_steps, (more,), idle=True),
        Segment(BUBBLE, 1.0, (waiting,), idle=True),
        Segment("gradient exchange", 1.0, (_exchanged(facts),)),
        Segment("optimizer step", 1.0, ((_updated(facts),),)),
    )


def _added(both: tuple[Demand, Demand], share: float) -> Demand:
    """A demand of a stage's layers, with a share of the head's."""
    layers, head = both
    return layers._replace(amount=layers.amount + share * head.amount)


def _layers(f: Facts) -> list[Demand]:
    """One GPU's part of the layers of a stage, of a micro-batch: divided evenly, or as it can be."""
    matrices = matrix_flops(f) - _head_flops(f)
    idle = _idle(f) - _idle(f, head_alone)
    acts = f.workload.activations
    whole = acts.none_high + acts.attention_scores_high * f.workload.training.attended
    weights = moved_by_matrices(f, matrix_flops(f), _idle(f)) - moved_by_loss(f)
    kinds = (
        ("activations", moved_by_layers(f) - _saved(f), minimum(1.0, f.undivided(1.0) / whole)),
        # Divided like the products that they are hidden behind, or a faster GPU would take longer.
        ("weights", weights, 0.0),
    )
    parts = products(f, matrices, attention_flops_of(f), idle)
    return _of_one_gpu(f, "layers", parts, kinds, f.plan.pp_degree)


def _head(f: Facts) -> list[Demand]:
    """One GPU's part of the head and the loss of a micro-batch, all of it in the last stage."""
    parts = products(f, _head_flops(f), 0.0, _idle(f, head_alone))
    return _of_one_gpu(f, "the head", parts, (("logits", moved_by_loss(f), 0.0),), 1.0)


def _head_flops(f: Facts) -> float:
    """FLOPs of a micro-batch's products with the matrices outside of the layers."""
    model = f.workload.model
    return f.derivation.apply(
        step_flops,
        "matrix products of the head",
        params=float(model.matmul_params - model.block_matmul_params),
        tokens_per_rank=f.tokens,
        flops_per_param_token=TRAINED_SWEEPS * SWEEP,
    )


def _of_one_gpu(
    f: Facts,
    what: str,
    parts: Iterable[Demand],
    kinds: Iterable[tuple[str, float, float]],
    stages: float,
) -> list[Demand]:
    """What is computed and what is moved (kind, bytes, share that is not divided), of one GPU of `stages`."""
    degrees = {"tp_degree": f.plan.tp_degree, "pp_degree": stages}
    demands = [
        Demand(
            term,
            resource,
            f.derivation.apply(laws.divided_flops, f"{term} of {what}, one GPU", flops=amount, **degrees),
        )
        for term, resource, amount in parts
    ]
    moved = total(
        f.derivation.apply(
            laws.divided_traffic,
            f"{name} moved by one GPU",
            memory_bytes=amount,
            replicated_share=undivided,
            **degrees,
        )
        for name, amount, undivided in kinds
    )
    return [*demands, Demand(MOVED, f"{f.gpu}.read", moved)]


def _idle(f: Facts, of: Callable[[Model], Model] = lambda model: model) -> float:
    """What all GPUs of a group leave idle: each multiplies with its slice of every matrix, or of some."""
    degrees = sorted({int(degree) for degree in np.ravel(f.plan.tp_degree)})
    return total(
        where(f.plan.tp_degree == degree, 1.0, 0.0)
        * degree
        * idle_in_waves(f, of(sliced(f.workload, degree).model))
        for degree in degrees
    )


def head_alone(model: Model) -> Model:
    """A model of the matrices outside of its layers."""
    return replace(model, operators=tuple(operator for operator in model.operators if not operator.block))


def _saved(f: Facts) -> float:
    """Bytes of a micro-batch's scores that the fused softmax does not move, where scores are written out."""
    training = f.workload.training
    if training.attention == "flash":
        return 0.0
    forward, backward = (each * f.element + SAVED_MASK for each in (SAVED_FORWARD, SAVED_BACKWARD))
    return f.derivation.apply(
        activation_traffic,
        "attention scores that the fused softmax does not move",
        tokens_per_rank=f.tokens,
        layer_count=float(f.workload.model.attentions),
        activation_bytes_per_token=float(f.workload.model.attention_heads) * training.attended,
        access_count=forward * (1.0 + f.full + f.selective) + backward,
    )


def all_reduced(f: Facts, gathered: float = 0.0) -> list[Demand]:
    """A micro-batch's all-reduces within the tensor-parallel group; `gathered` 1 adds a gather a layer."""
    amount = f.derivation.apply(
        laws.all_reduced_bytes,
        "all-reduces of one micro-batch",
        tokens_per_rank=f.tokens,
        boundary_bytes_per_token=f.boundary,
        layer_count=float(f.workload.model.layer_count),
        pp_degree=f.plan.pp_degree,
        all_reduce_count=ALL_REDUCES + f.full * (RECOMPUTED_ALL_REDUCES + gathered / RING_PASSES),
        ring_passes=RING_PASSES,
        tp_degree=f.plan.tp_degree,
    )
    return [Demand("tensor parallel", FABRIC, amount)]


def _passed_on(f: Facts) -> list[Demand]:
    """Between nodes a node's ranks send at once what each of its replicas passes on, in a node a GPU's part.

    The ranks of a tensor-parallel group send a part each (arXiv:2104.04473 sec 4.1).
    """
    several = 1 - 1 / f.plan.pp_degree > 0
    parts = (
        (NETWORK, f.apart, f.replicas_per_node),
        (FABRIC, 1 - f.apart, 1 / f.plan.tp_degree),
    )
    return [
        Demand(
            "stage to stage",
            resource,
            several
            * used
            * f.derivation.apply(
                laws.boundary_bytes,
                "what passes between two stages",
                tokens_per_rank=f.tokens,
                boundary_bytes_per_token=f.boundary,
                sweep_count=SWEEPS,
                vpp_degree=f.plan.vpp_degree,
                sender_count=senders,
            ),
        )
        for resource, used, senders in parts
    ]


def _added_up(f: Facts, by_autograd: float) -> Demand:
    """Gradients added to those of earlier micro-batches, on average over all, where no product does it."""
    steps = f.plan.accumulation_steps
    amount = f.derivation.apply(
        swept_gradient_bytes,
        "gradients added to those of earlier micro-batches",
        params=f.stage,
        grad_bytes_per_param=f.element,
        access_count=by_autograd * ADDED * (steps - 1) / steps,
    )
    return Demand(GRADIENT_PASSES, f"{f.gpu}.read", amount)


def _exchanged(f: Facts) -> tuple[Demand, ...]:
    """All-reduced, or reduce-scattered and the updated parameters gathered: over nodes ring beside ring."""
    gradient, updated = f.states.gradient, f.element
    each = f.distributed * (gradient + updated) + (1 - f.distributed) * RING_PASSES * gradient
    rings = f.ranks / f.replicas_per_node
    return tuple(
        Demand(
            "gradient exchange",
            resource,
            used
            * f.derivation.apply(
                laws.data_parallel_bytes,
                "gradients of one GPU",
                params=f.stage,
                exchanged_bytes_per_param=each,
                dp_degree=f.plan.dp_degree,
                ring_count=count,
            ),
        )
        for resource, used, count in ((NETWORK, f.spread, rings), (FABRIC, 1 - f.spread, 1.0))
    )


def _updated(f: Facts) -> Demand:
    """Adam's pass over a GPU's own state: gradient read, state read and written."""
    moved = f.optimizer_bytes("the update", FP32_BYTES, STATE_BYTES)
    amount = f.derivation.apply(
        held_bytes,
        "update on the GPU",
        params=f.stage / f.shards,
        state_bytes_per_param=moved,
        share=1.0,
        ranks_per_instance=1.0,
    )
    return Demand("GPU optimizer", f"{f.gpu}.read", amount)
