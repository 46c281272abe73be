"""The runtime that a published run ran on, of the release and with the keys that its record states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ziplan.errors import BadInput
from ziplan.files import Path, dotted
from ziplan.hardware.cluster import Cluster
from ziplan.plan import Plan
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed.knobs import PIN_MEMORY
from ziplan.runtimes.deepspeed.released import Released as DeepSpeed
from ziplan.runtimes.deepspeed.releases import PYTORCH
from ziplan.runtimes.deepspeed.releases import VERSION as NEWEST
from ziplan.runtimes.fsdp.released import Released as Fsdp
from ziplan.runtimes.megatron.released import Released as Megatron
from ziplan.runtimes.runtime import Runtime
from ziplan.study.records import Record

RELEASED: Mapping[str, Callable[[str, bool | None, Mapping[str, float] | None], Runtime]] = {
    "deepspeed": DeepSpeed,
    "megatron": Megatron,
    "fsdp": lambda version, *_: Fsdp(version),
}
"""Runtimes that the release that ran makes a difference to."""

STATED = ("version", "overlap_comm", "zero")
"""What a record can say of a runtime beside its name."""


def runtime_of(record: Record) -> Runtime:
    """The runtime of a record, of the release that ran it."""
    said = record.entry.runtime
    if said.name not in RUNTIMES:
        known = f"known are {', '.join(RUNTIMES)}"
        message = f"runtime.name: unknown runtime {said.name!r}"
        raise BadInput(record.problem(message, "runtime", "name", help=known))
    given = [key for key in STATED if getattr(said, key) is not None]
    if not given:
        return RUNTIMES[said.name]
    if said.name not in RELEASED:
        message = f"runtime.{given[0]}: only of DeepSpeed and of FSDP are there several that run otherwise"
        raise BadInput(record.problem(message, "runtime", given[0], help="leave it out"))
    _refuse_without_config(record, given)
    try:
        version = NEWEST if said.version is None else said.version
        return RELEASED[said.name](version, said.overlap_comm, _zero(record) or None)
    except ValueError as error:
        remedy = "name what ran, or leave it out for the newest"
        raise BadInput(
            record.problem(f"runtime.version: {error}", "runtime", "version", help=remedy)
        ) from None


def _zero(record: Record) -> dict[str, float]:
    """Keys of `zero_optimization` that a record states."""
    zero = record.entry.runtime.zero
    return zero.model_dump(exclude_none=True) if zero is not None else {}


def _refuse_without_config(record: Record, given: Sequence[str]) -> None:
    """Refuse keys of DeepSpeed's config where there was no DeepSpeed."""
    said = record.entry.runtime
    ran = "PyTorch alone" if said.version == PYTORCH else said.name
    keys = [key for key in given if key != "version"] if ran not in ("deepspeed", "megatron") else []
    if keys:
        message = f"runtime.{keys[0]}: is a key of DeepSpeed's config, and {ran} ran"
        raise BadInput(record.problem(message, "runtime", keys[0], help="leave it out"))


def refuse_without_effect(record: Record, cluster: Cluster, plan: Plan) -> None:
    """Refuse keys of DeepSpeed's config that change nothing of the plan that ran: either is mistaken."""
    problems = [
        record.problem(
            f"{dotted(path)}: changes nothing with {what}", *path, help="leave it out, or mend the plan"
        )
        for path, what in _without_effect(record, cluster, plan)
    ]
    if problems:
        raise BadInput(*problems)


def _without_effect(record: Record, cluster: Cluster, plan: Plan) -> Iterator[tuple[Path, str]]:
    """Keys, and what makes them change nothing."""
    said, stage = record.entry.runtime, int(plan.zero_stage)
    if said.name == "megatron" and stage < 2:
        given = (key for key in ("overlap_comm", "zero") if getattr(said, key) is not None)
        yield from ((("runtime", key), "Megatron without DeepSpeed's stages 2 and 3") for key in given)
        return
    on_gpu = plan.placement.optimizer.get(cluster.node.gpu_tier, 0.0) == 1
    for key in _zero(record):
        if key.startswith("stage3_") and stage < 3:
            yield ("runtime", "zero", key), f"zero_stage {stage}"
        if key == PIN_MEMORY and on_gpu:
            yield ("runtime", "zero", key), "the optimizer on the GPU"
