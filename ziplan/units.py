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
from typing import Annotated, Any, Literal, TypeAlias


Precision = Literal["fp32", "fp16", "bf16"]
"""The number formats that training computes in."""


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
            raise ValueError(f"expected a quantity with its unit, for example '{self.example}'")
        if not isinstance(value, str):
            raise ValueError(f"{value!r} has no unit, expected '{self.symbol}' (for example '{self.example}')")
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
FlopsPerToken: TypeAlias = Annotated[float, Unit("FLOP/token")]
FlopsPerByteToken: TypeAlias = Annotated[float, Unit("FLOP/B/token")]
Tokens: TypeAlias = Annotated[float, Unit("token")]
TokensPerParam: TypeAlias = Annotated[float, Unit("token/param")]
TokensPerSecond: TypeAlias = Annotated[float, Unit("token/s")]
Params: TypeAlias = Annotated[float, Unit("param")]
ParamsPerSecond: TypeAlias = Annotated[float, Unit("param/s")]
BytesPerParam: TypeAlias = Annotated[float, Unit("B/param")]
BytesPerToken: TypeAlias = Annotated[float, Unit("B/token")]
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
BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_NUMBER = re.compile(r"\s*([+-]?(?:\d[\d_]*\.?[\d_]*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S.*?)?\s*$")


def parse(text: str, unit: str) -> float:
    """`text` ("32 GB/s") as a float in the base unit `unit`; raises ValueError with the fix."""
    raise NotImplementedError


def show(value: float, unit: str, digits: int = 4) -> str:
    """A value for people: a prefix that keeps it readable, `digits` significant digits."""
    if not math.isfinite(value):
        return "unknown" if math.isnan(value) else "unlimited"
    raise NotImplementedError
