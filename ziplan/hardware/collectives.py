"""What a collective takes besides its bytes: a start, and a hop to every rank of the ring."""

from __future__ import annotations

from typing import NamedTuple

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.laws.partition import ring_latency


class Hops(NamedTuple):
    """Seconds to start, of a hop between GPUs of a node, and of one between nodes."""

    start: float
    inside: float
    network: float


# NCCL 2.19, src/graph/tuning.cc: baseLat and hwLat of rings.
OVER_NVLINK = Hops(14e-6, 1.9e-6, 4e-6)
"""Where GPUs have a fabric of their own: NCCL's LL128, which it chooses as long as hops matter."""

OVER_PCIE = Hops(8.4e-6, 5.7e-6, 14e-6)
"""Where they have none: its protocol Simple, as LL128 is not on there."""


def pass_latency(derivation: Derivation, cluster: Cluster, ranks: float) -> float:
    """Seconds of one way around the ring of all ranks, whatever its bytes."""
    hops = OVER_PCIE if cluster.node.fabric is None else OVER_NVLINK
    nodes = max(1.0, ranks / cluster.node.gpus_per_node)
    return derivation.apply(
        ring_latency,
        "one way around the ring of all ranks",
        rank_count=ranks,
        node_count=nodes,
        start_latency=hops.start,
        hop_latency=hops.inside,
        network_hop_latency=hops.network,
    )
