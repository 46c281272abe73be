"""What was measured against what data sheets and links allow: impossible, suspicious, or as it should be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from ziplan.bench import names
from ziplan.bench.matching import drive_part, gpu_part, stated, words
from ziplan.bench.measurement import Measured
from ziplan.bench.record import Record
from ziplan.bench.topology import FoundDrive, FoundFolder, LinkState
from ziplan.hardware.node import Node
from ziplan.hardware.rates import ADAM_FETCHED
from ziplan.hardware.shipped import shipped

LOW = 0.5
"""Below this share of its data sheet something is wrong with the machine, or with the measurement."""
HIGH = 1.1
"""Above this share of its data sheet what was measured was something else (a cache), or on another part."""
ROUNDING = 1.02
"""Over what a link or a chip can do at all: what rounding and clocks may make up."""
CLIFF = 0.8
"""A sustained write below this share of the first seconds: a cache took those."""

SHARED = 0.9
"""Together below this share of the sum of each alone: they share something."""

COHERENT = frozenset(("gh200", "gb200", "gb300"))
"""GPUs that reach their host by NVLink-C2C and not by PCIe."""

Judged = Literal["as expected", "unstable", "suspicious", "impossible", "no data sheet"]


class Judgement(NamedTuple):
    """A measurement, what it is held against (`reference`, from `source`) and what comes of it."""

    measured: Measured
    reference: float | None
    source: str
    verdict: Judged
    why: str = ""


class Reference(NamedTuple):
    """A number to hold a measurement against; `hard` where nothing can be above it."""

    value: float
    source: str
    hard: bool


def judgements(record: Record, base: Node | None = None) -> list[Judgement]:
    """Every measurement judged, in the order in which they came; `base` is the machine that is extended."""
    by_name = record.by_name()
    return [_judged(record, measured, by_name, base) for measured in by_name.values()]


def _judged(record: Record, measured: Measured, by_name: dict[str, Measured], base: Node | None) -> Judgement:
    references = list(_references(record, measured.name, by_name))
    if base is not None:
        references += _of_base(base, measured.name, len(references) > 0)
    soft = next((each for each in references if not each.hard), None)
    shown = soft or next(iter(references), None)
    value, source = (shown.value, shown.source) if shown else (None, "")
    for each in references:
        if each.hard and measured.median > ROUNDING * each.value:
            return Judgement(measured, each.value, each.source, "impossible", "more than can be")
    if soft is not None and measured.median > HIGH * soft.value:
        return Judgement(
            measured, value, source, "suspicious", "above its data sheet: a cache, or another part"
        )
    if soft is not None and measured.median < LOW * soft.value:
        return Judgement(measured, value, source, "suspicious", f"under {LOW:.0%} of its data sheet")
    if why := _fallen(measured, by_name):
        return Judgement(measured, value, source, "suspicious", why)
    # The first seconds of a write are meant to differ among themselves.
    if measured.unstable and not measured.name.endswith(".write_burst_bandwidth"):
        return Judgement(measured, value, source, "unstable")
    return Judgement(measured, value, source, "as expected" if soft else "no data sheet")


def _fallen(measured: Measured, by_name: dict[str, Measured]) -> str:
    """That a sustained write is slower than its first seconds were; empty where it is not."""
    burst = by_name.get(measured.name.replace(".write_bandwidth", ".write_burst_bandwidth"))
    if burst is not None and burst is not measured and measured.median < CLIFF * burst.median:
        return f"falls to {measured.median / burst.median:.0%} of the first seconds: a cache had taken those"
    return ""


def _references(record: Record, name: str, by_name: dict[str, Measured]) -> Iterator[Reference]:
    """What a measurement of a name can be held against."""
    if match := re.fullmatch(r"gpu\.(\d+)\.(.+)", name):
        yield from _of_gpu(record, int(match[1]), match[2], by_name)
    for folder in record.topology.folders:
        for kind in ("read", "write"):
            if name == names.storage(folder.label, f"{kind}_bandwidth"):
                yield from _of_folder(record, folder, kind)


def _gpu_data(record: Record, index: int, by_name: dict[str, Measured]) -> dict[str, Any] | None:
    """The shipped profile of a GPU of the node; None where none is known to be it."""
    memory = by_name.get(names.gpu(index, "memory"))
    part = gpu_part(record.text(names.gpu(index, "name")), memory.median if memory else None)
    document = shipped("gpus", part) if part else None
    return document.data if document is not None else None


def _of_base(base: Node, name: str, known: bool) -> Iterator[Reference]:
    """What the machine that is extended says, where nothing nearer is `known` of the part."""
    source = f"what {base.name} has"
    rates = dict(_rates_of(base))
    # As a value of that machine, a product faster than its GPU's peak would contradict it.
    if (match := re.fullmatch(r"gpu\.\d+\.matmul\.(\w+)", name)) and not known:
        peak = rates.get(f"matmul.{match[1]}")
        if peak is not None:
            yield Reference(peak, f"peak rate of {base.gpu.name}", hard=True)
            yield Reference(peak, f"peak rate of {base.gpu.name}", hard=False)
        return
    kind = re.sub(r"^gpu\.(\d+|all)\.(both\.|beside_all\.)?", "gpu.", name)
    if not known and kind in rates and not name.startswith("gpu.all."):
        yield Reference(rates[kind], source, hard=False)


def _rates_of(base: Node) -> Iterator[tuple[str, float]]:
    """The rates of a machine by the names under which they are measured."""
    dram = base.tiers[base.tier_of("dram") or base.gpu_tier]
    link = base.links.get(dram.via[0]) if dram.medium == "dram" and dram.via else None
    found: dict[str, float | None] = {
        names.DRAM_COPY: dram.read_bandwidth if dram.medium == "dram" else None,
        names.ADAM_RATE: base.cpu.adam_params_per_s,
        names.CORE_ADAM_RATE: base.cpu.core_bandwidth and base.cpu.core_bandwidth / ADAM_FETCHED,
        "gpu.host_to_device": link.bandwidth if link else None,
        "gpu.device_to_host": link.bandwidth if link else None,
        "gpu.hbm.copy_bandwidth": base.gpu.memory.bandwidth,
        **{f"matmul.{precision}": rate for precision, rate in base.gpu.peak_flops_per_s.items()},
    }
    for name, rate in found.items():
        if rate is not None:
            yield name, rate


def _of_gpu(record: Record, index: int, quantity: str, by_name: dict[str, Measured]) -> Iterator[Reference]:
    by_pcie = not words(record.text(names.gpu(index, "name"))) & COHERENT
    if quantity.endswith(("host_to_device", "device_to_host")) and by_pcie:
        yield from _of_slot(record)
    data = _gpu_data(record, index, by_name)
    if data is None:
        return
    source = f"data sheet of {data['name']}"
    if quantity.startswith("hbm."):
        rate = stated(data, "B/s", "memory", "bandwidth")
        if rate is not None:
            yield Reference(rate, source, hard=True)
            yield Reference(rate, source, hard=False)
    if quantity.startswith("matmul."):
        peak = stated(data, "FLOP/s", "peak_flops_per_s", quantity.removeprefix("matmul."))
        if peak is not None:
            yield Reference(peak, f"peak rate of {data['name']}", hard=True)
            yield Reference(peak, f"peak rate of {data['name']}", hard=False)


def _of_slot(record: Record) -> Iterator[Reference]:
    """What a GPU's slot carries. Soft: which of a node's slots is this GPU's, CUDA's index does not tell."""
    rates = [slot_rate(gpu.pci.link) for gpu in record.topology.gpus]
    if rates and min(rates) > 0:
        link = record.topology.gpus[0].pci.link
        yield Reference(
            min(rates), f"PCIe at {link.most_speed:g} GT/s, x{link.width or link.most_width}", False
        )


def slot_rate(link: LinkState) -> float:
    """B/s that a PCIe link carries before packets' headers, at its top speed and the width that it has.

    Up to 5 GT/s 8 of 10 bits are data, from 8 GT/s on 128 of 130 (PCI Express Base Specification).
    """
    share = 8 / 10 if link.most_speed <= 5 else 128 / 130
    return link.most_speed * 1e9 * share / 8 * (link.width or link.most_width)


def _of_folder(record: Record, folder: FoundFolder, kind: str) -> Iterator[Reference]:
    """What the drives below a folder can do together, where all of them are known."""
    own = [drive for drive in record.topology.drives if drive.name in folder.drives]
    doubled = any(re.search(r"raid(1|4|5|6|10)\b", step) for step in folder.through)
    # What is written more than once, or with its parity, is not the sum of its drives.
    if not own or (doubled and kind == "write"):
        return
    slots = [slot_rate(drive.pci.link) if drive.pci is not None else 0.0 for drive in own]
    if min(slots) > 0:
        yield Reference(sum(slots), "PCIe links of its drives", hard=True)
    rates = [_drive_rate(drive, kind) for drive in own]
    if all(rate is not None for rate in rates):
        total = sum(rate for rate in rates if rate is not None)
        yield Reference(
            total, f"data sheet of {', '.join(sorted({drive.model for drive in own}))}", hard=False
        )


def _drive_rate(drive: FoundDrive, kind: str) -> float | None:
    part = drive_part(drive.model)
    document = shipped("drives", part) if part else None
    return stated(document.data, "B/s", f"{kind}_bandwidth") if document is not None else None


def shares_measured(record: Record) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """What was slower together than alone: the way that is shared, its members, and how much."""
    by_name = record.by_name()
    gpus = [name for name in by_name if re.fullmatch(r"gpu\.\d+\.host_to_device", name)]
    disks = [name for name in by_name if re.fullmatch(r"storage\.(?!all\.)[^.]+\.read_bandwidth", name)]
    for shared, alone, all_name in (
        ("host links of all GPUs", gpus, names.gpu("all", "host_to_device")),
        ("drives", disks, names.storage("all", "read_bandwidth")),
    ):
        both = by_name.get(all_name)
        total = sum(by_name[name].median for name in alone)
        if both is not None and len(alone) > 1 and both.median < SHARED * total:
            members = tuple(name.rpartition(".")[0] for name in alone)
            yield shared, members, f"at once they reach {both.median / total:.0%} of what they do one by one"
