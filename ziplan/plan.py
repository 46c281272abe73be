"""The decision variables of a training run, nothing else.

Every number is a scalar or a numpy array (statically `float`); arrays broadcast against each
other, each search axis along a dimension of its own, so that one evaluator serves one plan
and a whole grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType


class Checkpointing(IntEnum):
    """How many activations a layer keeps for backward (`activation_checkpointing`)."""

    NONE = 0
    SELECTIVE = 1
    FULL = 2

    @classmethod
    def named(cls, name: str) -> Checkpointing:
        """The mode called `name` ("none", "selective", "full")."""
        return cls[name.upper()]


ON_GPU: Mapping[str, float] = MappingProxyType({"hbm": 1.0})


@dataclass(frozen=True)
class Placement:
    """For each kind of state, what fraction of it lives on which tier (fractions add up to 1)."""

    params: Mapping[str, float] = field(default_factory=lambda: ON_GPU)
    grads: Mapping[str, float] = field(default_factory=lambda: ON_GPU)
    optimizer: Mapping[str, float] = field(default_factory=lambda: ON_GPU)
    checkpoints: Mapping[str, float] = field(default_factory=lambda: ON_GPU)


@dataclass(frozen=True)
class Plan:
    """One way to run one workload on one cluster.

    `micro_batch_size` counts sequences per rank and micro-step. `prefetch_depth` counts
    lookahead layers beside the one in use; `tile_count` splits the widest operators;
    `sub_group_params` is the optimizer's tile, in parameters of one rank. Buffer counts are
    those of the runtime's swap pools and 0 where it has none. `vpp_degree` counts the pieces that the
    layers of a pipeline stage are cut into (interleaved, or virtual, stages).
    """

    dp_degree: float
    zero_stage: float = 3
    placement: Placement = field(default_factory=Placement)
    tp_degree: float = 1
    pp_degree: float = 1
    vpp_degree: float = 1
    micro_batch_size: float = 1
    accumulation_steps: float = 1
    activation_checkpointing: float = Checkpointing.FULL
    prefetch_depth: float = 1
    tile_count: float = 1
    sub_group_params: float = 1e9
    param_buffer_count: float = 0
    optimizer_buffer_count: float = 0

    @property
    def gpus(self) -> float:
        """GPUs that it uses."""
        return self.dp_degree * self.tp_degree * self.pp_degree

    @property
    def divides_model(self) -> bool:
        """Whether the model itself is divided, by tensor or pipeline parallelism; of one plan alone."""
        return self.tp_degree != 1 or self.pp_degree != 1 or self.vpp_degree != 1
