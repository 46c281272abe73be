"""A node's topology: the parts, and what shares a way for bytes."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence

from ziplan.bench.discover import drives, host, pci
from ziplan.bench.discover.root import Root
from ziplan.bench.record import Contention
from ziplan.bench.topology import FoundFolder, PciDevice, Topology


def discover(folders: Sequence[str] = (), root: Root | None = None) -> Topology:
    """What the node has, and what lies below the folders (those of `chosen` where none is given)."""
    root = root or Root()
    found = drives.labelled(drives.folder(root, path) for path in (folders or chosen(root)))
    cpus = host.first_of_cores(root, host.usable_cpus(root))
    count, name = host.sockets(root), host.cpu_name(root)
    names = dict.fromkeys(name for folder in found for name in folder.drives)
    return Topology(
        host=root.text("/proc/sys/kernel/hostname") or platform.node(),
        cpu=f"{count} x {name}" if count > 1 and name else name,
        cores=max(1, len(cpus)),
        cpus=cpus,
        numa_cpus=host.numa_cpus(root),
        memory_bytes=host.memory_bytes(root),
        memory_limit_bytes=host.memory_limit(root),
        cpu_limit=host.cpu_limit(root),
        container=host.container(root),
        gpus=tuple(pci.gpus(root)),
        drives=tuple(drives.drive(root, name) for name in names),
        folders=found,
        memlock_limit_bytes=host.memlock_limit(),
    )


def chosen(root: Root) -> list[str]:
    """Folders to measure where none is given: this one, and others on NVMe drives that may be written."""
    found: list[FoundFolder] = []
    seen: set[str] = set()
    here = os.getcwd() if str(root.path) == "/" else "/"
    for path in (here, *(mount.point for mount in drives.mounts(root))):
        if (
            not path.isprintable()
            or not os.access(root.at(path), os.W_OK | os.X_OK)
            or not os.path.isdir(root.at(path))
        ):
            continue
        folder = drives.folder(root, path)
        kinds = {drives.drive(root, name).kind for name in folder.drives}
        if folder.kind != "drive" or set(folder.drives) & seen or (path != here and kinds != {"nvme"}):
            continue
        seen |= set(folder.drives)
        found.append(folder)
    return [folder.path for folder in found]


def devices_of(topology: Topology) -> dict[str, PciDevice]:
    """GPUs and drives on PCI by name ("GPU 0000:17:00.0", "nvme0n1")."""
    named = {f"GPU {gpu.pci.address}": gpu.pci for gpu in topology.gpus}
    return named | {drive.name: drive.pci for drive in topology.drives if drive.pci is not None}


def shared_ways(topology: Topology) -> tuple[Contention, ...]:
    """Groups below one root port or switch: they share what leads up from it."""
    return tuple(_groups(devices_of(topology)))


def _groups(devices: Mapping[str, PciDevice]) -> Iterator[Contention]:
    under: dict[str, list[str]] = {}
    depth: dict[str, int] = {}
    for name, device in devices.items():
        # The host bridge comes first: what hangs from it has ways of its own. A drive's controller may be
        # shared by several of its parts.
        for index, step in enumerate(device.ancestry[1:], 1):
            under.setdefault(step, []).append(name)
            depth[step] = index
    deepest: dict[tuple[str, ...], str] = {}
    for step, names in under.items():
        key = tuple(sorted(names))
        if len(key) > 1 and (key not in deepest or depth[step] > depth[deepest[key]]):
            deepest[key] = step
    for members, step in sorted(deepest.items(), key=lambda item: (item[1], item[0])):
        note = "below one PCI bridge: at once they share what leads up from it"
        yield Contention(shared=f"PCI {step}", members=members, evidence="topology", note=note)
