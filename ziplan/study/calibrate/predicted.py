"""Seconds of the phases that were measured, as the estimate has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ziplan.estimate import Estimate, estimate
from ziplan.estimate.evaluate import demand_time, in_turn, step_parts
from ziplan.hardware.rates import ARITHMETIC
from ziplan.runtimes.runtime import Segment
from ziplan.study.calibrate.runs import FORWARD_BACKWARD, OPTIMIZER, OPTIMIZER_READ, WHOLE, Run, Subject

OF_THE_STEP = ("optimizer step", "parameters back")
"""Segments that DeepSpeed's `step` timer holds (`engine.py:step`, `stage_1_and_2.py:step`): the rest of a
step's program is under `fwd` and `bwd`, whose end reduces gradients also where that is once per step."""

READ = "optimizer read"


@dataclass(frozen=True)
class Predicted:
    """A subject's step: seconds by phase, and of forward and backward when everything takes turns."""

    answer: Estimate
    phases: Mapping[str, float]
    in_turn: float

    @property
    def step_time(self) -> float:
        """Seconds of the whole step."""
        return self.phases[WHOLE]

    @property
    def beside(self) -> float:
        """What runs beside the longest of forward and backward, over the longest: what overlap is about."""
        return self.in_turn / self.phases[FORWARD_BACKWARD] - 1 if self.phases[FORWARD_BACKWARD] else math.inf


def predicted(subject: Subject) -> Predicted:
    """The phases of a subject's step; NaN where an input is missing that nobody stated."""
    answer = estimate(subject.cluster, subject.workload, subject.runtime, subject.plan, record=False)
    phases = {FORWARD_BACKWARD: 0.0, OPTIMIZER: 0.0, OPTIMIZER_READ: 0.0}
    turns = 0.0
    for segment, seconds in step_parts(answer, subject.runtime):
        phase = OPTIMIZER if segment.name in OF_THE_STEP else FORWARD_BACKWARD
        phases[phase] += seconds
        if phase == FORWARD_BACKWARD:
            works = any(demand.resource in ARITHMETIC for demand in in_turn(segment))
            alone = (
                sum(demand_time(answer, subject.runtime, each) for each in in_turn(segment)) if works else 0.0
            )
            turns += max(seconds, segment.repeats * alone)
            continue
        phases[OPTIMIZER_READ] += _read_alone(answer, subject, segment)
    phases[WHOLE] = float(answer.step_time)
    return Predicted(answer, {name: float(seconds) for name, seconds in phases.items()}, float(turns))


def _read_alone(answer: Estimate, subject: Subject, segment: Segment) -> float:
    """Seconds in which a segment reads the optimizer's state and does nothing else; NaN where it may."""
    reading = [chain for chain in segment.chains if any(each.term == READ for each in chain)]
    in_line = {id(each) for chain in reading for each in chain}
    if reading and any(each.amount > 0 and id(each) not in in_line for each in in_turn(segment)):
        return math.nan
    reads = [demand for demand in in_turn(segment) if demand.term == READ]
    return sum(demand_time(answer, subject.runtime, each) for each in reads)


def measured_phases(run: Run) -> list[str]:
    """The phases of a run, in order, that do not overlap; a part of one comes after it."""
    return [phase for phase in (FORWARD_BACKWARD, OPTIMIZER, OPTIMIZER_READ, WHOLE) if phase in run.phases]
