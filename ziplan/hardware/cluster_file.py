"""What a cluster file says: a machine, how many of it, changes to it, and its price."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ziplan.hardware.parts import MOST, Part
from ziplan.units import Dollars


class PriceFile(Part):
    """`price:` of a cluster file."""

    per_node_hour: Dollars
    source: str = ""
    date: str = ""


class ClusterFile(Part):
    """A cluster file."""

    schema_: Literal["ziplan.cluster/1"] = Field(default="ziplan.cluster/1", alias="schema")
    machine: str | dict[str, Any]
    nodes: int = Field(default=1, ge=1, le=MOST, strict=True)
    with_: dict[str, Any] = Field(default_factory=dict, alias="with")
    price: PriceFile | None = None
