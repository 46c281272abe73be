"""What a machine's own numbers rule out, and what in them looks like a slip of the pen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ziplan.files import Path, nearest
from ziplan.hardware.cluster import Provenance
from ziplan.hardware.node import Node, Tier
from ziplan.units import show

FASTEST_DRIVE = 32e9
"""PCIe 6.0 x4 without any overhead, in B/s: no drive has a faster connection."""
FASTEST_SLOT = 128e9
"""PCIe 6.0 x16 without any overhead, in B/s."""
_NIC_SPEEDS = (10e9, 25e9, 40e9, 50e9, 100e9, 200e9, 400e9, 800e9)


class Contradiction(NamedTuple):
    """Values that cannot all be true, told at the one most likely wrong."""

    path: Path
    message: str
    hint: str = ""


def contradictions(node: Node) -> Iterator[Contradiction]:
    """Everything in a machine that cannot be."""
    if "hbm" not in node.tiers:
        yield Contradiction(("tiers",), "tiers: missing key `hbm`, the GPU's own memory")
    for name, tier in node.tiers.items():
        yield from _tier(node, name, tier)
    for role in ("fabric", "network"):
        link = getattr(node, role)
        if link is not None and link not in node.links:
            hint = nearest(link, node.links) or f"known here: {', '.join(node.links)}"
            yield Contradiction((role,), f"{role}: no link is called `{link}`", hint)
    yield from _rates(node)


def _tier(node: Node, name: str, tier: Tier) -> Iterator[Contradiction]:
    for index, link in enumerate(tier.via):
        if link not in node.links:
            message = f"tiers.{name}.via: no link is called `{link}`"
            yield Contradiction(("tiers", name, "via", index), message, nearest(link, node.links))
    if tier.medium == "hbm" and tier.scope != "gpu":
        yield Contradiction(
            ("tiers", name, "scope"), f"tiers.{name}.scope: a GPU's own memory has scope 'gpu'"
        )
    if tier.drive is None:
        return
    for field in ("read_bandwidth", "write_bandwidth"):
        rate = getattr(tier.drive, field)
        if rate is not None and rate > FASTEST_DRIVE:
            message = f"tiers.{name}.drive.{field}: {show(rate, 'B/s')} is more than PCIe 6.0 x4 carries"
            yield Contradiction(("tiers", name, "drive", field), message)


def _rates(node: Node) -> Iterator[Contradiction]:
    for field in ("sustained_flops_per_s", "matmul_flops_per_s"):
        for precision, rate in getattr(node.gpu, field).items():
            peak = node.gpu.peak_flops_per_s.get(precision)
            path = ("gpu", field, precision)
            if peak is None:
                yield Contradiction(path, f"gpu.{field}.{precision}: the GPU has no {precision} peak rate")
            elif rate > peak:
                above = f"{show(rate, 'FLOP/s')} is more than the peak {show(peak, 'FLOP/s')}"
                yield Contradiction(path, f"gpu.{field}.{precision}: {above}")


def suspicions(node: Node, provenance: Mapping[str, Provenance]) -> Iterator[str]:
    """Values that are possible but look like a wrong unit; only those that the user wrote."""

    def given(path: str) -> bool:
        known = provenance.get(path)
        return known is not None and known.kind == "given"

    for name, link in node.links.items():
        path = f"links.{name}.bandwidth"
        if not given(path):
            continue
        if name == node.network and link.bandwidth in _NIC_SPEEDS:
            rate = link.bandwidth / 1e9
            yield f"{path}: {rate:g} GB/s is {rate * 8:g} Gbit/s; did you mean '{rate:g} Gbit/s'?"
        crossed = any(name in tier.via for tier in node.tiers.values())
        if crossed and link.shared_by == 1 and link.bandwidth > FASTEST_SLOT:
            yield f"{path}: {show(link.bandwidth, 'B/s')} is more than a PCIe 6.0 x16 slot carries"
