"""What the Megatron ledger and step program both need to know of a plan, worked out once.

Ranks are ordered as Megatron-LM orders them, tensor-parallel first, then data-parallel, then stages
(`megatron/core/parallel_state.py`, order "tp-cp-ep-dp-pp"): a tensor-parallel group is within a node,
and stages are the farthest apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ziplan.laws.law import minimum, where
from ziplan.runtimes.megatron import laws
from ziplan.runtimes.shared import facts as shared
from ziplan.units import Precision
from ziplan.workload.model import Kernels


class StateBytes(NamedTuple):
    """Bytes per parameter: what every replica holds, what the distributed optimizer divides, gradients."""

    replicated: float
    sharded: float
    gradient: float


STATES: dict[Precision, StateBytes] = {
    "fp16": StateBytes(4.0, 16.0, 2.0),
    "bf16": StateBytes(6.0, 12.0, 4.0),
    "fp32": StateBytes(8.0, 8.0, 4.0),
}
"""By the precision of parameters (Megatron-LM docs/user-guide/features/dist_optimizer.md, table).

Gradients are those that replicas exchange: of fp16 parameters in fp16, else in fp32.
"""

UNDIVIDED_TENSORS = 4.0
"""Tensors as wide as the model that every tensor-parallel rank keeps of a layer: the inputs of both norms
and of attention and MLP (arXiv:2205.05198 sec 4.2.1)."""

UNDIVIDED_MASKS = 2.0
"""Bytes per token and unit of width of the masks of the two dropouts outside of the divided parts."""


@dataclass(frozen=True, eq=False, repr=False)
class Facts(shared.Facts):
    """A plan on a machine, in Megatron's terms."""

    @property
    def pads_vocabulary(self) -> bool:
        """Megatron-LM does, to a multiple of 128 on each GPU (`--make-vocab-size-divisible-by`)."""
        return True

    @cached_property
    def ranks(self) -> float:
        """GPUs of a node that work."""
        plan = self.plan
        everyone = plan.gpus
        return minimum(float(self.cluster.node.gpus_per_node), everyone)

    @cached_property
    def kernels(self) -> Kernels:
        """Megatron-LM fuses norms, functions, positions and dropout unless it is told not to."""
        return self.workload.training.kernels or "fused"

    @cached_property
    def states(self) -> StateBytes:
        """Bytes per parameter of what is kept and exchanged."""
        return STATES[self.workload.precision]

    @cached_property
    def stage(self) -> float:
        """Parameters of one GPU of the fullest stage."""
        model = self.workload.model
        outer = model.params - model.block_params
        before = sum(o.params * o.count for o in model.operators if not o.block and o.kind == "embedding")
        # The last stage has the head; where that is the embedding's matrix, a copy of it.
        after = max(outer - before, model.vocab_size * model.d_model)
        alone = where(self.plan.pp_degree > 1, 0.0, 1.0)
        return self.derivation.apply(
            laws.stage_params,
            "parameters of one GPU",
            block_params=float(model.block_params),
            outer_params=alone * outer + (1 - alone) * max(before, after),
            tp_degree=self.plan.tp_degree,
            pp_degree=self.plan.pp_degree,
        )

    @cached_property
    def distributed(self) -> float:
        """1 with the distributed optimizer."""
        return where(self.plan.zero_stage >= 1, 1.0, 0.0)

    @cached_property
    def shards(self) -> float:
        """Ranks that the distributed optimizer divides its state over; 1 without it."""
        return where(self.plan.zero_stage >= 1, self.plan.dp_degree, 1.0)

    @cached_property
    def boundary(self) -> float:
        """Bytes per token of what passes between layers."""
        return self.element * float(self.workload.model.d_model)

    @cached_property
    def replicas_per_node(self) -> float:
        """Ranks of one data-parallel group on a node."""
        return minimum(self.plan.dp_degree, float(self.cluster.node.gpus_per_node) / self.plan.tp_degree)

    @cached_property
    def spread(self) -> float:
        """1 where a data-parallel group reaches over nodes, and so do neighbouring stages."""
        per_stage = self.plan.dp_degree * self.plan.tp_degree
        return where(per_stage > self.cluster.node.gpus_per_node, 1.0, 0.0)

    @cached_property
    def apart(self) -> float:
        """1 where neighbouring stages are on different nodes somewhere."""
        plan = self.plan
        everyone = plan.gpus
        return where(everyone > self.cluster.node.gpus_per_node, 1.0, 0.0)

    def undivided(self, masks: float) -> float:
        """Bytes per token of a layer that is not divided; `masks` 1 counts dropouts'.

        Recomputing attention alone is planned as its paper runs it: with sequence parallelism, which
        divides the rest too and exchanges as many bytes (arXiv:2205.05198 sec 4.2.2).
        """
        width = float(self.workload.model.d_model)
        return (1 - self.selective) * (UNDIVIDED_TENSORS * self.element + masks * UNDIVIDED_MASKS) * width

    def divided(self, label: str, whole: float, masks: float) -> float:
        """Bytes per token of a layer on one tensor-parallel rank."""
        return self.derivation.apply(
            laws.divided_bytes_per_token,
            label,
            whole_bytes_per_token=whole,
            replicated_bytes_per_token=minimum(whole, self.undivided(masks)),
            tp_degree=self.plan.tp_degree,
        )
