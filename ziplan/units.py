"""Units: the only place where a quantity is text.

Inside ziplan every quantity is a float in base units (B, s, FLOP, token, param) or a numpy
array of them; statically both are `float`. `Annotated` aliases name the unit, and the same
alias validates a field of a file ("32 GB/s") and documents an argument of a law.
`GB` is 1e9 bytes and `GiB` 2**30, always.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias

Precision = Literal["fp32", "fp16", "bf16"]
"""The number formats that training computes in."""

Launcher = Literal["torchrun", "accelerate", "deepspeed", "bound"]
"""What starts a run, as far as its threads go: "bound" is any of them with cores divided among the ranks."""


class UnitError(ValueError):
    """Text that is not the quantity it should be; the message is the sentence that fixes it."""


@dataclass(frozen=True)
class Unit:
    """A unit of measurement, written in base units: "B/s", "FLOP/param/token", "1"."""

    symbol: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(self.validate)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "description": f"a quantity with its unit, for example '{self.example}'"}

    @property
    def example(self) -> str:
        """A value as a person would write it in a file."""
        return EXAMPLES.get(self.symbol, f"1 {self.symbol}")

    def validate(self, value: object) -> float:
        """The value of a field of a file: text with a unit; a bare number is refused."""
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise UnitError(f"expected a quantity with its unit, for example '{self.example}'")
        if not isinstance(value, str):
            raise UnitError(f"{value!r} has no unit, expected '{self.symbol}' (for example '{self.example}')")
        return parse(value, self.symbol)


EXAMPLES = {
    "B": "64 GiB",
    "B/s": "32 GB/s",
    "FLOP/s": "312 TFLOP/s",
    "param/s": "3.5 Gparam/s",
    "s": "90 s",
    "USD": "32.77 USD",
}

Bytes: TypeAlias = Annotated[float, Unit("B")]
BytesPerSecond: TypeAlias = Annotated[float, Unit("B/s")]
Seconds: TypeAlias = Annotated[float, Unit("s")]
Flops: TypeAlias = Annotated[float, Unit("FLOP")]
FlopsPerSecond: TypeAlias = Annotated[float, Unit("FLOP/s")]
FlopsPerByte: TypeAlias = Annotated[float, Unit("FLOP/B")]
FlopsPerParamToken: TypeAlias = Annotated[float, Unit("FLOP/param/token")]
FlopsPerParam: TypeAlias = Annotated[float, Unit("FLOP/param")]
FlopsPerTokenPair: TypeAlias = Annotated[float, Unit("FLOP/token/token")]
FlopsPerByteToken: TypeAlias = Annotated[float, Unit("FLOP/B/token")]
Tokens: TypeAlias = Annotated[float, Unit("token")]
TokensPerParam: TypeAlias = Annotated[float, Unit("token/param")]
TokensPerSecond: TypeAlias = Annotated[float, Unit("token/s")]
Params: TypeAlias = Annotated[float, Unit("param")]
ParamsPerSecond: TypeAlias = Annotated[float, Unit("param/s")]
BytesPerParam: TypeAlias = Annotated[float, Unit("B/param")]
BytesPerToken: TypeAlias = Annotated[float, Unit("B/token")]
BytesPerTokenPair: TypeAlias = Annotated[float, Unit("B/token/token")]
Dollars: TypeAlias = Annotated[float, Unit("USD")]
Count: TypeAlias = Annotated[float, Unit("1")]
Ratio: TypeAlias = Annotated[float, Unit("1")]

ALIASES: dict[str, Unit] = {
    name: alias.__metadata__[0]
    for name, alias in list(globals().items())
    if hasattr(alias, "__metadata__") and isinstance(alias.__metadata__[0], Unit)
}
"""Alias name to unit: what the annotation of a law's argument means."""

DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60}
TIMES = {
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "\u00b5s": 1e-6,
    "\u03bcs": 1e-6,
    "ns": 1e-9,
    "min": 60.0,
    "h": 3600.0,
    "day": 86400.0,
    "days": 86400.0,
    "year": 31557600.0,
    "years": 31557600.0,
}
"""Spellings of a duration; a year is a Julian year of 365.25 days."""

MOST_OF_A_UNIT = 1000
"""Of a unit of time, the most that is given in that of another time."""

_NUMBER = re.compile(
    r"(?P<number>[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+(?:_[0-9]+)*)?(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"
    r"\s*(?P<unit>[^0-9\s.,_+-].*)?"
)
_PREFIXED = ("B", "FLOP", "param", "token")
_LONGEST = 80


def parse(text: str, unit: str) -> float:
    """`text` ("32 GB/s") as a float in the base unit `unit`; raises UnitError with the fix."""
    shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
    example = EXAMPLES.get(unit, f"1 {unit}".removesuffix(" 1"))
    match = _NUMBER.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    try:
        number = float(match["number"].replace(",", "").replace("_", "")) if match else math.nan
    except ValueError:
        number = math.nan
    if match is None or math.isnan(number):
        expected = "a number" if unit == "1" else f"a number and its unit '{unit}'"
        raise UnitError(f"{shown!r} is not {expected} (for example '{example}')")
    if number < 0:
        raise UnitError(f"{shown!r} is negative, expected '{unit}' of at least 0 (for example '{example}')")
    scale = _scale(shown, (match["unit"] or "").strip(), unit, example)
    if not math.isfinite(number * scale):
        raise UnitError(f"{shown!r} is too large to compute with")
    # In decimal, so that "2.039 TB/s" is the float nearest to 2039e9 and not its neighbour.
    return float(Decimal(repr(number)) * Decimal(repr(scale)))


