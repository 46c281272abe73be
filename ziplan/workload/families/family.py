"""What a model family provides, and the checked access to its config that it builds from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from ziplan.files.validation import MISSING_KEY, WRONG_VALUE
from ziplan.units import Precision
from ziplan.workload.model import ActivationBytes, Model

Attention = Literal["flash", "eager"]
"""Flash: the scores never reach memory. Eager: softmax(QK^T) is a tensor."""

ELEMENT_BYTES: Mapping[Precision, int] = {"fp32": 4, "fp16": 2, "bf16": 2}
"""Bytes of one element in each number format."""

LARGEST_COUNT = 100_000_000
"""No dimension of a model comes near this; a value above it is a slip."""

Report = Callable[[str, str, str, str], None]
"""Called with (key, code, message, help) for each value that cannot be used."""

_REQUIRED: Any = object()


class Fields:
    """A config's values, each checked as it is asked for.

    A value that cannot be used is reported and answered by 0 or False, so that one reading
    finds every problem; checks between values skip what is 0. What is built from a config
    with problems is never handed out.
    """

    def __init__(self, config: Mapping[str, Any], report: Report) -> None:
        self._config = config
        self._report = report

    def count(self, key: str, default: int = _REQUIRED) -> int:
        """A whole number from 1 up; absent or null gives `default`, where there is one."""
        value = self._config.get(key)
        if value is None and default is not _REQUIRED:
            return default
        if value is None:
            self._report(key, MISSING_KEY, f"missing key `{key}`", "it takes a whole number from 1 up")
            return 0
        if isinstance(value, bool) or not isinstance(value, int):
            return self._wrong(key, f"expected a whole number, not {_shown(value)}")
        if not 1 <= value <= LARGEST_COUNT:
            bound = "at least 1" if value < 1 else f"at most {LARGEST_COUNT:,}"
            return self._wrong(key, f"must be {bound}, not {_shown(value)}")
        return value

    def count_or_none(self, key: str, default: int | None) -> int | None:
        """A whole number from 1 up; null and 0 stand for none, an absent key for `default`."""
        value = self._config.get(key, default)
        if value is None or self.zero(key):
            return None
        return self.count(key, default or 0) or None

    def texts(self, key: str, known: tuple[str, ...]) -> tuple[str, ...]:
        """A list of names out of those known; absent or null gives none."""
        value = self._config.get(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            self._wrong(key, f"expected a list, not {_shown(value)}")
            return ()
        strange = next((each for each in value if each not in known), None)
        if strange is not None:
            self._wrong(key, f"expected {' or '.join(map(repr, known))}, not {_shown(strange)}")
            return ()
        return tuple(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false; absent or null gives `default`."""
        value = self._config.get(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self._wrong(key, f"expected true or false, not {_shown(value)}")
        return False

    def text(self, key: str, default: str) -> str:
        """A text; absent or null gives `default`."""
        value = self._config.get(key)
        if value is None or isinstance(value, str):
            return value or default
        self._wrong(key, f"expected text, not {_shown(value)}")
        return default

    def named(self, *keys: str) -> str:
        """The first of these keys that the config has, else the first: names of one thing."""
        return next((key for key in keys if self._config.get(key) is not None), keys[0])

    def places(self, key: str, count: int) -> frozenset[int]:
        """A list of places from 0 up to `count`; absent or null gives none."""
        value = self._config.get(key)
        if value is None:
            return frozenset()
        if not isinstance(value, list) or any(isinstance(v, bool) or not isinstance(v, int) for v in value):
            self._wrong(key, f"expected a list of whole numbers, not {_shown(value)}")
            return frozenset()
        return frozenset(place for place in value if 0 <= place < count)

    def zero(self, key: str) -> bool:
        """Whether the config states 0, where that is a number like others."""
        value = self._config.get(key)
        return value == 0 and not isinstance(value, bool) and isinstance(value, int)

    def entries(self, key: str, default: int) -> int:
        """How many entries a mapping has; absent or null gives `default`."""
        value = self._config.get(key)
        if value is None or isinstance(value, dict):
            return len(value) if value else default
        return self._wrong(key, f"expected a mapping, not {_shown(value)}")

    def divides(self, divisor_key: str, divisor: int, key: str, value: int, help: str = "") -> None:
        """Refuse a divisor that does not divide `value` (0 stands for a value already reported)."""
        if divisor and value and value % divisor:
            self._wrong(divisor_key, f"{divisor:,} does not divide {key} ({value:,})", help)

    def unsupported(self, key: str, message: str) -> None:
        """Refuse a value that is legal but stands for something that is not supported."""
        self._wrong(key, message)

    def _wrong(self, key: str, message: str, help: str = "") -> int:
        self._report(key, WRONG_VALUE, message, help)
        return 0


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


class Family(NamedTuple):
    """How one `model_type` is read and what its layers keep for backward."""

    model: Callable[[str, Fields], Model]
    activation_bytes: Callable[[Model, Attention, Precision], ActivationBytes]
