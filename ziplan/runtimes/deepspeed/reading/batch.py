"""train_batch_size = micro-batch x accumulation x ranks, as DeepSpeed completes and checks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ziplan.runtimes.deepspeed.reading.kinds import AUTO, unexpected, written
from ziplan.runtimes.deepspeed.reading.remarks import Notes

GLOBAL, MICRO, STEPS = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
)


class Batch(NamedTuple):
    """Sequences per step over all ranks; sequences per rank and micro-step; micro-steps per step."""

    train_batch_size: int
    micro_batch_size: int
    accumulation_steps: int


def complete(values: Mapping[str, Any], ranks: float) -> tuple[Any, Any, Any]:
    """`runtime/config.py:_set_batch_related_parameters`: what is missing, by whole division.

    Raises what DeepSpeed raises: TypeError, ZeroDivisionError, AssertionError.
    """
    total, micro, steps = values.get(GLOBAL), values.get(MICRO), values.get(STEPS)
    if total is not None and micro is not None and steps is not None:
        return total, micro, steps
    if total is not None and micro is not None:
        return total, micro, total // micro // ranks
    if total is not None and steps is not None:
        return total, total // ranks // steps, steps
    if micro is not None and steps is not None:
        return micro * steps * ranks, micro, steps
    if total is not None:
        return total, total // ranks, 1
    if micro is not None:
        return micro * ranks, micro, 1
    raise AssertionError(f"neither {GLOBAL} nor {MICRO} is given")


def settled_batch(values: Mapping[str, Any], ranks: float, notes: Notes) -> Batch | None:
    """The batch that the config states or implies, or None and the remark why there is none."""
    stated = [name for name in (GLOBAL, MICRO, STEPS) if values.get(name) is not None]
    at = (stated[0],) if stated else ()
    try:
        sizes = dict(zip((GLOBAL, MICRO, STEPS), complete(values, ranks), strict=True))
        total, micro, steps = sizes.values()
        holds = min(sizes.values()) > 0 and total == micro * steps * ranks
    except (TypeError, ZeroDivisionError, OverflowError):
        _tell_sizes({name: values[name] for name in stated}, notes)
        return None
    except AssertionError as error:
        notes.add("rejected", at, f"batch size: {error}", f'add "{MICRO}"')
        return None
    too_small = [name for name in stated if sizes[name] < 1]
    for name in too_small:
        _not_a_size(name, values[name], notes)
    if too_small:
        return None
    if not holds:
        message = f"{GLOBAL} must be {MICRO} x {STEPS} x ranks, not {total} = {micro} x {steps} x {ranks:g}"
        notes.add("rejected", at, message, _fitting(values, ranks))
        return None
    if not _whole(sizes, notes):
        return None
    for name in (name for name in sizes if name not in stated):
        message = f"{name} follows from the others and {ranks:g} ranks: {sizes[name]:,.0f}"
        notes.add("derived", at, message)
    return Batch(int(total), int(micro), int(steps))


def _tell_sizes(sizes: Mapping[str, Any], notes: Notes) -> None:
    """Note those that cannot be computed with; all are numbers where they are too large."""
    wrong = [name for name, value in sizes.items() if not isinstance(value, int | float) or not value]
    for name in wrong:
        _not_a_size(name, sizes[name], notes)
    if not wrong:
        _whole(sizes, notes)


def _whole(sizes: Mapping[str, Any], notes: Notes) -> bool:
    """Whether all of them are whole numbers of a size that there is; DeepSpeed asks for neither."""
    for name, value in sizes.items():
        if not value <= MOST or value != int(value):
            message = f"{name}: {written(value)} is no number of sequences or steps, though the product holds"
            notes.add("rejected", (name,), message, "write a whole number", "training")
            return False
    return True


MOST = 10**15
"""No job has more sequences or steps than this, and a float tells whole numbers apart up to it."""


def _not_a_size(name: str, value: Any, notes: Notes) -> None:
    error = unexpected("a whole number of at least 1", value)
    if value == AUTO:
        error.fix = "write a number, or let a trainer replace it"
    notes.refuse((name,), error)


def _fitting(values: Mapping[str, Any], ranks: float) -> str:
    """What would make the equation hold, two of the three as they are."""
    micro, steps = values.get(MICRO), values.get(STEPS)
    if isinstance(micro, int) and isinstance(steps, int):
        return f"{GLOBAL} {int(micro * steps * ranks)} fits them"
    return f"make {GLOBAL} a multiple of what the ranks take in one micro-step, or leave it out"
