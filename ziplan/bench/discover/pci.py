"""PCI: what hangs from what, how wide and fast its link is, and the GPUs on it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ziplan.bench.discover.root import Root
from ziplan.bench.topology import FoundGpu, LinkState, PciDevice

DEVICES = "/sys/bus/pci/devices"
_STEP = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}|[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_GPU_VENDORS = ("0x10de", "0x1002")
"""NVIDIA and AMD (https://pci-ids.ucw.cz)."""
_DISPLAY_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""VGA, 3D and other display controllers, and processing accelerators (PCI code and ID assignment)."""


def device(root: Root, address: str) -> PciDevice | None:
    """The device at an address; None where there is none."""
    real = root.real(f"{DEVICES}/{address}")
    if not real:
        return None
    numa = root.number(f"{DEVICES}/{address}/numa_node")
    return PciDevice(
        address=address,
        ancestry=tuple(step for step in real.split("/") if _STEP.fullmatch(step)),
        # The kernel says -1 where the firmware does not tell.
        numa_node=numa if numa is not None and numa >= 0 else None,
        link=_link(root, address),
    )


def _link(root: Root, address: str) -> LinkState:
    def speed(name: str) -> float:
        found = re.match(r"([0-9.]+) GT/s", root.text(f"{DEVICES}/{address}/{name}"))
        return float(found[1]) if found else 0.0

    def width(name: str) -> int:
        found = root.number(f"{DEVICES}/{address}/{name}")
        # 255 and 0 are what is read of a device that has no such link.
        return found if found is not None and 0 < found <= 32 else 0

    return LinkState(
        speed=speed("current_link_speed"),
        width=width("current_link_width"),
        most_speed=speed("max_link_speed"),
        most_width=width("max_link_width"),
    )


def gpus(root: Root) -> Iterator[FoundGpu]:
    """The GPUs of vendors that training runs on."""
    for address in root.names(DEVICES):
        vendor = root.text(f"{DEVICES}/{address}/vendor")
        kind = root.text(f"{DEVICES}/{address}/class")
        if vendor not in _GPU_VENDORS or not kind.startswith(_DISPLAY_CLASSES):
            continue
        found = device(root, address)
        if found is not None:
            yield FoundGpu(pci=found, vendor=vendor, device=root.text(f"{DEVICES}/{address}/device"))


def address_of(path: str) -> str:
    """The innermost PCI address on a real path under /sys; empty where none is on it."""
    steps = [step for step in path.split("/") if _STEP.fullmatch(step) and not step.startswith("pci")]
    return steps[-1] if steps else ""
