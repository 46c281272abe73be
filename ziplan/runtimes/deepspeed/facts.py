"""What the DeepSpeed ledger and step program both need to know of a plan, worked out once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ziplan.laws.law import where
from ziplan.runtimes.deepspeed.fetches import Fetches
from ziplan.runtimes.deepspeed.knobs import (
    DDP_BUCKET_BYTES,
    KEYS,
    PIN_MEMORY,
    STAGE_0_BUCKET,
    Knobs,
    each,
    knobs,
    on_medium,
    plays,
    stated_knobs,
)
from ziplan.runtimes.deepspeed.shards import (
    Shards,
    Sizes,
    largest_sub_group,
    reached,
    shards,
    sub_group_count,
    swaps_states,
)
from ziplan.runtimes.deepspeed.states import StateFacts
from ziplan.runtimes.deepspeed.tiled import by_tiles
from ziplan.runtimes.deepspeed.twin_flow import whole_groups
from ziplan.runtimes.shared.facts import FP32_BYTES
from ziplan.workload.model import Model

PIPELINED_BUFFERS = 12
"""`offload_optimizer.buffer_count` that reading and writing behind the update need (4 without)."""


@dataclass(frozen=True, eq=False, repr=False)
class Facts(StateFacts):
    """A plan on a machine, in DeepSpeed's terms; its devices "cpu" and "nvme" are the DRAM and NVMe tiers."""

    @cached_property
    def knobs(self) -> Knobs:
        """What the config says."""
        stated = self.stated
        found = (
            knobs(self.workload.model, self.plan, self.nvme)
            if stated is None
            else stated_knobs(stated, self.plan, self.nvme)
        )
        if not self.traits.takes_experts_whole:
            found = found._replace(leaves=())
        if stated is None and self.traits.loads_three_times:
            found = found._replace(reuse_distance=0.0)
        said: dict[str, Any] = {KEYS[key]: value for key, value in (self.zero or {}).items() if key in KEYS}
        dropout = self.workload.training.dropout
        found = found._replace(reentrant=self.reentrant, dropout=dropout, **said)
        stage_0 = DDP_BUCKET_BYTES / self.element if self.in_pytorch else STAGE_0_BUCKET
        bucket = where(self.plan.zero_stage < 1, stage_0, found.reduce_bucket)
        return found._replace(reduce_bucket=bucket)

    @cached_property
    def played(self) -> Callable[[Callable[[Fetches, float], float]], float]:
        """What takes a measure of what a micro-step fetches, of a plan or of each in a grid."""
        return plays(self.workload.model, self.plan, self.knobs)

    @cached_property
    def param_buffer(self) -> float:
        """Elements of a buffer that parameters are swapped through."""
        return self.shards.largest if self.stated is None else float(self.stated.offload_param.buffer_size)

    @cached_property
    def swaps_params(self) -> float:
        """1 where parameters have a swapper: also one whose parameters `max_in_cpu` keeps in DRAM."""
        kept = (
            self.stated is not None and self.stated.stage == 3 and self.stated.offload_param.device == "nvme"
        )
        return 1.0 if kept else where(self.params_on(self.nvme) > 0, 1.0, 0.0)

    @cached_property
    def set_aside(self) -> float:
        """Elements of a rank that `max_in_cpu` pins for parameters on NVMe, and no sub-group fits into."""
        if self.stated is None or self.stated.stage < 3 or self.stated.offload_param.device != "nvme":
            return 0.0
        pinned = min(self.trained_shards.owned, float(self.stated.offload_param.max_in_cpu))
        return max(0.0, pinned - self.params_on(self.host) * self.trained_shards.owned)

    @cached_property
    def accumulated(self) -> float:
        """Bytes of an accumulated gradient: `grad_accum_dtype`, else the precision that computes."""
        if self.stated is None or self.plan.zero_stage < 2:
            return self.element
        return FP32_BYTES if self.stated.types.gradients == "fp32" else self.element

    @cached_property
    def pins_gradients(self) -> bool:
        """`offload_optimizer.pin_memory`, of a config or of a run; on in what is emitted."""
        if self.stated is not None:
            return self.stated.offload_optimizer.pin_memory
        return bool((self.zero or {}).get(PIN_MEMORY, True))

    @cached_property
    def casts_gradients(self) -> float:
        """Share of stage 3's last gradients that the host casts (see the trait): of those that stay there."""
        if not self.traits.casts_gradients_on_host or self.accumulated >= self.master:
            return 0.0
        off = where(self.optimizer_off_gpu > 0, self.optimizer_share_off_gpu, 1.0)
        return self.stage3 * self.optimizer_on(self.host) / off

    @cached_property
    def accumulates_on_gpu(self) -> float:
        """1 where stage 2 adds gradients of 16 bits up in fp32: in its partition on the GPU, in any case.

        `stage_1_and_2.py:_use_compact_grad_partition_buffer`, whose partition goes to the host once per step.
        """
        return (1 - self.stage3) * float(self.accumulated > self.element)

    @cached_property
    def accumulates_whole(self) -> float:
        """1 where a rank adds up on the host, whole, gradients of which it owns a part: below stage 3.

        `stage_1_and_2.py:async_accumulate_grad_in_cpu_via_gpu`, with a buffer for each tensor. Master weights
        in 16 bits have what a rank owns added to their own gradient. Stage 1 adds up on the GPU; releases
        that have its buffers all the same copy to them once per step.
        """
        below = where(self.plan.zero_stage >= 2, 1.0, self._accumulates_in_stage1) * (1 - self.stage3)
        several = where(self.plan.accumulation_steps > 1, 1.0, 0.0)
        in_place = 1.0 if self.master < FP32_BYTES else 0.0
        return below * several * self.optimizer_off_gpu * (1 - in_place) * (1 - self.accumulates_on_gpu)

    @cached_property
    def _accumulates_in_stage1(self) -> float:
        return where(self.plan.zero_stage >= 1, self.traits.accumulates_in_stage1, 0.0)

    @cached_property
    def stage1_piles_up(self) -> float:
        """1 where the last backward of stage 1 ends with all gradients still whole.

        They are reduced as it goes if `overlap_comm` is on; those of earlier micro-steps are there already.
        """
        contiguous = (
            self.stated is None or self.stated.contiguous_gradients or bool(np.all(self.optimizer_off_gpu))
        )
        as_it_goes = 1.0 if self.overlaps and contiguous else 0.0
        return 1 - as_it_goes * where(self.plan.accumulation_steps > 1, 0.0, 1.0)

    def reached(self, kind: str, dealt_out: bool | None = None) -> float:
        """Elements of the tensors that partitions below stage 3 reach into, by a name of `shards.Reached`.

        `dealt_out` as `gradients_dealt_out`, which stands for what is on the host.
        """
        dealt = self.gradients_dealt_out if dealt_out is None else dealt_out
        per_node = float(self.cluster.node.gpus_per_node)

        def elements(dp_degree: float) -> float:
            found = reached(self.workload.model, dp_degree, min(dp_degree, per_node), dealt)
            return float(getattr(found, kind))

        return each(elements, self.plan.dp_degree)

    @cached_property
    def owned_whole(self) -> float:
        """Elements of the tensors that the rank with the most owns parts of, of gradients on the GPU."""
        return self.reached("rank", self.stated is not None and self.stated.round_robin_gradients)

    @cached_property
    def pipelined(self) -> float:
        """1 where the optimizer's swap runs beside its update."""
        if self.stated is not None:
            offload = self.stated.offload_optimizer
            return self.swaps_optimizer * float(offload.pipeline_read and offload.pipeline_write)
        enough = where(self.plan.optimizer_buffer_count >= PIPELINED_BUFFERS, 1.0, 0.0)
        return enough * self.swaps_optimizer

    @cached_property
    def shards(self) -> Shards:
        """What a rank owns of all tensors."""
        return self._shards(lambda model: model.tensors)

    @cached_property
    def trained_shards(self) -> Shards:
        """What it owns of those that training changes."""
        return self._shards(lambda model: model.trainable_tensors)

    def _shards(self, of: Callable[[Model], Sizes]) -> Shards:
        """What a rank owns of these tensors; a tile is one of its own."""

        def field(place: int) -> float:
            def measure(tiles: Model) -> float:
                return shards(of(tiles), self.plan.dp_degree, self.element)[place]

            return by_tiles(self.workload.model, self.plan.tile_count, measure)

        return Shards(*(field(place) for place in range(len(Shards._fields))))

    @cached_property
    def embedding_gradients(self) -> float:
        """1 with transformers' checkpointing: `enable_input_require_grads` for layers that are recomputed."""
        return self.full

    @cached_property
    def divided_at_once(self) -> float:
        """1 where zero.Init divides each tensor as it is made: in stage 3, unless said not to be used."""
        return 0.0 if self.workload.training.loading.zero_init is False else self.stage3

    @cached_property
    def rounds_pinned(self) -> bool:
        """Unless the release ran on a PyTorch that did not."""
        return self.workload.training.pinned_rounding and not self.traits.pins_exactly

    @property
    def reentrant(self) -> bool:
        """Whether layers are recomputed by the reentrant checkpoint function, as before transformers 5."""
        return bool(self.traits.recomputes_whole_layers)

    @cached_property
    def stops_early(self) -> float:
        """1 where checkpoints are not reentrant."""
        return 1.0 - self.reentrant

    @cached_property
    def copies_in_turn(self) -> float:
        """1 where gradients are reduced and go to the host on the stream that computes.

        `zero/stage_1_and_2.py:reduce_ipg_grads`, and in stage 3 `zero/stage3.py:reduce_and_partition_stream`,
        unless `overlap_comm` is on, as in what is emitted. What stage 3 gathers runs beside computation all
        the same: the collective waits for what was asked of the GPU before it, and only the module that
        needs it waits for the collective.
        """
        return 0.0 if self.overlaps else 1.0

    @property
    def exchanges_over_the_host(self) -> bool:
        """Whether GPUs of a node exchange over a link that copies to and from the host cross too."""
        node = self.cluster.node
        return node.fabric is None or (self.host is not None and node.fabric in node.tiers[self.host].via)

    @cached_property
    def owners_take_turns(self) -> float:
        """1 where one rank after the other copies its gradients to the host: below stage 3.

        Each owns a stretch of the model that backward comes to in turn, unless `round_robin_gradients` deals
        the tensors out (`stage_1_and_2.py:_round_robin_reorder`), as in what is emitted.
        """
        below = where(self.plan.zero_stage >= 1, 1 - self.stage3, 0.0)
        return 0.0 if self.gradients_dealt_out else below * self.optimizer_off_gpu

    @cached_property
    def gradients_dealt_out(self) -> bool:
        """`round_robin_gradients`, of a config or as the release has it."""
        if self.stated is None:
            return bool(self.traits.deals_gradients_out)
        return self.stated.round_robin_gradients

    @cached_property
    def in_pytorch(self) -> float:
        """1 where PyTorch's own data parallelism has the gradients, and no DeepSpeed."""
        return 1.0 - self.traits.passes_gradients

    @cached_property
    def overlaps(self) -> bool:
        """`overlap_comm`: on in what is emitted, and where nothing is said of a run."""
        return (self.overlap_comm if self.stated is None else self.stated.overlap_comm) is not False

    @cached_property
    def reduces_in_backward(self) -> float:
        """1 where the last gradients are reduced, and leave the GPU, while backward runs.

        Stage 1 needs `overlap_comm` for that (`stage_1_and_2.py:process_gradients`), stage 0 waits, and
        PyTorch's own data parallelism does not (`reducer.cpp:mark_variable_ready`, arXiv:2006.15704).
        """
        in_stage1 = where(self.plan.zero_stage >= 1, 1 - self.copies_in_turn, self.in_pytorch)
        return where(self.plan.zero_stage >= 2, 1.0, in_stage1)

    @cached_property
    def reduce_passes(self) -> float:
        """How often a gradient goes around the ring: once to its owner, twice where all ranks get the sum.

        Stage 0 all-reduces (`engine.py:buffered_allreduce_fallback`), and so do stages 1 and 2, whose ranks
        then keep their part (`stage_1_and_2.py:allreduce_and_scatter`), unless a release or a config has it
        otherwise. Stage 3 scatters unless `reduce_scatter` is off (`__avg_scatter_contiguous_grads`).
        """
        below, in_stage3 = 1 + self.traits.reduces_to_all, 1.0
        if self.stated is not None:
            scatters = self.stated.reduce_scatter
            below = 1.0 if scatters and not self.stated.use_multi_rank_bucket_allreduce else 2.0
            in_stage3 = 1.0 if scatters or not self.stated.contiguous_gradients else 2.0
        return where(self.plan.zero_stage < 1, 2.0, where(self.plan.zero_stage < 3, below, in_stage3))

    @cached_property
    def gathers_to_save(self) -> float:
        """1 where stage 3 gathers its weights to save them."""
        return 1.0 if self.workload.training.saving == "gathered" else 0.0

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
        if tier in (self.gpu, self.host) and np.any(self.twin_flow > 0):
            mixed = self._share_of_twin_flow if tier == self.host else 1 - self._share_of_twin_flow
            return where(self.twin_flow > 0, mixed, self._optimizer_as_placed(tier))
        return self._optimizer_as_placed(tier)

    @cached_property
    def twin_flow(self) -> float:
        """1 where the optimizer lives on the GPU and on the host (DeepSpeed's `ratio`)."""
        homes = self.plan.placement.optimizer
        on_gpu, on_host = on_medium(homes, self.gpu), on_medium(homes, self.host)
        return where((on_gpu > 0) & (on_host > 0), self.stage3, 0.0)

    @cached_property
    def _share_of_twin_flow(self) -> float:
        """What of the optimizer is on the host then: whole sub-groups, at least what is asked for."""
        asked = on_medium(self.plan.placement.optimizer, self.host)
        return whole_groups(self.workload.model, self.plan.dp_degree, self.plan.sub_group_params, asked)

    def _optimizer_as_placed(self, tier: str | None) -> float:
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
