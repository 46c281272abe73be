"""What every part of a file is: frozen, of known keys, its numbers numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo, field_validator

from ziplan.units import figure

TOLERANCE = 1e-6
"""How far fractions may be from adding up to 1."""


class FileRecord(BaseModel):
    """A frozen part of a file; keys that it does not know are refused, and numbers that are none."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth(cls, value: object, info: ValidationInfo) -> object:
        """Python counts with true and false; a file that has them where a number belongs is mistaken."""
        if isinstance(value, bool) and info.field_name is not None:
            kinds = set(_kinds(cls.model_fields[info.field_name].annotation))
            if bool not in kinds and kinds & {int, float}:
                whole = "a number" if float in kinds else "a whole number"
                raise ValueError(f"expected {whole}, not {value!r}")
        return value


def _kinds(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is made of."""
    inner = get_args(annotation)
    if not inner:
        yield annotation
    for each in inner:
        yield from _kinds(each)


def adding_up(parts: Mapping[str, float]) -> Mapping[str, float]:
    """The fractions of a whole, of which none is below 0 (ValueError)."""
    for name, part in parts.items():
        if not 0 <= part <= 1:
            raise ValueError(f"a fraction is between 0 and 1, {name} has {part:g}")
    if abs(sum(parts.values()) - 1) > TOLERANCE:
        raise ValueError(f"fractions must add up to 1, these add up to {figure(sum(parts.values()))}")
    return parts


Fractions = Annotated[dict[str, float], AfterValidator(adding_up)]
"""Tier to fraction of what is there."""
