"""Measured runs: what ran, on what, and how long the parts of a step took that can be told apart."""

from __future__ import annotations

import gzip
import json
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

from ziplan.errors import BadInput
from ziplan.hardware.cluster import Cluster
from ziplan.plan import Plan
from ziplan.runtimes.runtime import Runtime
from ziplan.study.calibrate import trainer
from ziplan.study.calibrate.logs import SWAP_IN, Printed, Step, printed
from ziplan.units import counted
from ziplan.workload.training import Workload

if TYPE_CHECKING:
    from ziplan.study.records import Record

FORWARD_BACKWARD, OPTIMIZER, OPTIMIZER_READ, WHOLE = (
    "forward and backward",
    "optimizer step",
    "optimizer read",
    "whole step",
)
"""Phases. DeepSpeed's timers tell the first two apart, and with NVMe the third, a part of the second;
anything else gives the whole."""

GZIP = b"\x1f\x8b"
"""What a file compressed by gzip begins with."""

WARM_UP = 2
"""Steps that are left out at the start: DeepSpeed records its trace in the first, moments have no files
before the second, and its own averages leave as many out (`utils/timer.py:ThroughputTimer`, `start_step`)."""

UNSTEADY = 0.1
"""A phase whose middle half of steps spreads over more than this share of the median is called unsteady."""

LONGEST_LINE = 1 << 16
LARGEST_STATE = 64_000_000
WALL_CLOCK = 'set `"wall_clock_breakdown": true` in the DeepSpeed config and keep what rank 0 prints'


@dataclass(frozen=True, eq=False)
class Subject:
    """What ran: the plan of a workload under a runtime on a machine."""

    cluster: Cluster
    workload: Workload
    runtime: Runtime
    plan: Plan

    @property
    def sequences(self) -> float:
        """Sequences of a step, all ranks together."""
        plan = self.plan
        return float(plan.micro_batch_size * plan.accumulation_steps * plan.dp_degree)


@dataclass(frozen=True, eq=False)
class Run:
    """One run: its subject, seconds per step by phase, and what is to be said about them."""

    name: str
    subject: Subject
    phases: Mapping[str, float]
    steps: int = 0
    """Steps that the seconds are the median of; 0 where the source does not say."""
    gpu_peak_bytes: float | None = None
    host_used_bytes: float | None = None
    remarks: tuple[str, ...] = field(default=())

    @property
    def step_time(self) -> float:
        """Seconds of a whole step."""
        if WHOLE in self.phases:
            return self.phases[WHOLE]
        return self.phases[FORWARD_BACKWARD] + self.phases[OPTIMIZER]


def run_of_file(path: Path, subject: Subject) -> Run:
    """The run that a log tells of, DeepSpeed's or the Trainer's; BadInput where it tells nothing of time."""
    if path.suffix == ".json":
        return _of_state(path, subject)
    found = printed(_lines(path))
    if found.steps:
        return _of_timers(path, subject, found)
    seconds = None
    if found.samples_per_s is not None:
        seconds = subject.sequences / found.samples_per_s
    rates = trainer.rates_in(_lines(path))
    if seconds is None and not rates.empty:
        seconds = trainer.step_time(rates, subject.sequences)
        if seconds is None:
            raise BadInput.of(
                "its rate has too few digits to tell a step's time", file=str(path), help=WALL_CLOCK
            )
        return _whole(path, subject, seconds, found, (_ALL_OF_TRAINING,))
    if seconds is None:
        said = "nothing in it tells a step's time" if found.empty else "it tells memory and no step's time"
        raise BadInput.of(said, file=str(path), help=WALL_CLOCK)
    return _whole(path, subject, seconds, found, ())


_ALL_OF_TRAINING = "the Trainer's rate holds first steps, evaluation and saving too: no more than a bound"


def _whole(path: Path, subject: Subject, seconds: float, found: Printed, remarks: tuple[str, ...]) -> Run:
    return Run(
        name=path.name,
        subject=subject,
        phases={WHOLE: seconds},
        gpu_peak_bytes=found.gpu_peak_bytes,
        host_used_bytes=found.host_used_bytes,
        remarks=remarks,
    )


