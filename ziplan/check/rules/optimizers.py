"""ZP323 and ZP324: optimizers that DeepSpeed does not take as they are, or that are not planned."""

from __future__ import annotations

from collections.abc import Iterator

from ziplan.check.case import Case
from ziplan.check.finding import Hit, Rule
from ziplan.check.rules.fatal import ZERO, bf16_master
from ziplan.runtimes.deepspeed.optimizers import OPTIMIZERS as SUPPORTED


def untested(case: Case) -> Iterator[Hit]:
    """An optimizer that ZeRO is not tested with, without the key that allows it."""
    settings = case.settings
    if settings is None or case.values is None or not case.foreign or not settings.stage:
        return
    named, kind = settings.optimizer.name, case.workload.training.optimizer.kind
    if named is None or case.values["zero_allow_untested_optimizer"] or SUPPORTED[kind].tested:
        return
    yield Hit(
        f"{named} with ZeRO: DeepSpeed stops with `You are using an untested ZeRO Optimizer` when the "
        "engine is made",
        key="optimizer.type",
        field="placement.optimizer",
        fix='"zero_allow_untested_optimizer": true, or AdamW',
    )


def unplanned(case: Case) -> Iterator[Hit]:
    """What may run and is not planned: its state is not in the ledger as it will be."""
    if case.plan is None or not case.foreign or any(bf16_master(case)):
        return
    for reason in case.runtime.refusals(case.cluster, case.workload, case.plan):
        yield Hit(
            f"not planned: {reason}",
            key="optimizer.type" if case.settings and case.settings.optimizer.name else ZERO,
            field="placement.optimizer",
            fix="take memory and time with that in mind, or AdamW",
        )


OPTIMIZERS = (
    Rule(
        "ZP323",
        "An untested optimizer",
        "error",
        untested,
        "The config names an optimizer that ZeRO is not tested with, and zero_allow_untested_optimizer is "
        "off.",
        "AssertionError when the engine is made.",
        '"optimizer": {"type": "SGD"} with "stage": 2',
        '"zero_allow_untested_optimizer": true at the top.',
    ),
    Rule(
        "ZP324",
        "Not planned as it is",
        "warning",
        unplanned,
        "The optimizer, its precision or its place is one that ziplan's DeepSpeed runtime does not plan.",
        "It may run; its state on the host or the GPU is not in the ledger as it will be.",
        '"optimizer": {"type": "SGD"} with "offload_optimizer": {"device": "cpu"}',
        "AdamW or Lion where the optimizer is offloaded.",
    ),
)
