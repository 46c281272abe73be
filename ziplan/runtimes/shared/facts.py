"""What a ledger and a step program both need to know of a plan on a machine, worked out once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ziplan.hardware.cluster import Cluster
from ziplan.laws.counts import tokens_per_rank
from ziplan.laws.law import Derivation, minimum, where
from ziplan.laws.optimizer import optimizer_bytes_per_param
from ziplan.plan import Checkpointing, Plan
from ziplan.workload.gradients import Backward, backward
from ziplan.workload.model import Kernels
from ziplan.workload.passes import Passes
from ziplan.workload.training import Workload

ELEMENT_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0}
"""Bytes of an element in the precision that computes: parameters in use, gradients, activations."""

FP32_BYTES = 4.0
"""Bytes of an fp32 element."""

READ_AND_WRITTEN = 2.0
"""How often a pass of the optimizer moves its state."""

UNFUSED_ACCESSES = 21.0
"""Elements that an AdamW of single operators reads and writes for each parameter.

`torch/optim/adamw.py:_single_tensor_adamw` of 2.13: decay 2, first moment 3, second 2 and 4, root 2, divided
2, epsilon 2, the update 4; what is emitted has one kernel, which takes 7.
"""

UNFUSED_TEMPORARIES = 2.0
"""New tensors, as large as what it updates, that it makes: a root, and what that is divided to."""


@dataclass(frozen=True, eq=False, repr=False)
class Facts:
    """A plan on a machine. Fractions are 0..1, modes 0/1 masks."""

    derivation: Derivation
    cluster: Cluster
    workload: Workload
    plan: Plan

    @cached_property
    def gpu(self) -> str:
        """Name of the tier that is the GPU's own memory."""
        return self.cluster.node.gpu_tier

    @cached_property
    def host(self) -> str | None:
        """Name of the DRAM tier."""
        return self.cluster.node.tier_of("dram")

    @cached_property
    def nvme(self) -> str | None:
        """Name of the NVMe tier."""
        return self.cluster.node.tier_of("nvme")

    @cached_property
    def nodes(self) -> int:
        """Nodes that its ranks are on, of which a grid's plans all have as many."""
        return self.cluster.nodes_of(float(np.max(self.plan.gpus)))

    @cached_property
    def element(self) -> float:
        """Bytes of a parameter in use, a gradient, an activation."""
        return ELEMENT_BYTES[self.workload.precision]

    @cached_property
    def params(self) -> float:
        """All parameters of the model."""
        return float(self.workload.model.params)

    @cached_property
    def trained(self) -> float:
        """Parameters that training changes: those that have gradients and optimizer state."""
        return float(self.workload.model.trainable_params)

    def optimizer_bytes(self, label: str, gradient: float, state: float) -> float:
        """Bytes that a pass of the optimizer moves per parameter, for bytes of gradient and of state."""
        return self.derivation.apply(
            optimizer_bytes_per_param,
            label,
            grad_bytes_per_param=gradient,
            optimizer_state_bytes_per_param=state,
            access_count=READ_AND_WRITTEN,
        )

    @cached_property
    def clipped(self) -> float:
        """1 where gradients are clipped by their norm, as they are unless it is said that they are not."""
        return float(self.workload.training.gradient_clipping is not False)

    @cached_property
    def of_operators(self) -> bool:
        """Whether the update is an AdamW of PyTorch's single operators, not one kernel."""
        optimizer = self.workload.training.optimizer
        return optimizer.kind == "adamw" and optimizer.fused is False

    @cached_property
    def embedding_gradients(self) -> float:
        """1 where even a frozen embedding's output has a gradient."""
        return 0.0

    @cached_property
    def rounds_pinned(self) -> bool:
        """Whether PyTorch rounds what it pins up to a power of two."""
        return self.workload.training.pinned_rounding

    @cached_property
    def kernels(self) -> Kernels:
        """What computes a layer between its matrix products: modules as they are written unless stated."""
        return self.workload.training.kernels or "eager"

    @cached_property
    def passes(self) -> Passes:
        """What one layer moves for a token, and its kernels."""
        kept = self.workload.activations
        return kept.written if self.kernels == "eager" else kept.fused

    @cached_property
    def stops_early(self) -> float:
        """1 where recomputation of a layer ends before its last matrix (`compute.stopped_before`)."""
        return 0.0

    @property
    def pads_vocabulary(self) -> bool:
        """Whether the vocabulary's rows are made a multiple of what tensor cores take."""
        return False

    def by_reach(self, measure: Callable[[Backward], float]) -> float:
        """`measure` of what one backward computes."""
        model, asked = self.workload.model, self.embedding_gradients
        return asked * measure(backward(model, True)) + (1 - asked) * measure(backward(model))

    @cached_property
    def ranks(self) -> float:
        """Ranks on one node."""
        return minimum(float(self.cluster.node.gpus_per_node), self.plan.dp_degree)

    @cached_property
    def tokens(self) -> float:
        """Tokens per rank and micro-step."""
        return self.derivation.apply(
            tokens_per_rank,
            micro_batch_size=self.plan.micro_batch_size,
            sequence_length=float(self.workload.training.sequence_length),
        )

    @cached_property
    def peak_tokens(self) -> float:
        """Tokens of a micro-step in which every sequence is as long as the longest."""
        training = self.workload.training
        if training.longest == training.sequence_length:
            return self.tokens
        return self.derivation.apply(
            tokens_per_rank,
            "of the longest sequences",
            micro_batch_size=self.plan.micro_batch_size,
            sequence_length=float(training.longest),
        )

    @cached_property
    def full(self) -> float:
        """1 where layers are recomputed whole."""
        return where(self.plan.activation_checkpointing == Checkpointing.FULL, 1.0, 0.0)

    @cached_property
    def selective(self) -> float:
        """1 where only attention is recomputed."""
        return where(self.plan.activation_checkpointing == Checkpointing.SELECTIVE, 1.0, 0.0)