def _lines(path: Path) -> Iterator[str]:
    """Lines of a log, whatever bytes are in it; a line without an end comes in pieces.

    Also of one that was compressed by gzip, or that PowerShell wrote, whose `>` makes UTF-16.
    """
    try:
        with path.open("rb") as file:
            begins = file.read(2)
        encoding = "utf-16" if begins in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8"
        opened = gzip.open if begins == GZIP else open
        with opened(path, "rt", encoding=encoding, errors="replace") as file:
            while line := file.readline(LONGEST_LINE):
                yield line
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise BadInput.of("is cut off or damaged: gzip cannot read it", file=str(path)) from None
    except OSError as error:
        reason = (
            "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        )
        raise BadInput.of(reason, file=str(path)) from None


def _of_state(path: Path, subject: Subject) -> Run:
    """The run that a trainer_state.json is of."""
    try:
        if path.stat().st_size > LARGEST_STATE:
            raise BadInput.of("is larger than any trainer_state.json", file=str(path))
        state = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = (
            "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        )
        raise BadInput.of(reason, file=str(path)) from None
    except (ValueError, RecursionError):
        raise BadInput.of("is not JSON", file=str(path)) from None
    seconds = trainer.state_step_time(state) if isinstance(state, dict) else None
    if seconds is None:
        raise BadInput.of(
            "is not a trainer_state.json of a run that ended: it needs `global_step` and a `train_runtime`",
            file=str(path),
        )
    return _whole(path, subject, seconds, Printed(), (_ALL_OF_TRAINING,))


def _of_timers(path: Path, subject: Subject, found: Printed) -> Run:
    """The run that DeepSpeed's timers tell of, by the lowest rank that printed them."""
    rank = min(found.steps)
    steps = found.steps[rank]
    _same_accumulation(path, subject, steps)
    steady = steps[WARM_UP:]
    if not steady:
        raise BadInput.of(
            f"{counted(len(steps), 'step')} in it, of which the first {WARM_UP} are warm-up",
            file=str(path),
            help="run ten steps or more",
        )
    series = {
        FORWARD_BACKWARD: [step.seconds["fwd"] + step.seconds["bwd"] for step in steady],
        OPTIMIZER: [step.seconds["step"] for step in steady],
    }
    if all(SWAP_IN in step.seconds for step in steady):
        series[OPTIMIZER_READ] = [step.seconds[SWAP_IN] for step in steady]
    phases = {phase: median(values) for phase, values in series.items()}
    if not phases[FORWARD_BACKWARD] > 0:
        raise BadInput.of("forward and backward take no time in it", file=str(path))
    return Run(
        name=path.name,
        subject=subject,
        phases={phase: seconds for phase, seconds in phases.items() if seconds > 0 or phase == OPTIMIZER},
        steps=len(steady),
        gpu_peak_bytes=found.gpu_peak_bytes,
        host_used_bytes=found.host_used_bytes,
        remarks=(*_other_ranks(found, rank), *_unsteady(series)),
    )


def _same_accumulation(path: Path, subject: Subject, steps: list[Step]) -> None:
    """Refuse a log of other steps than those of the plan: one step would be compared with another."""
    counts = Counter(step.micro_steps for step in steps if step.micro_steps)
    if not counts:
        return
    printed_most, asked = counts.most_common(1)[0][0], int(subject.plan.accumulation_steps)
    if printed_most != asked:
        raise BadInput.of(
            f"a step in it has {printed_most} micro-steps, in the plan {asked}",
            file=str(path),
            help="give the config that this run was started with",
        )


def _other_ranks(found: Printed, rank: int) -> Iterator[str]:
    """Said where several ranks printed: one is taken, as each waits for the others in phases of its own."""
    if len(found.steps) < 2:
        return
    yield f"{len(found.steps)} ranks printed their timers: those of rank {max(rank, 0)} are taken"


def _unsteady(series: Mapping[str, list[float]]) -> Iterator[str]:
    """Said of phases whose steps differ much."""
    for phase, values in series.items():
        if len(values) < 2:
            continue
        first, _, third = quantiles(values, n=4, method="inclusive")
        middle = third - first
        if middle > UNSTEADY * median(values) > 0:
            yield f"{phase}: unsteady, half of the steps lie {middle / median(values):.0%} apart"


def run_of_record(record: Record) -> Run:
    """The run of a measurement file's record; BadInput where no step can be predicted of it."""
    from ziplan.estimate import Estimate
    from ziplan.study.ran import runtime_of
    from ziplan.study.validate import estimated, measured_step_time

    answer = estimated(record)
    if not isinstance(answer, Estimate):
        raise BadInput(record.problem(f"cannot be predicted: {answer}"))
    seconds = measured_step_time(record.entry.measured, answer)
    if seconds is None:
        raise BadInput(
            record.problem("measured: no time and no rate, which a calibration is made of", "measured")
        )
    subject = Subject(answer.cluster, answer.workload, runtime_of(record), answer.plan)
    return Run(record.entry.id, subject, {WHOLE: seconds})
