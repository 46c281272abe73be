"""What one rank owns of each tensor, and which of it DeepSpeed can swap to NVMe.

`part_i = ceil(n_i / dp)`, as `runtime/zero/partition_parameters.py` pads it. A shard below
the swap threshold stays in memory: in 16 bit in DRAM, as a gradient in fp32 on the GPU.
Stages 1 and 2 divide no tensor: they lay all of them end to end and cut that into equal partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ziplan.laws.law import ceil, maximum, where
from ziplan.runtimes.deepspeed.fetches import Fetches
from ziplan.runtimes.deepspeed.knobs import SWAP_ALIGNMENT_ELEMENTS, SWAP_THRESHOLD_BYTES, each
from ziplan.runtimes.runtime import total
from ziplan.runtimes.shared.fresh import UNMAPPED_FROM
from ziplan.workload.model import Layer, Model, Operator, Section

FP32_BYTES = 4
"""Gradients, master weights and moments are swapped in fp32."""

PARTITION_ALIGNMENT = 2
"""Elements that every rank's partition is a multiple of (`stage_1_and_2.py:nccl_start_alignment_factor`)."""


class Shards(NamedTuple):
    """Elements that one rank owns, all tensors together."""

    owned: float
    swappable_params: float
    swappable_gradients: float
    unswapped_gradients: float
    largest: float
    unmapped: float
    """Those of shards that are as large in 16 bits as what is handed back to the system when it is freed."""


def part(elements: float, dp_degree: float) -> float:
    """Elements of one rank's shard of a tensor."""
    return ceil(elements / dp_degree)


def swaps_params(shard: float, param_bytes: float) -> float:
    """1 where a 16-bit parameter shard of so many elements swaps, else 0."""
    return where(param_bytes * shard >= SWAP_THRESHOLD_BYTES, 1.0, 0.0)


def swaps_gradients(shard: float) -> float:
    """1 where all of a gradient shard of so many elements leaves the GPU, else 0."""
    return where(FP32_BYTES * shard >= SWAP_THRESHOLD_BYTES, 1.0, 0.0)


def swaps_states(sub_group: float) -> float:
    """1 where the state of a sub-group of so many elements of one rank swaps, else 0."""
    return where(FP32_BYTES * sub_group >= SWAP_THRESHOLD_BYTES, 1.0, 0.0)


Elements = NDArray[np.int64]

Sizes = tuple[tuple[int, int, bool], ...]
"""Sizes of tensors: (elements, how many such tensors, in a layer)."""


def shards(tensors: Sizes, dp_degree: float, param_bytes: float) -> Shards:
    """One rank's shards of tensors of these sizes (`dp_degree` may be an array)."""
    return (_shards if np.ndim(dp_degree) else _shards_once)(tensors, dp_degree, param_bytes)


def _shards(tensors: Sizes, dp_degree: float, param_bytes: float) -> Shards:
    owned, params, gradients, kept, unmapped = [], [], [], [], []
    largest = 0.0
    for elements, count, _ in tensors:
        shard = part(elements, dp_degree)
        owned.append(count * shard)
        params.append(count * shard * swaps_params(shard, param_bytes))
        # The aligned head of a gradient shard swaps; an unaligned tail keeps the whole tensor alive.
        aligned = shard - np.mod(shard, SWAP_ALIGNMENT_ELEMENTS)
        gradients.append(count * aligned * swaps_gradients(shard))
        held = maximum(1 - swaps_gradients(shard), where(aligned < shard, 1.0, 0.0))
        kept.append(count * shard * held)
        largest = maximum(largest, shard)
        unmapped.append(count * shard * where(param_bytes * shard >= UNMAPPED_FROM, 1.0, 0.0))
    return Shards(total(owned), total(params), total(gradients), total(kept), largest, total(unmapped))


_shards_once = lru_cache(maxsize=64)(_shards)


def tied_sizes(model: Model) -> Sizes:
    """Sizes of the tensors that modules are made with before they take another's weight in their place."""
    tied = [operator for operator in model.operators if operator.shared_with]
    return tuple((o.in_features * o.out_features, o.count, o.block) for o in tied)


def swapped_in(played: Fetches, dp_degree: float, param_bytes: float) -> float:
    """Elements of this rank's shards that one micro-step reads from NVMe."""
    read = 0.0
    for elements, fetched in played.by_size.items():
        shard = part(elements, dp_degree)
        read += fetched * shard * swaps_params(shard, param_bytes)
    return read


