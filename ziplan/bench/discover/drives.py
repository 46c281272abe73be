"""From a folder to its file system, and through md, dm and partitions to the drives below."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ziplan.bench.discover import pci
from ziplan.bench.discover.root import Root
from ziplan.bench.topology import DriveKind, FolderKind, FoundDrive, FoundFolder

SECTOR = 512
"""Bytes of a sector in /sys/block/*/size, whatever the drive's own are (Documentation/block/stat.rst)."""
NETWORK = frozenset(
    (
        *("nfs", "nfs4", "lustre", "beegfs", "gpfs", "ceph", "cifs", "smb3", "9p", "virtiofs", "glusterfs"),
        *("wekafs", "afs", "pvfs2", "orangefs", "daos"),
    )
)
MEMORY = frozenset(("tmpfs", "ramfs", "devtmpfs"))
DEEPEST = 8
"""Layers of devices, or of overlays, that are followed."""


class Mount(NamedTuple):
    """A line of /proc/self/mountinfo (Documentation/filesystems/proc.rst, 3.5)."""

    point: str
    number: str
    filesystem: str
    source: str
    options: str


def mounts(root: Root) -> list[Mount]:
    """What is mounted, in the order in which it was."""
    found = []
    for line in root.text("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split(" ")
        if len(fields) >= 6 and len(rest) >= 2:
            options = rest[2] if len(rest) > 2 else ""
            found.append(Mount(_unescaped(fields[4]), fields[2], rest[0], _unescaped(rest[1]), options))
    return found


def _unescaped(text: str) -> str:
    r"""Text in which the kernel writes spaces and the like as \040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def mount_of(path: str, among: Iterable[Mount]) -> Mount | None:
    """The mount that a path lies on: the deepest, and of those in one place the last."""
    best = None
    for mount in among:
        holds = path == mount.point or path.startswith(f"{mount.point.rstrip('/')}/")
        if holds and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


class Below(NamedTuple):
    """What lies below a folder."""

    kind: FolderKind
    filesystem: str
    drives: tuple[str, ...] = ()
    through: tuple[str, ...] = ()


def below(root: Root, path: str, depth: int = 0) -> Below:
    """The file system and the drives of a path."""
    mount = mount_of(path, mounts(root))
    if mount is None:
        return Below("unknown", "")
    name = mount.filesystem
    if name in NETWORK or (name.startswith("fuse.") and name != "fuse.overlayfs"):
        return Below("network", name)
    if name in MEMORY:
        return Below("memory", name)
    if name in ("overlay", "fuse.overlayfs"):
        upper = next((o.partition("=")[2] for o in mount.options.split(",") if o.startswith("upperdir=")), "")
        # In a container the upper folder is a path of the host, which need not be seen from here.
        if not upper or not root.exists(upper) or depth >= DEEPEST:
            return Below("unknown", name, through=("overlay, whose upper folder is out of sight",))
        under = below(root, upper, depth + 1)
        return under._replace(through=("overlay", *under.through))
    through: list[str] = []
    drives = list(dict.fromkeys(_leaves(root, _block_device(root, mount), through)))
    return Below("drive" if drives else "unknown", name, tuple(drives), tuple(dict.fromkeys(through)))


def _block_device(root: Root, mount: Mount) -> str:
    """The real path under /sys of what is mounted; a file system over several devices names one of them."""
    found = root.real(f"/sys/dev/block/{mount.number}")
    if found or not mount.source.startswith("/dev/"):
        return found
    name = os.path.basename(root.real(mount.source) or mount.source)
    return root.real(f"/sys/class/block/{name}")


def _leaves(root: Root, device: str, through: list[str], depth: int = 0) -> Iterator[str]:
    """Names of the drives under a block device; what is passed on the way is noted."""
    if not device or depth > DEEPEST:
        return
    if root.exists(f"{device}/partition"):
        device = os.path.dirname(device)
    slaves = root.names(f"{device}/slaves")
    name = os.path.basename(device)
    if not slaves:
        yield name
        return
    level = root.text(f"{device}/md/level")
    kind = level or root.text(f"{device}/dm/uuid").partition("-")[0].lower()
    through.append(f"{name} {kind}".strip())
    for slave in slaves:
        yield from _leaves(root, root.real(f"/sys/class/block/{slave}"), through, depth + 1)


def drive(root: Root, name: str) -> FoundDrive:
    """A block device that holds data itself."""
    real = root.real(f"/sys/class/block/{name}")
    kind, controller = _kind(root, name, real)
    address = root.text(f"{controller}/address") if controller else ""
    address = address if root.exists(f"{pci.DEVICES}/{address}") and address else pci.address_of(real)
    model = root.text(f"{controller}/model") if controller else root.text(f"{real}/device/model")
    sectors = root.number(f"{real}/size") or 0
    return FoundDrive(
        name=name,
        kind=kind,
        model=" ".join(model.split()),
        size_bytes=float(sectors * SECTOR),
        pci=pci.device(root, address) if address else None,
    )


def _kind(root: Root, name: str, real: str) -> tuple[DriveKind, str]:
    """What a drive is, and of an NVMe drive the path of its controller."""
    if name.startswith("nvme"):
        controller = _controller(root, real)
        transport = root.text(f"{controller}/transport") if controller else ""
        return ("nvme" if transport == "pcie" else "nvme-fabric" if transport else "unknown"), controller
    if name.startswith("loop"):
        return "loop", ""
    # `rotational` tells nothing of virtual disks, so the name of the driver has to.
    if name.startswith(("vd", "xvd", "zram", "pmem", "nbd", "rbd")):
        return "virtual", ""
    vendor = root.text(f"{real}/device/vendor").upper()
    if vendor in ("QEMU", "VMWARE", "GOOGLE", "MSFT", "VBOX"):
        return "virtual", ""
    return ("sata" if name.startswith("sd") else "unknown"), ""


def _controller(root: Root, real: str) -> str:
    """The controller of an NVMe namespace; of one with several paths the first."""
    device = root.real(f"{real}/device")
    if root.exists(f"{device}/transport"):
        return device
    for name in root.names(device):
        if re.fullmatch(r"nvme\d+", name) and root.exists(f"{device}/{name}/transport"):
            return root.real(f"{device}/{name}")
    return ""


def folder(root: Root, path: str) -> FoundFolder:
    """A folder given for storage; its label is set where all are known."""
    real = root.real(path) or path
    under = below(root, real)
    free, size = _room(root, real)
    return FoundFolder(
        path=path,
        label="",
        kind=under.kind,
        filesystem=under.filesystem,
        drives=under.drives,
        through=under.through,
        free_bytes=free,
        size_bytes=size,
    )


def _room(root: Root, path: str) -> tuple[float, float]:
    try:
        found = os.statvfs(root.at(path))
    except OSError:
        return 0.0, 0.0
    return float(found.f_bavail * found.f_frsize), float(found.f_blocks * found.f_frsize)


def labelled(folders: Iterable[FoundFolder]) -> tuple[FoundFolder, ...]:
    """The folders with labels: the name of the device, or else of the folder, each once."""
    used: set[str] = set()
    found = []
    for each in folders:
        devices = [
            step.split()[0] for step in each.through if " " not in step or step.startswith(("md", "dm"))
        ]
        device = next((name for name in devices if name.startswith(("md", "dm"))), "")
        device = device or "-".join(each.drives)
        plain = re.sub(r"[^A-Za-z0-9]+", "-", device or os.path.basename(os.path.realpath(each.path))).strip(
            "-"
        )
        label, number = plain or "root", 2
        while label in used:
            label, number = f"{plain}-{number}", number + 1
        used.add(label)
        found.append(each.model_copy(update={"label": label}))
    return tuple(found)
