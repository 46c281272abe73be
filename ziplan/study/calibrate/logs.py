"""What DeepSpeed prints of a run's time and memory, as its source writes it (0.19.8 and releases before it).

- `utils/timer.py:SynchronizedWallClockTimer.log` under `wall_clock_breakdown`:
  "[Rank 0] time (ms) | fwd: 12.10 | bwd: 30.00 | bwd_inner: 29.00 | bwd_allreduce: 1.00 | step: 8.00",
  one line of `_microstep` timers a micro-step and one of the whole step at its end (`engine.py:step`).
  Releases up to 0.8 called them forward, backward and so on, with a "rank=0" before "time".
- `runtime/zero/stage3.py:step` in a line of its own: "optimizer_swap_in_state: 3.00 | optimizer_step: 7.00".
- `utils/timer.py:ThroughputTimer.stop`: "epoch=0/micro_step=8/global_step=8, RunningAvgSamplesPerSec=2.1".
- `runtime/utils.py:see_memory_usage`: "MA 1.2 GB  Max_MA 1.5 GB  CA 2.0 GB  Max_CA 2 GB" and
  "CPU Virtual Memory:  used = 15.5 GB, percent = 12.3%", whose GB are GiB.

Lines of several ranks may be mixed, also within a line, and each may carry a launcher's prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

NO_RANK = -1
"""The rank of a line that names none: a process without a process group prints so too."""

GIB = 2.0**30

_TIMERS = re.compile(
    r"(?:\[Rank (?P<rank>-?[0-9]{1,7})\] )?(?:rank=[0-9]{1,7} )?time \(ms\)"
    r"(?P<timers>(?: \| [a-z0-9_]{1,60}: [0-9]{1,15}(?:\.[0-9]{1,9})?)+)"
)
_TIMER = re.compile(r" \| ([a-z0-9_]{1,60}): ([0-9.]{1,25})")
_THROUGHPUT = re.compile(
    r"global_step=(?P<step>[0-9]{1,12}), RunningAvgSamplesPerSec=(?P<rate>[0-9]{1,15}(?:\.[0-9]{1,20})?)"
    r"(?:, CurrSamplesPerSec=[-0-9.e+]{1,30})?"
    r"(?:, MemAllocated=[0-9.]{1,20}GB, MaxMemAllocated=(?P<peak>[0-9]{1,9}(?:\.[0-9]{1,9})?)GB)?"
)
_GPU_MEMORY = re.compile(r"MA [0-9.]{1,20} GB\s{1,40}Max_MA (?P<peak>[0-9]{1,9}(?:\.[0-9]{1,9})?) GB")
_HOST_MEMORY = re.compile(r"CPU Virtual Memory:\s{1,9}used = (?P<used>[0-9]{1,9}(?:\.[0-9]{1,9})?) GB")

_OLD = {
    "forward": "fwd",
    "backward": "bwd",
    "backward_inner": "bwd_inner",
    "backward_allreduce": "bwd_allreduce",
}
"""Timers as releases up to 0.8 called them, to their names since."""

WHOLE_STEP = ("fwd", "bwd", "step")
"""The timers that make up a step: `bwd` holds `bwd_inner` and `bwd_allreduce`."""

SWAP_IN = "optimizer_swap_in_state"
OPTIMIZER = "optimizer_step"


class Step(NamedTuple):
    """One optimizer step of one rank: seconds by timer, and the micro-steps that were printed before it."""

    seconds: Mapping[str, float]
    micro_steps: int


@dataclass
class Printed:
    """What was found in a log. Seconds are per step; bytes are the most that was seen."""

    steps: dict[int, list[Step]] = field(default_factory=dict)
    """By rank, in the order of printing."""
    samples_per_s: float | None = None
    """The last running average, over all ranks; it leaves out the first two steps."""
    gpu_peak_bytes: float | None = None
    """The most that PyTorch had allocated on a GPU."""
    host_used_bytes: float | None = None
    """The most that was in use of the node's memory, by whoever."""

    @property
    def empty(self) -> bool:
        """Whether nothing at all was found."""
        memory = self.gpu_peak_bytes is None and self.host_used_bytes is None
        return not self.steps and self.samples_per_s is None and memory


def printed(lines: Iterable[str]) -> Printed:
    """What DeepSpeed printed in these lines; whatever else is in them is passed over."""
    found = Printed()
    waiting: dict[int, _Waiting] = {}
    for line in lines:
        for match in _TIMERS.finditer(line):
            rank = int(match["rank"]) if match["rank"] else NO_RANK
            _enter(found, waiting.setdefault(rank, _Waiting()), rank, _seconds(match["timers"]))
        _note_rate_and_memory(found, line)
    return found


@dataclass
class _Waiting:
    """What a rank has printed since its last whole step."""

    micro_steps: int = 0
    beside: dict[str, float] = field(default_factory=dict)


def _seconds(timers: str) -> dict[str, float]:
    """Seconds by timer, by the names of today; a number that is none leaves its timer out."""
    found = {}
    for name, text in _TIMER.findall(timers):
        stem, micro, _ = name.partition("_microstep")
        if text.count(".") <= 1 and text != ".":
            found[_OLD.get(stem, stem) + micro] = float(text) / 1000
    return found


def _enter(found: Printed, waiting: _Waiting, rank: int, seconds: Mapping[str, float]) -> None:
    """A line of timers: of a micro-step, of what is inside a step, or of a whole step, which ends it."""
    if "fwd_microstep" in seconds:
        waiting.micro_steps += 1
    elif all(name in seconds for name in WHOLE_STEP):
        step = Step({**waiting.beside, **seconds}, waiting.micro_steps)
        found.steps.setdefault(rank, []).append(step)
        waiting.micro_steps, waiting.beside = 0, {}
    else:
        waiting.beside.update(seconds)


def _note_rate_and_memory(found: Printed, line: str) -> None:
    throughput = _THROUGHPUT.search(line)
    if throughput and float(throughput["rate"]) > 0:
        found.samples_per_s = float(throughput["rate"])
    if throughput and throughput["peak"]:
        found.gpu_peak_bytes = max(found.gpu_peak_bytes or 0.0, GIB * float(throughput["peak"]))
    for match in _GPU_MEMORY.finditer(line):
        found.gpu_peak_bytes = max(found.gpu_peak_bytes or 0.0, GIB * float(match["peak"]))
    for match in _HOST_MEMORY.finditer(line):
        found.host_used_bytes = max(found.host_used_bytes or 0.0, GIB * float(match["used"]))
