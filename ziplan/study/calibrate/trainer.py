"""What the Hugging Face Trainer says of a run's time.

`trainer_utils.py:speed_metrics` makes "train_runtime" (seconds), "train_samples_per_second" and
"train_steps_per_second" of the whole of `train()`, with what is evaluated and saved in it;
`trainer_callback.py` prints them as a Python mapping, since transformers 5 each number as text of four
digits. `trainer_state.json` holds the runtime beside the number of steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_NUMBER = r"'?(?P<{0}>[0-9]{{1,15}}(?:\.[0-9]{{1,15}})?(?:e[-+]?[0-9]{{1,3}})?)'?"
_SAMPLES = re.compile(r"['\"]train_samples_per_second['\"]: " + _NUMBER.format("rate"))
_STEPS = re.compile(r"['\"]train_steps_per_second['\"]: " + _NUMBER.format("rate"))

COARSEST = 0.02
"""A rate that its rounding leaves open by more than this is not taken."""


class Rates(NamedTuple):
    """Rates as printed, over the whole of training; None where there is none. Text, for its digits."""

    samples_per_s: str | None = None
    steps_per_s: str | None = None

    @property
    def empty(self) -> bool:
        """Whether there is none."""
        return self.samples_per_s is None and self.steps_per_s is None


def rates_in(lines: Iterable[str]) -> Rates:
    """The rates that the Trainer printed last."""
    found = Rates()
    for line in lines:
        samples, steps = _SAMPLES.search(line), _STEPS.search(line)
        if samples or steps:
            found = Rates(samples["rate"] if samples else None, steps["rate"] if steps else None)
    return found


def step_time(rates: Rates, sequences: float) -> float | None:
    """Seconds of a step of so many sequences, by the rate with more digits; None where none has enough."""
    choices = [
        (_left_open(text), work / float(text))
        for text, work in ((rates.steps_per_s, 1.0), (rates.samples_per_s, sequences))
        if text is not None and float(text) > 0
    ]
    open_by, seconds = min(choices, default=(1.0, 0.0))
    return seconds if open_by <= COARSEST else None


def _left_open(text: str) -> float:
    """Half of the last digit, over the number."""
    mantissa, _, exponent = text.partition("e")
    last = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return 0.5 * last / float(text)


def state_step_time(state: Mapping[str, Any]) -> float | None:
    """Seconds of a step by a trainer_state.json; None where it is not one of a run that ended."""
    steps, history = state.get("global_step"), state.get("log_history")
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1 or not isinstance(history, list):
        return None
    for entry in reversed(history):
        runtime = entry.get("train_runtime") if isinstance(entry, dict) else None
        if isinstance(runtime, int | float) and not isinstance(runtime, bool) and runtime > 0:
            return float(runtime) / steps
    return None
