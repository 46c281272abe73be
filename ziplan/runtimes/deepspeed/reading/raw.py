"""A DeepSpeed config's mapping, read: the one entry to the walk, the look-ups and the checks between keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ziplan.files.document import Path
from ziplan.runtimes.deepspeed.reading.batch import Batch, settled_batch
from ziplan.runtimes.deepspeed.reading.checks import check_lookups
from ziplan.runtimes.deepspeed.reading.cross import check_together
from ziplan.runtimes.deepspeed.reading.kinds import ANY, AUTO
from ziplan.runtimes.deepspeed.reading.remarks import Notes
from ziplan.runtimes.deepspeed.reading.table import Key
from ziplan.runtimes.deepspeed.reading.walk import SECTIONS, Values, Walk


class Read(NamedTuple):
    """A config as DeepSpeed takes it: every section with its defaults, what the file states, the batch."""

    values: Values
    stated: frozenset[Path]
    batch: Batch | None


def read_mapping(data: Mapping[str, Any], ranks: float, notes: Notes, batch_known: bool = True) -> Read:
    """What `DeepSpeedConfig` makes of a mapping on so many data-parallel ranks; remarks go to `notes`.

    Batch sizes are left alone where they are not `batch_known`.
    """
    walk = Walk(notes)
    values = walk.top(data)
    values["bf16"] = _bf16(data, walk, values)
    _throughput(data, walk)
    check_lookups(data, notes)
    check_together(data, values, notes)
    batch = settled_batch(data, ranks, notes) if batch_known else None
    _old_allgather(data, values, walk)
    return Read(values, frozenset(walk.stated), batch)


def _bf16(data: Mapping[str, Any], walk: Walk, values: Values) -> Values:
    """`precision_config.py:get_bfloat16_config`: the old name counts where the new one is absent or null."""
    old: Values | None = values["bfloat16"]
    if "bfloat16" in data and data.get("bf16") is not None:
        walk.notes.add(
            "ignored", ("bfloat16",), "bfloat16: the old name of bf16, which is given", "leave it out"
        )
    elif old is not None:
        walk.notes.add("deprecated", ("bfloat16",), "bfloat16: the old name of bf16", "write `bf16`")
        return old
    bf16: Values = values["bf16"]
    return bf16


def _throughput(data: Mapping[str, Any], walk: Walk) -> None:
    timers = data.get("timers")
    if isinstance(timers, dict) and "throughput" in timers:
        walk.inner(_THROUGHPUT, ("timers", "throughput"), timers["throughput"])


_THROUGHPUT = Key("throughput", ANY, None, "times steps", section="timers.throughput")


def _old_allgather(data: Mapping[str, Any], values: Values, walk: Walk) -> None:
    """`zero_optimization: true` takes the size of a gather from the top."""
    size = data.get("allgather_size", AUTO)
    if data.get("zero_optimization") is True and size != AUTO:
        key = SECTIONS["zero_optimization"].names["allgather_bucket_size"]
        values["zero_optimization"][key.name] = walk.taken(key, ("allgather_size",), size)
