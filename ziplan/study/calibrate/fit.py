"""Parameters fitted from runs, each only from phases that show it; what no run shows is said, not guessed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from ziplan.errors import BadInput
from ziplan.hardware.rates import sustained_rate
from ziplan.study.calibrate.parameters import (
    CORE,
    MATRIX,
    OVERLAP,
    PARAMETERS,
    SWAP,
    UPDATE,
    Parameter,
    few_threads,
)
from ziplan.study.calibrate.predicted import Predicted, predicted
from ziplan.study.calibrate.runs import FORWARD_BACKWARD, Run, Subject
from ziplan.units import show, show_duration

BINDS = 0.7
"""Share of a phase that must go with a parameter, and with those that are fitted already, for the phase to
show it: an error of a tenth in the rest of the phase then moves a parameter that is alone by 4 %."""

NOTHING = 0.005
"""Share of a phase that rounds to nothing."""

NAMED = 3
"""Runs that are named where one reason is true of more."""

OWN = 0.3
"""Share of a phase that must go with the parameter itself."""

DOUBT = 2.0
"""Factor, either way, on parameters that are not fitted (published rates of CPU optimizers lie as far apart):
a value that moves with them by more than MOVES is not one that the run shows."""

MOVES = 0.05

BESIDE = 0.25
"""Most that may run beside forward and backward, over their longest part, for them to show the matrix rate:
nobody knows how much of it was hidden."""

TELLS_OVERLAP = 0.25
"""Least that must run beside forward and backward for them to show how much of it is hidden."""

NUDGE = 1.05
"""Factor on a parameter by which its share of a phase is told."""

RANGE = 1e4
"""Factor on what is taken now, either way, that a fit looks within."""

CLOSE = 1e-9
"""Of what was measured, within which a fit is done."""

MOST_GUESSES = 60

ROUNDING = 0.02
"""Measured over predicted time beyond a bound by less than this counts as at the bound."""

DRIVES_BIND = 0.1
"""A swap that is slower than the drives by less than this is the drives', and shows no other limit."""


class Shown(NamedTuple):
    """What one phase of one run says of a parameter, and the share of the phase that goes with it."""

    run: str
    phase: str
    value: float
    share: float


class Fitted(NamedTuple):
    """A parameter's value: the middle of what the runs show. `path` is its input, or its key in the file."""

    parameter: Parameter
    path: str
    before: float
    value: float
    shown: tuple[Shown, ...]

    @property
    def low(self) -> float:
        """The least that a run shows."""
        return min(each.value for each in self.shown)

    @property
    def high(self) -> float:
        """The most that a run shows."""
        return max(each.value for each in self.shown)


class NotShown(NamedTuple):
    """A parameter that no run shows, and why not, run by run."""

    parameter: Parameter
    reasons: tuple[str, ...]


class Fit(NamedTuple):
    """What was fitted and what was not."""

    fitted: tuple[Fitted, ...]
    not_shown: tuple[NotShown, ...]

    def applied(self, subject: Subject) -> Subject:
        """The subject with what was fitted in the place of what was taken."""
        for each in self.fitted:
            if each.path == each.parameter.path(subject):
                subject = each.parameter.put(subject, each.value)
        return subject


class NotIdentified(Exception):
    """A phase does not show a parameter; the message says why."""


def fit(runs: Sequence[Run]) -> Fit:
    """The parameters that these runs show, in an order in which each rests on those before it."""
    fitted: list[Fitted] = []
    missing: dict[str, NotShown] = {}
    left = [each for each in PARAMETERS if any(each.applies(run.subject) for run in runs)]
    while left:
        before = len(left)
        for parameter in tuple(left):
            found, reasons = _one(parameter, runs, Fit(tuple(fitted), ()))
            fitted += found
            missing.setdefault(parameter.name, NotShown(parameter, reasons))
            if found:
                left.remove(parameter)
        # One that is fitted may be what another one was waiting for.
        if len(left) == before:
            break
    return Fit(tuple(fitted), tuple(missing[each.name] for each in left))


def _one(parameter: Parameter, runs: Sequence[Run], known: Fit) -> tuple[list[Fitted], tuple[str, ...]]:
    """A parameter by its inputs (one for each number format), and why runs do not show it."""
    by_path: dict[str, list[tuple[Shown, float]]] = {}
    reasons: dict[str, list[str]] = {}
    for run in (each for each in runs if parameter.applies(each.subject)):
        subject = known.applied(run.subject)
        try:
            shown = _shown(parameter, replace(run, subject=subject), known)
        except NotIdentified as reason:
            reasons.setdefault(str(reason), []).append(run.name)
            continue
        by_path.setdefault(parameter.path(subject), []).append((shown, parameter.value(subject)))
    fitted = [_middle(parameter, path, found) for path, found in by_path.items()]
    return fitted, tuple(f"{_names(names)}: {reason}" for reason, names in reasons.items())


