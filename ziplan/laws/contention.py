"""What links, roots and drives give when several pull at once."""

from __future__ import annotations

from ziplan.laws.law import law, minimum
from ziplan.units import Bytes, BytesPerSecond, Count, Seconds


@law("arXiv:2104.07857 sec 6.1")
def shared_link_bandwidth(
    link_bandwidth: BytesPerSecond, instance_bandwidth: BytesPerSecond, user_count: Count
) -> BytesPerSecond:
    """What one user gets of a shared part: its own link's rate, or its share of what the part gives."""
    return minimum(link_bandwidth, instance_bandwidth / user_count)


@law("article: Pitfalls the synthesis creates")
def path_bandwidth(near_bandwidth: BytesPerSecond, far_bandwidth: BytesPerSecond) -> BytesPerSecond:
    """Bandwidth of two links in a row: the slower one's."""
    return minimum(near_bandwidth, far_bandwidth)


@law("article: Bandwidth-centric partitioning: allgather, not broadcast")
def aggregate_bandwidth(instance_bandwidth: BytesPerSecond, instance_count: Count) -> BytesPerSecond:
    """What parts side by side give together when nothing upstream of them is slower."""
    return instance_bandwidth * instance_count


@law("article: Pitfalls the synthesis creates")
def contended_fetch_time(
    read_bytes: Bytes, allgather_bytes: Bytes, root_bandwidth: BytesPerSecond
) -> Seconds:
    """Time of a fetch when a slice's read and the allgather it feeds cross one root port."""
    return (read_bytes + allgather_bytes) / root_bandwidth


@law("article: Applying the test: which state can live where")
def read_write_time(
    read_bytes: Bytes, write_bytes: Bytes, read_bandwidth: BytesPerSecond, write_bandwidth: BytesPerSecond
) -> Seconds:
    """Time to read and to write on one device, which takes turns."""
    return read_bytes / read_bandwidth + write_bytes / write_bandwidth


@law("article: Applying the test: which state can live where")
def mixed_bandwidth(
    read_bytes: Bytes, write_bytes: Bytes, read_bandwidth: BytesPerSecond, write_bandwidth: BytesPerSecond
) -> BytesPerSecond:
    """Bandwidth of a device over a mix of reads and writes."""
    return (read_bytes + write_bytes) / (read_bytes / read_bandwidth + write_bytes / write_bandwidth)
