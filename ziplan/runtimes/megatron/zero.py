"""DeepSpeed's stages 2 and 3 beside Megatron's tensor parallelism, with what DeepSpeed offloads.

Each rank of a tensor-parallel group trains its own slice of the model, which DeepSpeed divides over the
ranks that have the same slice (Megatron-DeepSpeed; arXiv:2104.07857 sec 7, "mp"). Its ledger and step are
the DeepSpeed runtime's own, of the slice; what is different is counted here:

- on a node, all GPUs' processes take memory and update parameters, not only those of one group;
- ranks of one slice are spread over nodes, and as many rings as there are slices on a node share its network;
- the all-reduces within the tensor-parallel group stand between a layer's products, and a layer's
  checkpoint, divided over the group, is gathered before it is recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from ziplan.hardware.cluster import Cluster
from ziplan.hardware.rates import ARITHMETIC
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes import deepspeed
from ziplan.runtimes.deepspeed.host import SAVED
from ziplan.runtimes.megatron.facts import Facts
from ziplan.runtimes.megatron.memory import add_groups
from ziplan.runtimes.megatron.sliced import sliced
from ziplan.runtimes.megatron.traffic import all_reduced
from ziplan.runtimes.refusal import Refusal
from ziplan.runtimes.runtime import FABRIC, NETWORK, Demand, Ledger, Runtime, Segment
from ziplan.workload.training import Workload

DEEPSPEED = cast(Runtime, deepspeed)
"""The newest release."""


def used(plan: Plan) -> bool:
    """Whether a plan asks for a stage that Megatron's own optimizer has not; a grid is of one kind."""
    return bool(np.all(np.asarray(plan.zero_stage) >= 2))


def _of_slice(workload: Workload, plan: Plan) -> tuple[Workload, Plan]:
    """A slice and its plan; a grid is of one degree, which is not searched."""
    training = workload.training.model_copy(update={"kernels": workload.training.kernels or "fused"})
    slice_ = sliced(replace(workload, training=training), int(np.max(plan.tp_degree)))
    return slice_, replace(plan, tp_degree=1.0)


def settle(cluster: Cluster, workload: Workload, plan: Plan) -> Plan:
    """As DeepSpeed settles the slice."""
    return replace(deepspeed.settle(cluster, *_of_slice(workload, plan)), tp_degree=plan.tp_degree)


def refusals(cluster: Cluster, workload: Workload, plan: Plan) -> list[Refusal]:
    """Why DeepSpeed cannot run the slice."""
    said = "DeepSpeed's stages 2 and 3 do not go with a pipeline: pp_degree 1 only"
    staged = [Refusal(said, "pp_degree", help="pp_degree: 1, or zero_stage: 1")]
    return staged * bool(plan.pp_degree > 1) + deepspeed.refusals(cluster, *_of_slice(workload, plan))


def ledger(
    derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan, inner: Runtime = DEEPSPEED
) -> Ledger:
    """DeepSpeed's lines of a slice, as `inner` has them; on a node those of all its slices."""
    f, book = Facts(derivation, cluster, workload, plan), Ledger(derivation)
    for line in inner.ledger(derivation, cluster, *_of_slice(workload, plan)).lines:
        tier = cluster.node.tiers.get(line.tier)
        # Each slice has a rank 0 that saves it, and the first node has all of them.
        times = f.plan.tp_degree if line.name == SAVED else _slices_per_rank(f)
        if tier is not None and tier.scope == "node" and times != 1:
            line = line._replace(low=times * line.low, high=times * line.high, step=None)
        book.lines.append(line)
    add_groups(book, f)
    return book


def _slices_per_rank(f: Facts) -> float:
    """GPUs of a node over the ranks that DeepSpeed counts on it: those of one slice, up to the node's."""
    return f.ranks / min(float(f.cluster.node.gpus_per_node), f.plan.dp_degree)


def program(
    derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan, inner: Runtime = DEEPSPEED
) -> Sequence[Segment]:
    """DeepSpeed's step of a slice, its rings over the nodes they cross, and the group's all-reduces.

    A slice is taken to be alike from end to end, as it is played: no tensor stands in the way of others.
    """
    f = Facts(derivation, cluster, workload, plan)
    segments = inner.program(derivation, cluster, *_of_slice(workload, plan))
    (reduced,), moved = all_reduced(f, gathered=1.0), _moved(f)
    return tuple(
        segment._replace(chains=tuple(_chain(chain, reduced, moved) for chain in segment.chains), ways=())
        for segment in segments
    )


def _chain(chain: Sequence[Demand], reduced: Demand, moved: Callable[[Demand], Demand]) -> tuple[Demand, ...]:
    computes = any(demand.resource in ARITHMETIC for demand in chain)
    return (*(moved(demand) for demand in chain), *([reduced] if computes else []))


def _moved(f: Facts) -> Callable[[Demand], Demand]:
    """Each demand as it is with several slices; one that stands in several chains stays one."""
    rings = f.ranks / f.replicas_per_node
    known: dict[int, Demand] = {}

    def moved(demand: Demand) -> Demand:
        if id(demand) not in known:
            known[id(demand)] = changed(demand)
        return known[id(demand)]

    def changed(demand: Demand) -> Demand:
        if demand.resource == "gather":
            resource, times = (NETWORK, rings) if f.spread else (FABRIC, 1.0)
            return demand._replace(resource=resource, amount=times * demand.amount)
        if demand.resource == "cpu_optimizer":
            return demand._replace(amount=_slices_per_rank(f) * demand.amount)
        return demand

    return moved