def _names(names: Sequence[str]) -> str:
    """The runs that a reason is true of."""
    others = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {others} more" if others > 0 else "")


def _middle(parameter: Parameter, path: str, found: Sequence[tuple[Shown, float]]) -> Fitted:
    values = [each.value for each, _ in found]
    value = median(values) if parameter.name == OVERLAP else math.exp(median(math.log(v) for v in values))
    return Fitted(parameter, path, found[0][1], value, tuple(each for each, _ in found))


def _shown(parameter: Parameter, run: Run, known: Fit) -> Shown:
    """What a run says of a parameter; NotIdentified where it says nothing, BadInput where it cannot be."""
    phase = next((each for each in parameter.phases if each in run.phases), None)
    if phase is None:
        raise NotIdentified(f"has no {' or '.join(parameter.phases)} of its own")
    if parameter.name == OVERLAP:
        return _overlap(parameter, run, known)
    before = predicted(run.subject)
    if parameter.name == MATRIX and (before.beside > BESIDE or _fitted(known, OVERLAP)):
        much = f"{before.beside:.0%} as long as the longest part runs beside {phase}"
        raise NotIdentified(f"{much}, and nobody knows how much of it is hidden")
    if parameter.name in (UPDATE, CORE) and _swaps(before):
        # What is written may be slower than what is read: the rest of the step is not the update's alone.
        raise NotIdentified("swaps too: a run with the optimizer in host memory shows it")
    if parameter.name == UPDATE and few_threads(run.subject):
        raise NotIdentified("leaves its ranks few threads: a run with all its cores shows it")
    if parameter.name not in (SWAP, CORE):
        _binding(parameter, run.subject, phase, known)
    value = _solved(parameter, run, phase)
    found = _binding(parameter, parameter.put(run.subject, value), phase, known)
    _steadfast(parameter, run, phase, value, known)
    return Shown(run.name, phase, value, found)


def _swaps(found: Predicted) -> bool:
    """Whether anything moves between DRAM and NVMe."""
    demands = (d for segment in found.answer.segments for chain in segment.chains for d in chain)
    return any("swap_" in demand.resource and demand.amount > 0 for demand in demands)


def _fitted(known: Fit, name: str) -> bool:
    return any(each.parameter.name == name for each in known.fitted)


def _steadfast(parameter: Parameter, run: Run, phase: str, value: float, known: Fit) -> None:
    """Raise where the value would be another one if a parameter that is not fitted were."""
    fitted = {each.parameter.name for each in known.fitted}
    for other in PARAMETERS:
        if other.name in (*fitted, parameter.name, OVERLAP) or not other.applies(run.subject):
            continue
        if math.isnan(other.value(run.subject)):
            continue
        for factor in (1 / DOUBT, DOUBT):
            doubted = other.put(run.subject, factor * other.value(run.subject))
            doubted = parameter.put(doubted, value)
            now = predicted(doubted).phases[phase]
            # Seconds that another value of the parameter would have to make up for.
            if abs(now / run.phases[phase] - 1) > MOVES * share(parameter, doubted, phase):
                raise NotIdentified(
                    f"what {phase} says of it goes with the {other.name}, which is not measured"
                )


def share(parameter: Parameter, subject: Subject, phase: str) -> float:
    """Share of a phase's time that goes with one over the parameter."""
    value = parameter.value(subject)
    if math.isnan(value):
        return 0.0
    now = predicted(subject).phases[phase]
    nudged = predicted(parameter.put(subject, NUDGE * value)).phases[phase]
    return max(0.0, (now - nudged) / now * NUDGE / (NUDGE - 1)) if now > 0 else 0.0


def _binding(parameter: Parameter, subject: Subject, phase: str, known: Fit) -> float:
    """The parameter's share of a phase; NotIdentified where too much of the phase is something else."""
    found = share(parameter, subject, phase)
    fitted = {each.parameter.name: each.parameter for each in known.fitted if each.parameter.name != OVERLAP}
    others = sum(share(each, subject, phase) for each in fitted.values())
    if found < NOTHING:
        raise NotIdentified(f"nothing of {phase} goes with it")
    if found < OWN or found + others < BINDS:
        with_others = f", {others:.0%} with {' and '.join(fitted)}" if others > ROUNDING else ""
        raise NotIdentified(f"{found:.0%} of {phase} goes with it{with_others}: too little to tell")
    return found


