"""Weights on their way in and out: what stands on the host while a model is loaded or saved."""

from __future__ import annotations

from ziplan.laws.law import minimum
from ziplan.laws.memory import held_bytes
from ziplan.runtimes.shared.facts import ELEMENT_BYTES, FP32_BYTES, Facts

CHECKPOINT_FILE = 5e9
"""Bytes of one checkpoint file where it is not stated, Hugging Face's default `max_shard_size` of 5 GB."""


def whole_model(f: Facts, label: str, share: float, copies: float) -> tuple[float, float]:
    """(low, high) bytes on one node of so many copies of the model while it is loaded.

    Where the dtype is not stated it is the training's at the least, fp32 at the most; stated
    copies win over `copies`.
    """
    low, high = _loaded_bytes(f)
    count = _copies(f) or copies
    return _held(f, label, low, share, count), _held(f, label, high, share, count)


def checkpoint_files(f: Facts, share: float) -> tuple[float, float]:
    """(low, high) bytes on one node of checkpoint files that are read, one at a time, by those that load.

    Where it is not stated who reads them, none is in memory (mapped files) or every rank's.
    """
    largest = f.workload.training.loading.largest_file
    size = minimum(CHECKPOINT_FILE, _loaded_bytes(f)[1] * f.params) if largest is None else largest
    stated = _copies(f)
    return (share * stated * size,) * 2 if stated else (0.0, share * f.ranks * size)


def _loaded_bytes(f: Facts) -> tuple[float, float]:
    """Bytes per parameter of weights that are loaded, at the least and at the most."""
    dtype = f.workload.training.loading.dtype
    return (ELEMENT_BYTES[dtype],) * 2 if dtype else (f.element, FP32_BYTES)


def _copies(f: Facts) -> float:
    """How many ranks of a node have the weights, as far as it is stated; else 0."""
    return {None: 0.0, "every_rank": f.ranks, "rank_0": 1.0}[f.workload.training.loading.copies]


def _held(f: Facts, label: str, bytes_per_param: float, share: float, copies: float) -> float:
    return f.derivation.apply(
        held_bytes,
        label,
        params=f.params,
        state_bytes_per_param=bytes_per_param,
        share=share,
        ranks_per_instance=copies,
    )
