"""What DeepSpeed's config classes take as a value of a kind, and what they make of it.

Its sections are pydantic models in lax mode (`runtime/config_utils.py:DeepSpeedConfigModel`; pydantic's
conversion table, https://docs.pydantic.dev/latest/concepts/conversion_table/): a whole float is an
integer, "yes" is true, and so on. Bounds are a key's, not a kind's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

AUTO = "auto"
"""What only a trainer replaces with a value."""


class WrongValueError(Exception):
    """A value that is refused; the message says what is expected, `fix` what to write."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


class Kind(NamedTuple):
    """A kind of value: `take` converts one or raises; `name` is what it is for people."""

    name: str
    take: Callable[[Any], Any]


_TRUE = frozenset(("1", "on", "t", "true", "y", "yes"))
_FALSE = frozenset(("0", "off", "f", "false", "n", "no"))
_WHOLE = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*(?:\.0+)?")
_NO_NUMBER = re.compile(r"(NaN|-?Infinity),")
_INT64 = float(1 << 63)


def written(value: object) -> str:
    """A value as messages print it."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def unexpected(expected: str, value: object) -> WrongValueError:
    """The error of a value that is none of those expected."""
    # Hjson takes what has no quotes for text up to the end of its line, the comma too.
    odd = _NO_NUMBER.fullmatch(value) if isinstance(value, str) else None
    return WrongValueError(
        f"expected {expected}, not {odd[1] if odd else written(value)}", f"write {expected}"
    )


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    raise unexpected("true or false", value)


def _int(value: Any) -> int:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and value.is_integer() and -_INT64 < value < _INT64:
        return int(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value.strip().partition(".")[0])
    raise unexpected("a whole number", value)


def _float(value: Any) -> float:
    try:
        if isinstance(value, int | float | str):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise unexpected("a number", value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise unexpected("text", value)


def _texts(value: Any) -> list[str]:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return value
    raise unexpected("a list of texts", value)


def _text_or_texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else _texts(value)


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    raise unexpected("a list", value)


def _mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise unexpected("a mapping", value)


def _never(value: Any) -> Any:
    raise WrongValueError("no value that a file can hold is taken", "leave it out")


def _stage(value: Any) -> int:
    try:
        stage = _int(value)
    except WrongValueError:
        stage = -1
    if 0 <= stage <= 3:
        return stage
    raise unexpected("0, 1, 2 or 3", value)


def _interval(value: Any) -> Any:
    if isinstance(value, str):
        if value == AUTO:
            return value
        raise unexpected('a whole number or "auto"', value)
    return _int(value)


def _update_interval(value: Any) -> Any:
    taken = _interval(value)
    if isinstance(taken, int) and taken < 1:
        raise unexpected("at least 1", value)
    return taken


def _loss_scale(value: Any) -> float:
    """`precision_config.py:DeepSpeedFP16Config._validate_loss_scale`."""
    scale = -1.0 if isinstance(value, bool) else _float(value)
    if 0 <= scale < float("inf"):
        return scale
    raise unexpected("a number of at least 0 (0 scales the loss dynamically)", value)


def _scale_step(value: Any) -> int:
    """`precision_config.py:DeepSpeedFP16Config._reject_non_integer_scale_params`."""
    if isinstance(value, bool) or (isinstance(value, str) and "." in value):
        raise unexpected("a whole number", value)
    return _int(value)


def choice(*words: str) -> Kind:
    """One of a few words, spelt exactly."""

    def take(value: Any) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise unexpected(" or ".join(f'"{word}"' for word in words), value)

    return Kind(" or ".join(words), take)


def whole(least: int, most: int) -> Kind:
    """A whole number between two."""

    def take(value: Any) -> int:
        taken = _int(value)
        if least <= taken <= most:
            return taken
        bound = f"at least {least}" if taken < least else f"at most {most:,}"
        raise unexpected(f"a whole number of {bound}", value)

    return Kind(f"whole number of at least {least}", take)


def optional(kind: Kind) -> Kind:
    """The kind, or null."""
    return Kind(f"{kind.name} or null", lambda value: None if value is None else kind.take(value))


def list_of(kind: Kind) -> Kind:
    """A list of one kind."""
    return Kind(f"list of {kind.name}", lambda value: [kind.take(part) for part in _list(value)])


ANY = Kind("anything", lambda value: value)
BOOL = Kind("true or false", _bool)
INT = Kind("whole number", _int)
FLOAT = Kind("number", _float)
TEXT = Kind("text", _text)
PATH = Kind("path", _text)
TEXTS = Kind("list of texts", _texts)
TEXT_OR_TEXTS = Kind("text or list of texts", _text_or_texts)
LIST = Kind("list", _list)
MAPPING = Kind("mapping", _mapping)
NEVER = Kind("nothing", _never)
STAGE = Kind("0, 1, 2 or 3", _stage)
INTERVAL = Kind('whole number or "auto"', _interval)
UPDATE_INTERVAL = Kind('whole number of at least 1, or "auto"', _update_interval)
LOSS_SCALE = Kind("number of at least 0", _loss_scale)
SCALE_STEP = Kind("whole number, no text with a point", _scale_step)
DEVICE = choice("none", "cpu", "nvme")