def _solved(parameter: Parameter, run: Run, phase: str) -> float:
    """The value at which the phase takes as long as it was measured to take."""
    measured, value = run.phases[phase], parameter.value(run.subject)
    if math.isnan(value):
        raise NotIdentified(f"{run.subject.runtime.NAME} has no such limit")
    most, bound = parameter.most(run.subject)

    def seconds(value: float) -> float:
        return predicted(parameter.put(run.subject, value)).phases[phase]

    high = min(most, RANGE * value)
    least_time = seconds(high)
    if parameter.name == SWAP:
        _slower_than_drives(run, phase, measured, least_time)
    if least_time > measured * (1 + ROUNDING):
        raise _impossible(parameter, run, phase, high, least_time, bound)
    if least_time >= measured:
        return high
    low = value / RANGE
    if seconds(low) < measured:
        raise NotIdentified(f"{phase} takes {_s(measured)}, as if it were {RANGE:g} times slower than stated")
    return _bisected(seconds, measured, low, high)


def _bisected(seconds: Callable[[float], float], measured: float, low: float, high: float) -> float:
    """Where a time that falls with its argument is what was measured.

    The time is nearly straight over one over the argument: a chord gives the next guess, and the middle does
    where a chord has left more than half.
    """
    slow, fast = (1 / low, seconds(low)), (1 / high, seconds(high))
    halve = False
    for _ in range(MOST_GUESSES):
        middle = (slow[0] + fast[0]) / 2
        if not halve and slow[1] > fast[1]:
            middle = fast[0] + (slow[0] - fast[0]) * (measured - fast[1]) / (slow[1] - fast[1])
        guess, width = (middle, seconds(1 / middle)), slow[0] - fast[0]
        if abs(guess[1] - measured) <= CLOSE * measured:
            return 1 / middle
        slow, fast = (guess, fast) if guess[1] > measured else (slow, guess)
        halve = slow[0] - fast[0] > width / 2
    return 2 / (slow[0] + fast[0])


def _slower_than_drives(run: Run, phase: str, measured: float, least_time: float) -> None:
    """Raise where the drives' own rates explain the time, or the run does not swap."""
    if not _swaps(predicted(run.subject)):
        raise NotIdentified("swaps nothing")
    if math.isnan(least_time):
        raise NotIdentified("what it reads and updates at the same time cannot be told apart")
    if (1 - ROUNDING) * least_time <= measured < (1 + DRIVES_BIND) * least_time:
        raise NotIdentified(
            f"the drives' stated rates explain its {phase} ({_s(least_time)} of {_s(measured)})"
        )


def _impossible(
    parameter: Parameter, run: Run, phase: str, high: float, least: float, bound: str
) -> BadInput:
    """What a run asks of a parameter that physics does not allow, and what is likely wrong."""
    at = f" at {bound} ({show(high, parameter.unit, 3)})" if bound else ", however fast that may be,"
    took = f"{phase} took {_s(run.phases[phase])} a step"
    message = f"{took}; with the {parameter.name}{at} it takes {_s(least)} at the least"
    return BadInput.of(message, code="ZP010", file=run.name, help=f"likely {parameter.slips}")


def _s(seconds: float) -> str:
    return show_duration(seconds, 3)


def _overlap(parameter: Parameter, run: Run, known: Fit) -> Shown:
    """How much of what runs beside forward and backward was hidden: where between its two ends they lie."""
    if any(
        run.name == each.run for one in known.fitted if one.parameter.name == MATRIX for each in one.shown
    ):
        raise NotIdentified("shows the matrix rate, and cannot show both")
    stated = sustained_rate(run.subject.cluster.node, run.subject.workload.precision).assumed is None
    if not stated and not _fitted(known, MATRIX):
        raise NotIdentified("the matrix rate is assumed, and no run shows it")
    ends = predicted(parameter.put(run.subject, 1.0))
    longest, serial, measured = ends.phases[FORWARD_BACKWARD], ends.in_turn, run.phases[FORWARD_BACKWARD]
    if not ends.beside >= TELLS_OVERLAP:
        raise NotIdentified(f"{ends.beside:.0%} as long as the longest part runs beside {FORWARD_BACKWARD}")
    if measured < longest * (1 - ROUNDING):
        raise NotIdentified(f"took {_s(measured)}, less than its longest part alone ({_s(longest)})")
    if measured > serial * (1 + ROUNDING):
        raise NotIdentified(f"took {_s(measured)}, more than all of it in turn ({_s(serial)})")
    value = 1 - (measured - longest) / (serial - longest)
    return Shown(run.name, FORWARD_BACKWARD, min(1.0, max(0.0, value)), 1 - longest / serial)
