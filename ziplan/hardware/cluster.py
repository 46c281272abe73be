"""A cluster: a number of equal nodes, what is known of their price, and where each value came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ziplan.hardware.node import Node


class Provenance(NamedTuple):
    """Where a value came from: `kind` is measured, datasheet, derived, assumed or given."""

    kind: str
    source: str


class Price(NamedTuple):
    """What a node costs, as the cluster file states it."""

    per_node_hour_usd: float
    source: str
    date: str


@dataclass(frozen=True)
class Cluster:
    """`nodes` machines of one kind. `provenance` is keyed by path ("tiers.dram.capacity").

    `warnings` names values that are possible but look like a slip.
    """

    node: Node
    nodes: int = 1
    price: Price | None = None
    provenance: Mapping[str, Provenance] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def gpu_count(self) -> int:
        """All GPUs of the cluster."""
        return self.nodes * self.node.gpus_per_node

    @property
    def label(self) -> str:
        """The cluster in a few words: "4 x DGX A100 80GB"."""
        return f"{self.nodes:,} x {self.node.name}" if self.nodes > 1 else self.node.name
