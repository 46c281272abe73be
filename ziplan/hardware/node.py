"""A node: its GPU, its tiers of memory in order from the GPU outwards, and its links."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ziplan.hardware.parts import Cpu, Drive, Gpu, Link, Part
from ziplan.units import Bytes, BytesPerSecond

Medium = Literal["hbm", "dram", "nvme"]


class Tier(Part):
    """One rung of the memory hierarchy.

    `scope` says whose the capacity is: each GPU's or the whole node's. Bandwidths are the
    medium's own for that scope; a byte on its way to a GPU also crosses the links `via`.
    None means that nobody has stated the value.
    """

    medium: Medium
    scope: Literal["gpu", "node"]
    capacity: Bytes
    read_bandwidth: BytesPerSecond | None = None
    write_bandwidth: BytesPerSecond | None = None
    via: tuple[str, ...] = ()
    drive: Drive | None = None
    drive_count: int = Field(default=0, ge=0)


class Node(Part):
    """A machine, all values resolved.

    `fabric` names the link between GPUs of the node, `network` the one that leaves the node
    (its bandwidth is the whole node's, shared by all its GPUs); None where there is none.
    """

    name: str
    gpu: Gpu
    gpus_per_node: int = Field(ge=1)
    cpu: Cpu = Cpu()
    tiers: dict[str, Tier]
    links: dict[str, Link] = Field(default_factory=dict)
    fabric: str | None = None
    network: str | None = None
