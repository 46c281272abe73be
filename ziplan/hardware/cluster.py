"""A cluster: a number of equal nodes, what is known of their price, and where each value came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from ziplan.hardware.node import Node


class Provenance(NamedTuple):
    """Where a value came from: `kind` is measured, calibrated, datasheet, derived, assumed or given."""

    kind: str
    source: str


class Price(NamedTuple):
    """What a node costs, as the cluster file states it."""

    per_node_hour_usd: float
    source: str
    date: str


class Calibrated(NamedTuple):
    """What runs on a machine say of a runtime on it, beyond the rates of the machine's parts.

    `overlap` is the share of what the runtime does beside the GPU's work that is really hidden in runs on one
    node, `overlap_between_nodes` in runs on several, each None where no run shows it; `residuals` holds, by
    kind of run, (runs, least, most) measured over predicted step time after calibration, a run predicted from
    the others where there are several.
    """

    source: str
    runtime: str
    overlap: float | None = None
    residuals: Mapping[str, tuple[int, float, float]] = {}
    overlap_between_nodes: float | None = None

    def hidden(self, runtime: str, nodes: int) -> float | None:
        """The share that is hidden under a runtime on so many nodes; None where no run of such shows it."""
        if runtime != self.runtime:
            return None
        return self.overlap if nodes <= 1 else self.overlap_between_nodes


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
    calibrated: Calibrated | None = None

    @property
    def gpu_count(self) -> int:
        """All GPUs of the cluster."""
        return self.nodes * self.node.gpus_per_node

    def nodes_of(self, ranks: float) -> int:
        """Nodes that so many ranks are on, a rank on each GPU: they fill one after the other."""
        return min(self.nodes, max(1, ceil(ranks / self.node.gpus_per_node)))

    @property
    def label(self) -> str:
        """The cluster in a few words: "4 x DGX A100 80GB"."""
        return f"{self.nodes:,} x {self.node.name}" if self.nodes > 1 else self.node.name
