"""What DeepSpeed keeps and moves of one parameter: master weight, moments, passes of an update; in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ziplan.laws.law import maximum, where
from ziplan.runtimes.deepspeed.optimizers import OPTIMIZERS, Supported
from ziplan.runtimes.deepspeed.traits import NEWEST, Traits
from ziplan.runtimes.shared import facts as shared
from ziplan.runtimes.shared.facts import ELEMENT_BYTES, FP32_BYTES, READ_AND_WRITTEN, UNFUSED_ACCESSES

if TYPE_CHECKING:
    from ziplan.runtimes.deepspeed.reading.settings import Settings


@dataclass(frozen=True, eq=False, repr=False)
class StateFacts(shared.Facts):
    """Of a plan, of a config that exists (`stated`), and of a release.

    `stated` is None where settings follow from the plan. `traits` are those of the release, `overlap_comm`
    what a run said of it, `zero` what it said of other keys (`KEYS`).
    """

    stated: Settings | None = None
    traits: Traits = NEWEST
    overlap_comm: bool | None = None
    zero: Mapping[str, float] | None = None

    @cached_property
    def stage3(self) -> float:
        """1 where parameters are partitioned."""
        return where(self.plan.zero_stage >= 3, 1.0, 0.0)

    @cached_property
    def master(self) -> float:
        """Bytes of a master weight off the GPU, and of the gradient beside it."""
        return ELEMENT_BYTES[self.workload.training.master_precision]

    @cached_property
    def gpu_master(self) -> float:
        """Bytes of a master weight on the GPU: from stage 1 on, also where training has its precision.

        Stage 3 would step the parameters themselves then, but compares a device with its name
        (`stage3.py:_create_fp32_partitions`), which is never true.
        """
        same = 1.0 if self.workload.precision == self.workload.training.master_precision else 0.0
        return self.master * (1 - same * where(self.plan.zero_stage < 1, 1.0, 0.0))

    @cached_property
    def optimizer(self) -> Supported:
        """What DeepSpeed has under the name of the optimizer."""
        return OPTIMIZERS[self.workload.training.optimizer.kind]

    @cached_property
    def moments(self) -> float:
        """Bytes of the optimizer's own state per parameter, off the GPU."""
        return (self.optimizer.on_host or 0.0) * self.master / FP32_BYTES

    @cached_property
    def gpu_moments(self) -> float:
        """The same on the GPU; moments have the precision of the master weights."""
        return self.optimizer.on_gpu * self.master / FP32_BYTES

    @cached_property
    def host_pass(self) -> float:
        """Bytes of DRAM traffic of the update per parameter; states in bf16 are taken at the pace of fp32.

        The compiled CPU Adam computes in fp32 whatever it reads: 3.1 against 2.84 Gparam/s were
        measured on two cores. `torch_adam` of the config has PyTorch's own (`get_optimizer_configuration`).
        """
        if self.of_operators:
            return UNFUSED_ACCESSES * self.master + self.beside_the_update
        state = FP32_BYTES + self.optimizer.moved_on_host
        return self.optimizer_bytes("update on the host", FP32_BYTES, state) + self.beside_the_update

    @cached_property
    def beside_the_update(self) -> float:
        """Bytes per parameter of the other passes of a step on the host.

        Gradients are scaled; updated weights are cast to the precision that computes, and the CPU optimizer
        that copies by tile casts itself.
        """
        by_tile = self.traits.copies_by_tile * (1 - self.stage3)
        return self.scaled + (1 - by_tile) * self.master + self.element

    @cached_property
    def scaled(self) -> float:
        """Bytes per parameter of gradients that are unscaled and clipped in place (`unscale_and_clip_grads`).

        Where there is nothing to do, too, but in the newest releases below stage 3.
        """
        needed = maximum(float(self.workload.precision == "fp16"), self.clipped)
        needless = self.traits.scales_if_needed * (1 - self.stage3) * (1 - needed)
        return READ_AND_WRITTEN * self.master * (1 - needless)

    @cached_property
    def on_gpu_in_twin_flow(self) -> float:
        """Bytes per parameter of what twin-flow keeps on the GPU: master weight, moments and gradient.

        The gradient has a place of its own from the start (`stage3.py:initialize_optimizer_states`), and
        is never let go where an optimizer is offloaded (`_release_sub_group`).
        """
        return self.gpu_master + self.gpu_moments + self.master

    @cached_property
    def states(self) -> float:
        """Bytes that the optimizer keeps per parameter off the GPU: master weight and moments."""
        return self.master + self.moments