def largest_sub_group(model: Model, dp_degree: float, sub_group_params: float) -> float:
    """Elements of one rank's largest sub-group, as `stage3.py:_create_fp16_sub_groups` closes them.

    Tensors that are trained join in the order of the modules until the asked size is reached, so a sub-group
    overshoots by at most one shard.
    """
    return each(lambda dp, size: max(sub_groups(model, dp, size), default=0.0), dp_degree, sub_group_params)


def sub_group_count(model: Model, dp_degree: float, sub_group_params: float) -> float:
    """How many sub-groups one rank steps through; one, an empty one, where nothing is trained."""
    return each(lambda dp, size: float(len(sub_groups(model, dp, size)) or 1), dp_degree, sub_group_params)


def in_module_order(model: Model) -> Iterator[int]:
    """Elements of each tensor that is trained, in the order of the modules."""
    for section in model.sections:
        layers = as_made(model, section)
        trained = [operator for layer in layers for operator in layer if operator.trainable]
        once = [elements for operator in trained for elements in operator.tensors]
        for _ in range(section.repeat):
            yield from once


AS_VISITED = frozenset({"gpt2", "gpt_bigcode", "gpt_neo", "gptj", "bloom", "mpt", "opt"})
"""Families whose modules transformers makes in the order in which forward comes to them."""


def as_made(model: Model, section: Section) -> Sequence[Sequence[Operator]]:
    """The layers of a section, with their modules in the order in which transformers makes them."""
    if model.family in AS_VISITED or not section.block:
        return section.layers
    return [_as_registered(layer) for layer in section.layers]


def _as_registered(layer: Layer) -> list[Operator]:
    """A layer as transformers makes it in most families: norms come last in the module that has them."""
    groups: dict[tuple[bool, str], list[Operator]] = {}
    for operator in layer:
        module, _, own = operator.name.rpartition(".")
        of_layer = operator.kind == "norm" and not module
        groups.setdefault((of_layer, "" if of_layer else module or own), []).append(operator)
    by_group = sorted(groups.items(), key=lambda group: group[0][0])  # stable: as visited, then norms
    return [
        operator for _, group in by_group for operator in sorted(group, key=lambda each: each.kind == "norm")
    ]


@lru_cache(maxsize=256)
def sub_groups(model: Model, dp_degree: float, sub_group_params: float) -> tuple[float, ...]:
    """Elements of each sub-group of one rank."""
    groups, group = [], 0
    for elements in in_module_order(model):
        group += -(-elements // int(dp_degree))
        if group >= sub_group_params:
            groups.append(float(group))
            group = 0
    return tuple([*groups, float(group)] if group else groups)


class Reached(NamedTuple):
    """Elements of the tensors that stages 1 and 2 give ranks a part of, each counted whole.

    Of a rank, on average, and of the one that has the most; of all ranks of the node that has the most; the
    same with each tensor rounded up to a power of two.
    """

    mean: float
    rank: float
    node: float
    rounded: float


@lru_cache(maxsize=256)
def reached(model: Model, dp_degree: float, ranks_per_node: float, dealt_out: bool) -> Reached:
    """What the partitions of ranks reach into (`reached_by_rank`)."""
    whole, rounded = reached_by_rank(model, dp_degree, dealt_out)
    first_of_nodes = np.arange(0, whole.size, int(ranks_per_node))
    nodes = (float(np.add.reduceat(by_rank, first_of_nodes).max()) for by_rank in (whole, rounded))
    return Reached(float(whole.mean()), float(whole.max()), *nodes)


@lru_cache(maxsize=16)
def reached_by_rank(model: Model, dp_degree: float, dealt_out: bool) -> tuple[Elements, Elements]:
    """For each rank, elements of the tensors that it has a part of, and each rounded up to a power of two.

    Partitions are equal stretches of all that is trained, in the order of the modules; `dealt_out`: of the
    tensors as `round_robin_gradients` deals them out to the ranks, one after the other.
    """
    sizes, ranks = np.fromiter(in_module_order(model), dtype=np.int64), int(dp_degree)
    if dealt_out:
        sizes = sizes[np.argsort(np.arange(sizes.size) % ranks, kind="stable")]
    partition = PARTITION_ALIGNMENT * max(1, -(-int(sizes.sum()) // (PARTITION_ALIGNMENT * ranks)))
    ends = np.cumsum(sizes)
    first, last = (ends - sizes) // partition, (ends - 1) // partition
    found = []
    for elements in (sizes, 2 ** np.ceil(np.log2(sizes)).astype(np.int64)):
        # Added where a tensor's first rank is, taken away after its last one.
        steps = np.zeros(ranks + 1, dtype=np.int64)
        np.add.at(steps, first, elements)
        np.add.at(steps, last + 1, -elements)
        found.append(np.cumsum(steps)[:ranks])
    return found[0], found[1]
