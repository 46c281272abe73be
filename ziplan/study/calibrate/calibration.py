"""A calibration: what was fitted from runs, and how far each is off before it and after."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ziplan.errors import BadInput, Problem
from ziplan.estimate.fidelity import kind_of
from ziplan.hardware.calibration import FARTHEST
from ziplan.runtimes.runtime import RUNNING
from ziplan.study.calibrate.fit import Fit, fit
from ziplan.study.calibrate.predicted import Predicted, predicted
from ziplan.study.calibrate.runs import WHOLE, Run, Subject
from ziplan.units import show_duration

NOT_ALLOCATED = ("GPU context", "collective buffers", "allocator slack")
"""Lines of the ledger that PyTorch's own count of what is allocated does not hold."""


class PhaseError(NamedTuple):
    """A phase of a run: seconds per step as measured, and as predicted before and after the fit."""

    phase: str
    measured: float
    before: float
    after: float

    @property
    def residual(self) -> float:
        """Measured over predicted after the fit."""
        return self.measured / self.after


class PeakError(NamedTuple):
    """The most memory of a tier that a run was seen to use, and what is predicted (at least, at most)."""

    tier: str
    measured: float
    low: float
    high: float


class Held(NamedTuple):
    """A run beside its predictions. `from_others` is the step by a fit from the other runs; None without."""

    run: Run
    kind: str
    phases: tuple[PhaseError, ...]
    from_others: float | None
    peaks: tuple[PeakError, ...] = ()

    @property
    def whole(self) -> PhaseError:
        """The whole step."""
        return self.phases[-1]

    @property
    def factor(self) -> float:
        """Measured over predicted step: from the other runs where there are any, else after the fit."""
        return self.run.step_time / (self.whole.after if self.from_others is None else self.from_others)


class Residual(NamedTuple):
    """Measured over predicted step time of a kind of run: how many runs, the least and the most."""

    runs: int
    low: float
    high: float


class Calibration(NamedTuple):
    """The answer of `ziplan calibrate`."""

    machine: str
    gpu: str
    runtime: str
    fit: Fit
    held: tuple[Held, ...]

    @property
    def residuals(self) -> Mapping[str, Residual]:
        """By kind of run."""
        factors: dict[str, list[float]] = {}
        for each in self.held:
            factors.setdefault(each.kind, []).append(each.factor)
        return {kind: Residual(len(found), min(found), max(found)) for kind, found in factors.items()}


def calibration(runs: Sequence[Run]) -> Calibration:
    """Fit what the runs show; BadInput where they are of several machines, or lack an input."""
    _alike(runs)
    _known(runs)
    found = fit(runs)
    first = runs[0].subject
    return Calibration(
        machine=first.cluster.node.name,
        gpu=first.cluster.node.gpu.name,
        runtime=first.runtime.NAME,
        fit=found,
        held=tuple(_held(run, found, [other for other in runs if other is not run]) for run in runs),
    )


def _alike(runs: Sequence[Run]) -> None:
    """Refuse runs that one calibration cannot be made of."""
    names: dict[str, int] = {}
    for run in runs:
        names[run.name] = names.get(run.name, 0) + 1
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise BadInput.of(f"{twice[0]} is given twice", help="a run counts once")
    for what, value in (("machine", _machine), ("GPU", _gpu), ("runtime", lambda s: s.runtime.NAME)):
        several = sorted({value(run.subject) for run in runs})
        if len(several) > 1:
            message = f"runs of several {what}s: {', '.join(several)}"
            raise BadInput.of(message, help=f"calibrate each {what} from its own runs")


def _machine(subject: Subject) -> str:
    return subject.cluster.node.name


def _gpu(subject: Subject) -> str:
    return subject.cluster.node.gpu.name


def _known(runs: Sequence[Run]) -> None:
    """Refuse runs whose step cannot be predicted for want of an input."""
    from ziplan.estimate import estimate

    wrong: list[Problem] = []
    for run in runs:
        if math.isfinite(predicted(run.subject).step_time):
            continue
        subject = run.subject
        unknown = estimate(subject.cluster, subject.workload, subject.runtime, subject.plan).unknown
        message = f"{run.name}: not stated, and the time depends on it: {', '.join(unknown)}"
        remedy = f"state it, for example --set {unknown[0]}=..." if unknown else ""
        wrong.append(Problem("", 0, 0, "ZP013", message, remedy))
    if wrong:
        raise BadInput(*wrong)


def _held(run: Run, found: Fit, others: Sequence[Run]) -> Held:
    before, after = predicted(run.subject), predicted(found.applied(run.subject))
    told = [phase for phase in run.phases if phase != WHOLE]
    phases = [PhaseError(name, run.phases[name], before.phases[name], after.phases[name]) for name in told]
    phases = [each for each in phases if each.before > 0]
    phases.append(PhaseError(WHOLE, run.step_time, before.step_time, after.step_time))
    kind = kind_of(run.subject.cluster, run.subject.plan)
    from_others = _from(others, run).step_time if others else None
    held = Held(run, kind, tuple(phases), from_others, tuple(_peaks(run, before)))
    _near(held)
    return held


def _near(held: Held) -> None:
    """Refuse a run whose step is not one of what it is said to be of."""
    if not 1 / FARTHEST <= held.factor <= FARTHEST:
        shown = "with what the other runs show" if held.from_others is not None else "with all that it shows"
        took, expected = (
            show_duration(each, 3) for each in (held.run.step_time, held.run.step_time / held.factor)
        )
        message = f"{held.run.name}: a step took {took}, and takes {expected} {shown}"
        raise BadInput.of(message, help="is it a run of this model, config and sequence length?")


def _peaks(run: Run, found: Predicted) -> Iterator[PeakError]:
    """Memory that the log tells of: what PyTorch allocated on the GPU, and what is in use of the node's."""
    node, book = run.subject.cluster.node, found.answer.ledger
    seen = {node.gpu_tier: run.gpu_peak_bytes, node.tier_of("dram"): run.host_used_bytes}
    for tier, measured in seen.items():
        if tier is None or measured is None:
            continue
        needs = []
        for phase in RUNNING:
            lines = [each for each in book.lines if each.tier == tier and phase in each.phases]
            kept = [each for each in lines if each.name not in NOT_ALLOCATED]
            needs.append((sum(float(each.low) for each in kept), sum(float(each.high) for each in kept)))
        yield PeakError(tier, measured, max(low for low, _ in needs), max(high for _, high in needs))


def _from(others: Sequence[Run], run: Run) -> Predicted:
    """The run's step as a fit from the others alone has it."""
    return predicted(fit(others).applied(run.subject))
