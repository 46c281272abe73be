"""What a machine is like while it is measured: who else is at work on it, and what slows it down."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version

from ziplan.bench.discover.root import Root
from ziplan.bench.discover.topology import devices_of
from ziplan.bench.record import Environment
from ziplan.bench.topology import LinkState, Topology

BUSY = 0.2
"""Load of each core from which others are said to be at work."""


def environment(topology: Topology, root: Root | None = None) -> Environment:
    """What the machine is like just now, and what about it slows a measurement down."""
    root = root or Root()
    said = root.text("/proc/loadavg").split(" ")[0]
    load = float(said) if said.replace(".", "", 1).isdigit() else None
    governors = {
        root.text(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor") for cpu in topology.cpus
    } - {""}
    launcher, rank, size = launched(os.environ)
    return Environment(
        kernel=root.text("/proc/sys/kernel/osrelease"),
        container=topology.container,
        governor=", ".join(sorted(governors)),
        load=load,
        rank=rank,
        world_size=size,
        launcher=launcher,
        versions=_versions(),
        warnings=tuple(_warnings(topology, governors, load or 0.0)),
    )


def _warnings(topology: Topology, governors: set[str], load: float) -> Iterator[str]:
    if load > BUSY * max(1, topology.cores):
        yield f"the load was {load:g} on {topology.cores} cores before the run: others were at work"
    if governors & {"powersave", "ondemand", "conservative"}:
        yield f"the processors' governor is {', '.join(sorted(governors))}: rates may be those of a low clock"
    if topology.cpu_limit is not None and topology.cpu_limit < topology.cores:
        yield f"a quota leaves {topology.cpu_limit:g} of {topology.cores} cores"
    for name, device in devices_of(topology).items():
        yield from _link_warnings(name, device.link)
    for drive in topology.drives:
        if drive.kind == "loop":
            yield f"{drive.name}: a loop device, whose file may lie in memory"
        if drive.kind == "virtual":
            yield f"{drive.name}: a virtual disk: what is below it is not seen, and others may share it"


def _link_warnings(name: str, link: LinkState) -> Iterator[str]:
    if link.width and link.width < link.most_width:
        yield f"{name}: its PCIe link runs x{link.width}, it could x{link.most_width}"
    # An idle GPU trains its link down; a drive does not.
    if not name.startswith("GPU") and link.speed and link.speed < link.most_speed:
        yield f"{name}: its PCIe link runs at {link.speed:g} GT/s, it could at {link.most_speed:g} GT/s"


_LAUNCHERS = (
    ("torchrun", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    ("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("mpirun", "PMI_RANK", "PMI_SIZE"),
    ("srun", "SLURM_PROCID", "SLURM_NTASKS"),
)
"""Who started one process a node, and the variables that tell its number and how many there are."""


def launched(variables: Mapping[str, str]) -> tuple[str, int | None, int | None]:
    """The launcher of this process, its rank and the number of ranks; nothing where it runs alone."""
    for name, rank, size in _LAUNCHERS:
        if variables.get(rank, "").isdigit():
            count = variables.get(size, "")
            return name, int(variables[rank]), int(count) if count.isdigit() else None
    return "", None, None


def _versions() -> dict[str, str]:
    """Versions of what measures, as far as it is installed."""
    found = {"python": platform.python_version()}
    for name in ("ziplan", "numpy", "torch", "deepspeed", "cuda-bindings"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
