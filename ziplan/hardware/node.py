"""A node: its GPU, its tiers of memory in order from the GPU outwards, and its links."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ziplan.hardware.parts import MOST, Bandwidth, Cpu, Drive, Gpu, Link, Part, Size

Medium = Literal["hbm", "dram", "nvme"]


class Tier(Part):
    """One rung of the memory hierarchy.

    `scope` says whose the capacity is: each GPU's or the whole node's. Bandwidths are the
    medium's own for that scope; a byte on its way to a GPU also crosses the links `via`.
    None means that nobody has stated the value.
    """

    medium: Medium
    scope: Literal["gpu", "node"]
    capacity: Size
    read_bandwidth: Bandwidth | None = None
    write_bandwidth: Bandwidth | None = None
    via: tuple[str, ...] = ()
    drive: Drive | None = None
    drive_count: int = Field(default=0, ge=0, le=MOST, strict=True)


class Node(Part):
    """A machine, all values resolved.

    `fabric` names the link between GPUs of the node, `network` the one that leaves the node
    (its bandwidth is the whole node's, shared by all its GPUs); None where there is none.
    """

    name: str
    gpu: Gpu
    gpus_per_node: int = Field(ge=1, le=MOST, strict=True)
    cpu: Cpu = Field(default_factory=Cpu)
    tiers: dict[str, Tier]
    links: dict[str, Link] = Field(default_factory=dict)
    fabric: str | None = None
    network: str | None = None
    swap_limit: Bandwidth | None = None
    """Most that one process swaps between DRAM and NVMe, whatever the drives; None: as the runtime does."""
    memory_limit: Size | None = None
    """Host memory that a container or a batch system leaves to a job on this node."""
    memlock_limit: Size | None = None
    """Bytes that one process may lock in memory (`ulimit -l`); None where it is unlimited or unknown."""

    @property
    def gpu_tier(self) -> str:
        """Name of the tier that is a GPU's own memory."""
        return next(name for name, tier in self.tiers.items() if tier.scope == "gpu")

    def tier_of(self, medium: Medium) -> str | None:
        """Name of the innermost tier of a medium; None where the machine has none."""
        return next((name for name, tier in self.tiers.items() if tier.medium == medium), None)
