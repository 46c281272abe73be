"""What the FSDP ledger and step program both need to know of a plan, worked out once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ziplan.laws.law import where
from ziplan.runtimes.fsdp.groups import Groups, groups
from ziplan.runtimes.fsdp.optimizers import OPTIMIZERS
from ziplan.runtimes.runtime import total
from ziplan.runtimes.shared import facts as shared
from ziplan.runtimes.shared.facts import (
    ELEMENT_BYTES,
    FP32_BYTES,
    READ_AND_WRITTEN,
    UNFUSED_ACCESSES,
    UNFUSED_TEMPORARIES,
)
from ziplan.runtimes.shared.fresh import UNMAPPED_FROM


@dataclass(frozen=True)
class Facts(shared.Facts):
    """A plan on a machine, in FSDP2's terms; `CPUOffloadPolicy` puts things on the DRAM tier.

    `flat`: of FSDP1, which keeps a group in one flat tensor.
    """

    flat: bool = False

    @cached_property
    def groups(self) -> Groups:
        """What is gathered and reduced together."""
        return groups(self.workload.model, self._padded_to)

    @cached_property
    def stops_early(self) -> float:
        """`checkpoint_wrapper` is not reentrant unless asked to be."""
        return 1.0

    @cached_property
    def master(self) -> float:
        """Bytes of a trained parameter and of its gradient: `fully_shard` keeps the precision it is given."""
        return ELEMENT_BYTES[self.workload.training.master_precision]

    @cached_property
    def cast(self) -> float:
        """1 where what is kept is cast to what computes, and gradients are cast back.

        `_fsdp_param.py:init_dtype_attrs` casts nothing where both have one precision.
        """
        return float(self.workload.training.master_precision != self.workload.precision)

    @cached_property
    def recast(self) -> float:
        """Bytes per parameter of a pass that casts what is kept to what computes, or gradients back."""
        return self.cast * (self.master + self.element)

    @cached_property
    def moments(self) -> float:
        """Bytes of the optimizer's own state per parameter, in the precision of the parameter."""
        supported = OPTIMIZERS.get(self.workload.training.optimizer.kind)
        return supported.state * self.master / FP32_BYTES if supported else 0.0

    @cached_property
    def update(self) -> float:
        """Bytes that the update moves per parameter: gradient, parameter and state, a decayed gradient."""
        if self.of_operators:
            return UNFUSED_ACCESSES * self.master
        once = self.optimizer_bytes("the update", self.master, self.master + self.moments)
        # Gradient and parameter are read, their sum is written.
        return once + 3 * self.decayed

    @cached_property
    def decayed(self) -> float:
        """Bytes per parameter of the gradient that weight decay makes where no kernel fuses the update."""
        optimizer = self.workload.training.optimizer
        supported = OPTIMIZERS.get(optimizer.kind)
        return 0.0 if supported is None or supported.fused or not optimizer.weight_decay else self.master

    @cached_property
    def scaled(self) -> float:
        """Bytes per parameter of gradients that are multiplied in place (`clip_grads_with_norm_`)."""
        return READ_AND_WRITTEN * self.master * self.clipped

    @cached_property
    def temporaries(self) -> float:
        """Tensors as large as a shard that the update makes."""
        return UNFUSED_TEMPORARIES if self.of_operators else float(self.decayed > 0)

    @cached_property
    def made_anew(self) -> float:
        """Share of what is trained whose temporaries are handed back to the system: those of large shards."""
        tensors = self.workload.model.trainable_tensors
        large = total(
            where(self.master * size / self.plan.dp_degree >= UNMAPPED_FROM, float(size * count), 0.0)
            for size, count, _ in tensors
        )
        return large / max(self.trained, 1.0)

    @cached_property
    def trained_groups(self) -> Groups:
        """What is reduced together."""
        return groups(self.workload.model, self._padded_to, trained=True)

    @cached_property
    def _padded_to(self) -> float:
        """Rows of a tensor are padded to the ranks; a flat tensor's end, which is nothing beside it."""
        return 1.0 if self.flat else self.plan.dp_degree

    @cached_property
    def frozen(self) -> float:
        """Padded elements of what is frozen."""
        return self.groups.all - self.trained_groups.all

    @cached_property
    def offloaded(self) -> float:
        """1 where the state lives on the host, whole."""
        on_host = self.plan.placement.params.get(self.host, 0.0) if self.host else 0.0
        return where(on_host > 0, 1.0, 0.0)

    @cached_property
    def accumulating(self) -> float:
        """Share of the micro-steps that add to gradients of an earlier one."""
        return (self.plan.accumulation_steps - 1) / self.plan.accumulation_steps
