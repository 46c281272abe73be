"""How weights come into memory before training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator

from ziplan.files.record import FileRecord
from ziplan.units import Bytes, Precision, UnitError


def _positive(value: float) -> float:
    if value <= 0:
        raise UnitError("must be greater than 0; leave it out where it is unknown")
    return value


class Loading(FileRecord):
    """What is known of loading; None where it is not.

    With `zero_init` every rank keeps its shard of a tensor alone from the moment it is made
    (DeepSpeed's zero.Init, stage 3 only). `dtype` is that of the weights while they are loaded,
    `copies` who has them, `largest_file` the size of the largest file of the checkpoint.
    """

    zero_init: bool | None = None
    dtype: Precision | None = None
    copies: Literal["every_rank", "rank_0"] | None = None
    largest_file: Annotated[Bytes, AfterValidator(_positive)] | None = None
