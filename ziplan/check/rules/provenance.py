"""ZP5xx: how far the answer can be trusted, and what decides it that nobody has measured."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ziplan.check.case import Case
from ziplan.check.finding import Hit, Number, Rule
from ziplan.check.rules.waits import LARGE_TERM
from ziplan.hardware.rates import ARITHMETIC
from ziplan.units import show

DISAGREE = 0.20
"""Share of the step time by which estimate and played step may differ without a word."""


def missing_input(case: Case) -> Iterator[Hit]:
    """A rate that the step needs and nobody has stated."""
    for path in case.estimate.unknown if case.estimate is not None else ():
        yield Hit(
            f"nobody has stated {path}, and the step depends on it: its time is unknown",
            field="placement",
            key="zero_optimization",
            fix=f"--set {path}=VALUE, or `with:` in a cluster.yaml",
        )


RESOURCES = {
    "gpu.sustained_flops_per_s": tuple(ARITHMETIC),
    "cpu.adam_params_per_s": ("cpu_optimizer",),
    "fabric": ("gather",),
}
"""What an assumption begins with, and the resources that it is the rate of; a tier's rate names its tier."""


def assumed(case: Case) -> Iterator[Hit]:
    """The longest part of the step rests on a value that was assumed."""
    estimate = case.estimate
    if estimate is None or not math.isfinite(estimate.step_time):
        return
    for assumption in estimate.assumptions:
        resources = tuple(_resources(assumption.name))
        time = case.terms(*resources)
        if time > LARGE_TERM * estimate.step_time:
            low, high = assumption.low, assumption.high
            ends = (
                f" ({show(low, assumption.unit, 3)} to {show(high, assumption.unit, 3)})"
                if low and high
                else ""
            )
            yield Hit(
                f"{time / estimate.step_time:.0%} of the step rests on an assumed value: {assumption.name} "
                f"{show(assumption.value, assumption.unit, 3)}{ends}",
                field="placement",
                key="zero_optimization",
                fix=f"measure it and state it: --set {assumption.name}=VALUE"
                if assumption.name != "fabric"
                else "state the link between GPUs in a machine file",
                number=Number(assumption.value, assumption.unit),
            )


def _resources(name: str) -> Iterator[str]:
    """What an assumption ("gpu.sustained_flops_per_s.bf16", "tiers.nvme.write_bandwidth") is the rate of."""
    for start, resources in RESOURCES.items():
        if name.startswith(start):
            yield from resources
    parts = name.split(".")
    if len(parts) == 3 and parts[0] == "tiers":
        direction = parts[2].removesuffix("_bandwidth")
        yield from (f"{parts[1]}.{direction}", f"{parts[1]}.swap_{direction}")


def unchecked(case: Case) -> Iterator[Hit]:
    """No published run of this runtime stands behind the step time."""
    estimate = case.estimate
    if estimate is None or estimate.published is not None or not math.isfinite(estimate.step_time):
        return
    yield Hit(
        f"no published run of {case.runtime.NAME} has been held against a prediction: the step may be off "
        "by a factor of two",
        field="placement",
        key="zero_optimization",
        fix="a short run on the machine tells",
    )


def disagreement(case: Case) -> Iterator[Hit]:
    """The estimate and the played step differ."""
    estimate, simulation = case.estimate, case.simulation
    if estimate is None or simulation is None or case.hides_less:
        return
    times = (estimate.step_time, simulation.makespan)
    if not all(math.isfinite(time) and time > 0 for time in times):
        return
    ratio = simulation.makespan / estimate.step_time
    if abs(ratio - 1) > DISAGREE:
        yield Hit(
            f"the played step takes {ratio:.2f} times the estimate: links that are shared, or buffers that "
            "run out, "
            "count in one and not in the other",
            field="placement",
            key="zero_optimization",
            fix="take the longer one; `ziplan simulate` shows where the time goes",
            number=Number(ratio),
        )


PROVENANCE = (
    Rule(
        "ZP501",
        "An input that decides is missing",
        "warning",
        missing_input,
        "A rate of the machine is stated nowhere, and this plan's step needs it.",
        "Memory is judged all the same; the verdict is `unknown` where it may fit.",
        "a machine without the bandwidth of its drives, and the optimizer on NVMe",
        "State it.",
    ),
    Rule(
        "ZP502",
        "An assumption carries the step",
        "note",
        assumed,
        "Over 30 % of the step is work at a rate that was assumed.",
        "The answer is as good as that value.",
        "cpu.adam_params_per_s of a machine whose DRAM bandwidth nobody has published",
        "Measure it.",
    ),
    Rule(
        "ZP503",
        "Nothing to compare with",
        "note",
        unchecked,
        "No published run of this runtime and kind has been compared.",
        "The interval is a factor of two either way.",
        "a plan of the ideal runtime",
        "A short run.",
    ),
    Rule(
        "ZP504",
        "Estimate and played step differ",
        "note",
        disagreement,
        "The simulator's makespan and the estimate are more than 20 % apart.",
        "They know different things: one adds up, the other plays who waits for whom.",
        "flash and gather on one root complex",
        "Gates use the played step.",
    ),
)
