"""What the DeepSpeed ledger and step program both need to know of a plan, worked out once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ziplan.hardware.cluster import Cluster
from ziplan.laws.counts import tokens_per_rank
from ziplan.laws.law import Derivation, minimum, where
from ziplan.plan import Checkpointing, Plan
from ziplan.runtimes.deepspeed.knobs import Knobs, knobs, on_medium
from ziplan.runtimes.deepspeed.shards import Shards, largest_sub_group, shards
from ziplan.workload.training import Workload

ELEMENT_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0}
"""Bytes of one parameter, gradient or activation in each precision."""

MOMENT_BYTES = 8.0
"""Adam's two moments in fp32, per parameter."""

MASTER_BYTES = {"fp32": 0.0, "fp16": 4.0, "bf16": 4.0}
"""The fp32 master weight, where training does not compute in fp32 anyway."""


@dataclass(frozen=True)
class Facts:
    """A plan on a machine, in DeepSpeed's terms. Fractions are 0..1, stages as 0/1 masks."""

    derivation: Derivation
    cluster: Cluster
    workload: Workload
    plan: Plan
    knobs: Knobs = field(init=False)
    shards: Shards = field(init=False)

    def __post_init__(self) -> None:
        model = self.workload.model
        object.__setattr__(self, "knobs", knobs(model, self.plan, self.nvme))
        object.__setattr__(self, "shards", shards(model, self.plan.dp_degree, self.element))

    @cached_property
    def gpu(self) -> str:
        """Name of the tier that is the GPU's own memory."""
        return next(name for name, tier in self.cluster.node.tiers.items() if tier.scope == "gpu")

    @cached_property
    def host(self) -> str | None:
        """Name of the DRAM tier, DeepSpeed's device "cpu"."""
        return self._tier("dram")

    @cached_property
    def nvme(self) -> str | None:
        """Name of the NVMe tier, DeepSpeed's device "nvme"."""
        return self._tier("nvme")

    def _tier(self, medium: str) -> str | None:
        return next((name for name, tier in self.cluster.node.tiers.items() if tier.medium == medium), None)

    @cached_property
    def element(self) -> float:
        """Bytes of a parameter, a gradient, an activation."""
        return ELEMENT_BYTES[self.workload.precision]

    @cached_property
    def master(self) -> float:
        """Bytes of the fp32 master weight per parameter."""
        return MASTER_BYTES[self.workload.precision]

    @cached_property
    def states(self) -> float:
        """Bytes of optimizer state per parameter: master weight and moments."""
        return self.master + MOMENT_BYTES

    @cached_property
    def params(self) -> float:
        """All parameters of the model."""
        return float(self.workload.model.params)

    @cached_property
    def tokens(self) -> float:
        """Tokens per rank and micro-step."""
        return self.derivation.apply(
            tokens_per_rank,
            micro_batch_size=self.plan.micro_batch_size,
            sequence_length=float(self.workload.training.sequence_length),
        )

    @cached_property
    def ranks(self) -> float:
        """Ranks on one node."""
        return minimum(float(self.cluster.node.gpus_per_node), self.plan.dp_degree)

    @cached_property
    def stage3(self) -> float:
        """1 where parameters are partitioned."""
        return where(self.plan.zero_stage >= 3, 1.0, 0.0)

    @cached_property
    def full(self) -> float:
        """1 where layers are recomputed whole."""
        return where(self.plan.activation_checkpointing == Checkpointing.FULL, 1.0, 0.0)

    @cached_property
    def selective(self) -> float:
        """1 where only attention is recomputed."""
        return where(self.plan.activation_checkpointing == Checkpointing.SELECTIVE, 1.0, 0.0)

    @cached_property
    def sub_group(self) -> float:
        """Elements of one rank's largest sub-group (below stage 3 the whole shard is stepped at once)."""
        grouped = largest_sub_group(self.workload.model, self.plan.dp_degree, self.plan.sub_group_params)
        return where(self.plan.zero_stage >= 3, grouped, self.shards.owned)

    def params_on(self, tier: str | None) -> float:
        """Fraction of the parameters on a tier."""
        return on_medium(self.plan.placement.params, tier)

    def optimizer_on(self, tier: str | None) -> float:
        """Fraction of the optimizer state on a tier."""
        return on_medium(self.plan.placement.optimizer, tier)

    def checkpoints_on(self, tier: str | None) -> float:
        """Fraction of the activation checkpoints on a tier."""
        return on_medium(self.plan.placement.checkpoints, tier)

    @cached_property
    def swaps_optimizer(self) -> float:
        """1 where the optimizer is on NVMe."""
        return where(self.optimizer_on(self.nvme) > 0, 1.0, 0.0)

    @cached_property
    def optimizer_share_off_gpu(self) -> float:
        """Fraction of the optimizer that lives off the GPU."""
        return self.optimizer_on(self.host) + self.optimizer_on(self.nvme)

    @cached_property
    def optimizer_off_gpu(self) -> float:
        """1 where any of the optimizer lives off the GPU (its gradients then do too)."""
        return where(self.optimizer_share_off_gpu > 0, 1.0, 0.0)
