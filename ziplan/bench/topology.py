"""What is in a node, as the operating system tells it: the facts that benchmarks and profiles go by.

Nothing here is measured; `ziplan.bench.discover` fills it in from /sys and /proc.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ziplan.hardware.parts import Part

DriveKind = Literal["nvme", "nvme-fabric", "sata", "virtual", "loop", "unknown"]
FolderKind = Literal["drive", "network", "memory", "unknown"]

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Limit = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class LinkState(Part):
    """A PCIe link: transfers a second and lanes, now and at most (0 where the kernel does not say).

    An idle GPU trains its link down: the current speed counts only under load.
    """

    speed: Amount = 0.0
    width: int = Field(default=0, ge=0)
    most_speed: Amount = 0.0
    most_width: int = Field(default=0, ge=0)


class PciDevice(Part):
    """A device on PCI: its address, what it hangs from (host bridge first, itself last), its NUMA node."""

    address: str
    ancestry: tuple[str, ...] = ()
    numa_node: int | None = None
    link: LinkState = LinkState()


class FoundGpu(Part):
    """A GPU as the PCI bus shows it, `vendor` and `device` as numbers ("0x10de").

    CUDA's index may be another one, so match by `pci.address`.
    """

    pci: PciDevice
    vendor: str = ""
    device: str = ""


class FoundDrive(Part):
    """A block device that holds data itself. `pci` is None where it hangs from no PCI device (virtual)."""

    name: str
    kind: DriveKind
    model: str = ""
    size_bytes: Amount = 0.0
    pci: PciDevice | None = None


class FoundFolder(Part):
    """A folder given for storage: its file system, and the drives below it through md, dm and overlay.

    `through` names the devices between file system and drives ("md0 raid0", "dm-1 crypt").
    """

    path: str
    label: str
    kind: FolderKind
    filesystem: str
    drives: tuple[str, ...] = ()
    through: tuple[str, ...] = ()
    free_bytes: Amount = 0.0
    size_bytes: Amount = 0.0


class Topology(Part):
    """A node. `memory_limit_bytes` is what a container or batch system leaves; None where nothing limits.

    `cores` are the physical cores that this process may use and `cpus` the first processor of each;
    `numa_cpus` are all processors of each NUMA node, `cpu_limit` those that a container's quota is worth;
    `memlock_limit_bytes` is what a process may lock (None where nothing limits, or for the administrator).
    """

    host: str = ""
    cpu: str = ""
    cores: int = Field(default=1, ge=1)
    cpus: tuple[int, ...] = (0,)
    numa_cpus: dict[int, tuple[int, ...]] = {}  # noqa: RUF012 - a field of a frozen model
    memory_bytes: Amount = 0.0
    memory_limit_bytes: Limit | None = None
    cpu_limit: Limit | None = None
    memlock_limit_bytes: Amount | None = None
    container: str = ""
    gpus: tuple[FoundGpu, ...] = ()
    drives: tuple[FoundDrive, ...] = ()
    folders: tuple[FoundFolder, ...] = ()

    @property
    def working_cpus(self) -> tuple[int, ...]:
        """Processors for a thread each: one of each core, no more than the quota is worth."""
        most = len(self.cpus) if self.cpu_limit is None else max(1, int(self.cpu_limit))
        return self.cpus[:most]
