"""What the DeepSpeed ledger and step program both need to know of a plan, worked out once."""

from __future__ import annotations

from functools import cached_property

from ziplan.laws.law import where
from ziplan.runtimes.deepspeed.knobs import Knobs, knobs, on_medium
from ziplan.runtimes.deepspeed.shards import Shards, largest_sub_group, shards, sub_group_count, swaps_states
from ziplan.runtimes.shared import facts as shared
from ziplan.runtimes.shared.facts import MOMENT_BYTES

MASTER_BYTES = {"fp32": 0.0, "fp16": 4.0, "bf16": 4.0}
"""The fp32 master weight, where training does not compute in fp32 anyway."""


class Facts(shared.Facts):
    """A plan on a machine, in DeepSpeed's terms; its devices "cpu" and "nvme" are the DRAM and NVMe tiers."""

    @cached_property
    def knobs(self) -> Knobs:
        """What the config says."""
        return knobs(self.workload.model, self.plan, self.nvme)

    @cached_property
    def shards(self) -> Shards:
        """What a rank owns of all tensors."""
        return shards(self.workload.model.tensors, self.plan.dp_degree, self.element)

    @cached_property
    def trained_shards(self) -> Shards:
        """What it owns of those that training changes."""
        return shards(self.workload.model.trainable_tensors, self.plan.dp_degree, self.element)

    @cached_property
    def master(self) -> float:
        """Bytes of the fp32 master weight per parameter."""
        return MASTER_BYTES[self.workload.precision]

    @cached_property
    def moments(self) -> float:
        """Bytes of the optimizer's own state per parameter."""
        return MOMENT_BYTES

    @cached_property
    def states(self) -> float:
        """Bytes that the optimizer keeps per parameter: master weight and moments."""
        return self.master + self.moments

    @cached_property
    def embedding_gradients(self) -> float:
        """1 with transformers' checkpointing: `enable_input_require_grads` for layers that are recomputed."""
        return self.full

    @cached_property
    def stage3(self) -> float:
        """1 where parameters are partitioned."""
        return where(self.plan.zero_stage >= 3, 1.0, 0.0)

    @cached_property
    def divided_at_once(self) -> float:
        """1 where zero.Init divides each tensor as it is made: in stage 3, unless said not to be used."""
        return 0.0 if self.workload.training.loading.zero_init is False else self.stage3

    @cached_property
    def sub_group(self) -> float:
        """Elements of one rank's largest sub-group (below stage 3 the whole shard is stepped at once)."""
        grouped = largest_sub_group(self.workload.model, self.plan.dp_degree, self.plan.sub_group_params)
        return where(self.plan.zero_stage >= 3, grouped, self.trained_shards.owned)

    @cached_property
    def sub_groups(self) -> float:
        """How many sub-groups one rank steps through (below stage 3 one)."""
        count = sub_group_count(self.workload.model, self.plan.dp_degree, self.plan.sub_group_params)
        return where(self.plan.zero_stage >= 3, count, 1.0)

    def params_on(self, tier: str | None) -> float:
        """Fraction of the parameters on a tier."""
        return on_medium(self.plan.placement.params, tier)

    def optimizer_on(self, tier: str | None) -> float:
        """Fraction of the optimizer state on a tier; sub-groups too small to swap stay in DRAM."""
        share = on_medium(self.plan.placement.optimizer, tier)
        swapped = on_medium(self.plan.placement.optimizer, self.nvme)
        if tier == self.nvme:
            return share * self.swappable
        return share + swapped * (1 - self.swappable) if tier == self.host else share

    @cached_property
    def swappable(self) -> float:
        """1 where the largest sub-group is large enough to swap (`swap_tensor/optimizer_utils.py`)."""
        return swaps_states(self.sub_group)

    def checkpoints_on(self, tier: str | None) -> float:
        """Fraction of the activation checkpoints on a tier."""
        return on_medium(self.plan.placement.checkpoints, tier)

    @cached_property
    def swaps_optimizer(self) -> float:
        """1 where the optimizer is swapped to NVMe."""
        return where(self.optimizer_on(self.nvme) > 0, 1.0, 0.0)

    @cached_property
    def optimizer_share_off_gpu(self) -> float:
        """Fraction of the optimizer that lives off the GPU."""
        return self.optimizer_on(self.host) + self.optimizer_on(self.nvme)

    @cached_property
    def optimizer_off_gpu(self) -> float:
        """1 where any of the optimizer lives off the GPU (its gradients then do too)."""
        return where(self.optimizer_share_off_gpu > 0, 1.0, 0.0)
