"""What a model family provides, and the checked access to its config that it builds from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ziplan.units import Precision
from ziplan.workload.model import ActivationBytes, Model

Attention = Literal["flash", "eager"]
"""Flash: the scores never reach memory. Eager: softmax(QK^T) is a tensor."""

ELEMENT_BYTES: Mapping[Precision, int] = {"fp32": 4, "fp16": 2, "bf16": 2}
"""Bytes of one element in each number format."""

LARGEST_COUNT = 100_000_000
"""No dimension of a model comes near this; a value above it is a slip."""

Report = Callable[[str, str, str], None]
"""Called with (key, message, help) for each value that cannot be used."""

_REQUIRED: Any = object()


class Fields:
    """A config's values, each checked as it is asked for.

    A value that cannot be used is reported and answered by 0 or False, so that one reading
    finds every problem; checks between values skip what is 0. What is built from a config
    with problems is never handed out.
    """

    def __init__(self, config: Mapping[str, Any], report: Report) -> None:
        self._config = config
        self.report = report

    def count(self, key: str, default: int = _REQUIRED) -> int:
        """A whole number from 1 up; absent or null gives `default`, where there is one."""
        value = self._config.get(key)
        if value is None:
            if default is not _REQUIRED:
                return default
            self.report(key, f"`{key}` is missing", "a whole number from 1 up")
            return 0
        if isinstance(value, bool) or not isinstance(value, int):
            self.report(key, f"`{key}` is {_shown(value)}, expected a whole number from 1 up", "")
            return 0
        if not 1 <= value <= LARGEST_COUNT:
            self.report(key, f"`{key}` is {_shown(value)}, expected 1 to {LARGEST_COUNT:,}", "")
            return 0
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false; absent or null gives `default`."""
        value = self._config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.report(key, f"`{key}` is {_shown(value)}, expected true or false", "")
            return False
        return value

    def text(self, key: str, default: str) -> str:
        """A text; absent or null gives `default`."""
        value = self._config.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.report(key, f"`{key}` is {_shown(value)}, expected a text", "")
            return default
        return value

    def divides(self, divisor_key: str, divisor: int, key: str, value: int, help: str = "") -> None:
        """Report `divisor_key` unless `divisor` divides `value` (0 stands for a value already reported)."""
        if divisor and value and value % divisor:
            message = f"`{divisor_key}` is {divisor:,}, which does not divide `{key}` ({value:,})"
            self.report(divisor_key, message, help)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


@dataclass(frozen=True)
class Family:
    """How one `model_type` is read and what its layers keep for backward."""

    model: Callable[[str, Fields], Model]
    activation_bytes: Callable[[Model, Attention, Precision], ActivationBytes]
