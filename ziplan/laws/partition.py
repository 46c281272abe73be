"""Materializing a layer: from its owner, or from a slice on every rank."""

from __future__ import annotations

from ziplan.laws.law import law, minimum
from ziplan.units import Bytes, BytesPerSecond, Count, Seconds


@law("article: Bandwidth-centric partitioning: allgather, not broadcast")
def owner_fetch_time(layer_bytes: Bytes, link_bandwidth: BytesPerSecond) -> Seconds:
    """Time to materialize one layer when its owner reads all of it (the broadcast taken as free)."""
    return layer_bytes / link_bandwidth


@law("article: Bandwidth-centric partitioning: allgather, not broadcast")
def striped_fetch_time(layer_bytes: Bytes, dp_degree: Count, link_bandwidth: BytesPerSecond) -> Seconds:
    """Time to materialize one layer when every rank reads its slice at the same instant."""
    return layer_bytes / (dp_degree * link_bandwidth)


@law("arXiv:2104.07857 sec 6.1")
def allgather_bytes(gathered_bytes: Bytes, dp_degree: Count) -> Bytes:
    """Bytes that one rank receives to hold all slices: every slice but its own."""
    return gathered_bytes * (dp_degree - 1) / dp_degree


@law("arXiv:2104.07857 sec 6.1")
def gather_time(gathered_bytes: Bytes, dp_degree: Count, gather_bandwidth: BytesPerSecond) -> Seconds:
    """Time of an allgather over an interconnect that gives each rank this bandwidth."""
    return gathered_bytes * (dp_degree - 1) / (dp_degree * gather_bandwidth)


@law("NCCL 2.19 src/graph/tuning.cc:ncclTopoTuneModel")
def ring_latency(
    rank_count: Count,
    node_count: Count,
    start_latency: Seconds,
    hop_latency: Seconds,
    network_hop_latency: Seconds,
) -> Seconds:
    """Time of one way around a ring of ranks that next to no bytes take: a start, and a hop to each rank."""
    return start_latency + (rank_count - node_count) * hop_latency + (node_count - 1) * network_hop_latency


@law("NCCL 2.19 src/graph/tuning.cc:ncclTopoGetAlgoTime")
def latency_time(pass_count: Count, ring_latency: Seconds) -> Seconds:
    """Time that so many ways around a ring take besides that of their bytes."""
    return pass_count * ring_latency


@law("arXiv:2104.07857 sec 6.1")
def ring_bandwidth(
    fabric_bandwidth: BytesPerSecond, node_network_bandwidth: BytesPerSecond
) -> BytesPerSecond:
    """Bandwidth that a rank sees in a ring over nodes: the fabric's, or that of the whole node's NICs."""
    return minimum(fabric_bandwidth, node_network_bandwidth)