def _scale(text: str, written: str, unit: str, example: str) -> float:
    """What one of the unit as written is worth in the base unit."""
    if unit == "1" and not written:
        return 1.0
    if unit == "s" and written in TIMES:
        return TIMES[written]
    top, per, below = (re.sub(r"\s*/\s*", "/", written)).partition("/")
    base, expected_per, expected_below = unit.partition("/")
    scale = _prefix(top, base)
    if scale is not None and per == expected_per and _singular(below) == expected_below:
        return scale
    if not written:
        raise UnitError(f"{text!r} has no unit, expected '{unit}' (for example '{example}')")
    advice = _advice(written, unit) or f", expected '{unit}' (for example '{example}')"
    raise UnitError(f"{text!r} has unit {written!r}{advice}")


def _singular(name: str) -> str:
    return re.sub(r"\b(param|token)s\b", r"\1", name)


def _prefix(top: str, base: str) -> float | None:
    """The factor of a prefixed base unit ("GiB" of "B"), None when `top` is not one."""
    top = _singular_top(top)
    if base == "B" and top.endswith("bit"):
        prefix, size = top[: -len("bit")], 1 / 8
    elif top.endswith(base):
        prefix, size = top[: -len(base)], 1.0
    else:
        return None
    factor = DECIMAL.get(prefix) if base in _PREFIXED or not prefix else None
    if factor is None and base == "B":
        factor = BINARY.get(prefix)
    return None if factor is None else factor * size


def _singular_top(top: str) -> str:
    return top[:-1] if top.endswith(("params", "tokens")) else top


def _advice(written: str, unit: str) -> str:
    """The clause that fixes a unit that people often write; empty when there is none."""
    base = unit.partition("/")[0]
    rate = unit.removeprefix(base)
    match = re.match(r"([kmgtpe]?i?)(bits?|b|flops?)?(/s|/sec|ps)?$", written, re.I)
    if match is None:
        return ""
    prefix = match[1][:1].upper().replace("K", "K" if len(match[1]) == 2 else "k") + match[1][1:].lower()
    if match[1] and not match[2] and not match[3]:
        return f", which is a prefix without a unit: write '{prefix}{unit}'"
    name = match[2] or ""
    if base == "FLOP" and name.lower().startswith("flop"):
        return f": write '{prefix}{unit}'"
    if base != "B" or bool(match[3]) != bool(rate) or not name or name.lower().startswith("flop"):
        return ""
    if name == "b":
        return f", which may mean bits or bytes: write '{prefix}bit{rate}' or '{prefix}B{rate}'"
    return f": write '{prefix}{'B' if name == 'B' else 'bit'}{rate}'"


def show(value: float, unit: str, digits: int = 4) -> str:
    """A value for people: a prefix that keeps it readable, `digits` significant digits.

    A whole number below a million that needs no prefix is written out ("20,833 token"). What
    this writes, `parse` reads back to within the digits shown.
    """
    value = float(value)
    if not math.isfinite(value):
        return "unknown" if math.isnan(value) else "unlimited" if value > 0 else "-unlimited"
    size = abs(float(f"{value:.{digits - 1}e}"))
    prefix, factor = _readable(size, unit)
    return _figures(value, digits) if unit == "1" else f"{_figures(value / factor, digits)} {prefix}{unit}"


def figure(value: float, digits: int = 6) -> str:
    """A pure number for people: "110", "0.5", and "1.2e6" from a million on."""
    return show(value, "1", digits)


def _readable(size: float, unit: str) -> tuple[str, float]:
    """The prefix under which a value of this size reads best, and its factor."""
    if unit == "s":
        small = (("", 1.0), ("m", 1e-3), ("u", 1e-6), ("n", 1e-9))
        return next((pair for pair in small if size >= pair[1]), small[-1] if size else small[0])
    top, _, below = unit.partition("/")
    if top not in _PREFIXED or below not in ("", "s") or (top == "token" and size < 1e6):
        return "", 1.0
    fitting = [(prefix, factor) for prefix, factor in DECIMAL.items() if size >= factor]
    return fitting[-1] if fitting and size < 1e21 else ("", 1.0)


def _figures(number: float, digits: int) -> str:
    """The number in `digits` significant digits, plain where that reads well."""
    if number == 0:
        return "0"
    mantissa, exponent = f"{number:.{digits - 1}e}".split("e")
    power = int(exponent)
    if power < -4 or power >= max(6, digits):
        return f"{_stripped(mantissa)}e{power}"
    return _stripped(f"{number:,.{max(0, digits - 1 - power)}f}")


def _stripped(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def counted(number: float, name: str) -> str:
    """A number of things for people: "1 GPU", "1,024 GPUs"."""
    return f"{number:,.0f} {name}{'' if number == 1 else 's'}"


def show_duration(seconds: float, digits: int = 4, like: float = math.nan) -> str:
    """A length of time for people, in the largest unit that it fills: "81.9 ms", "33,227 years".

    The high end of a span is given in the unit of its low one, which it is `like`, unless that takes more
    than three figures: "172 s" of 56.8 to 172 s.
    """
    name, length = _unit_of_time(seconds if math.isnan(like) else like)
    if not abs(seconds) < MOST_OF_A_UNIT * length:
        name, length = _unit_of_time(seconds)
    return show(seconds, "s", digits) if name == "s" else f"{_figures(seconds / length, digits)} {name}"


def _unit_of_time(seconds: float) -> tuple[str, float]:
    """The largest unit of time that it fills twice, and how long that is."""
    for name, length in (("years", TIMES["year"]), ("days", TIMES["day"]), ("h", 3600.0), ("min", 60.0)):
        if math.isfinite(seconds) and abs(seconds) >= 2 * length:
            return name, length
    return "s", 1.0
