"""nvbandwidth's JSON (`nvbandwidth -j`), as its source writes it.

https://github.com/NVIDIA/nvbandwidth, json_output.cpp: "nvbandwidth" holds "testcases", each with "name",
"status" ("Passed", "Waived", ...), "bandwidth_description" and "bandwidth_matrix", whose entries are text in
GB/s of 1e9 bytes or "N/A"; and "GPU Device list", "0: NAME (PCI address): (host)". What a case measures is in
testcases_ce.cpp: host_to_device_memcpy_ce one GPU alone, its column of one row; host_to_all_memcpy_ce each
GPU while all others copy too; the bidirectional ones the stated direction beside the other. The copy engines'
cases are taken: DMA is what a training engine's copies are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ziplan.bench import names
from ziplan.bench.imports import GB, Imported, listed, mapping, number, one, text
from ziplan.bench.measurement import Noted, Result, Waived
from ziplan.errors import BadInput
from ziplan.files import Document

MOST_GPUS = 1024
"""More than any node has: a longer table or list is damaged."""


class Case(NamedTuple):
    """What a test case measures of each GPU, and by which factor its number counts fewer bytes."""

    quantity: str
    factor: float = 1.0
    what: str = ""


CASES = {
    "host_to_device_memcpy_ce": Case("host_to_device"),
    "device_to_host_memcpy_ce": Case("device_to_host"),
    "host_to_device_bidirectional_memcpy_ce": Case("both.host_to_device"),
    "device_to_host_bidirectional_memcpy_ce": Case("both.device_to_host"),
    "host_to_all_memcpy_ce": Case("beside_all.host_to_device"),
    "all_to_host_memcpy_ce": Case("beside_all.device_to_host"),
    # It divides the bytes that are copied by the time; memory reads them and writes them.
    "device_local_copy": Case("hbm.copy_bandwidth", 2.0, "bytes read and written"),
}

_DEVICE = re.compile(r"(\d{1,4}): (.+?)(?: \([0-9A-Fa-f:.]+\))?(?:: \((.*)\))?")


def is_it(data: Mapping[str, Any]) -> bool:
    """Whether it is nvbandwidth's."""
    return isinstance(data.get("nvbandwidth"), dict)


def imported(document: Document, when: str) -> Imported:
    """What nvbandwidth measured."""
    data = mapping(document.data["nvbandwidth"])
    version = text(data.get("version")) or text(data.get("git_version"))
    program = f"nvbandwidth {version}".strip()
    devices = [match for match in map(_device, listed(data.get("GPU Device list"))) if match]
    count = len(devices) or _columns(data)
    if max(count, _columns(data)) > MOST_GPUS:
        raise BadInput.of(f"has more than {MOST_GPUS:,} GPUs, which no node has", file=document.name)
    results: list[Result] = []
    for case in listed(data.get("testcases")):
        results += _results(mapping(case), program, when)
    results += [
        Noted(name=names.gpu(match[1], "name"), text=match[2], method=f"{program}: GPU Device list")
        for match in devices
    ]
    if count:
        results.append(one(names.GPU_COUNT, "1", count, f"{program}: GPUs in its tables", when))
    hosts = {match[3] for match in devices if match[3]} | ({text(data.get("Hostname"))} - {""})
    return Imported(program, when, tuple(results), hosts.pop() if len(hosts) == 1 else "")


def _device(entry: Any) -> re.Match[str] | None:
    return _DEVICE.fullmatch(entry) if isinstance(entry, str) else None


def _columns(data: Mapping[str, Any]) -> int:
    """GPUs by the widest table of a case of one row."""
    rows = (
        listed(mapping(case).get("bandwidth_matrix"))
        for case in listed(data.get("testcases"))
        if mapping(case).get("name") in CASES
    )
    return max((len(listed(row[0])) for row in rows if len(row) == 1), default=0)


def _results(case: Mapping[str, Any], program: str, when: str) -> Iterator[Result]:
    name, status = text(case.get("name")), text(case.get("status"))
    known = CASES.get(name)
    if known is None or not name:
        return
    if status != "Passed":
        reason = f"{program}: {name} ended as {status or 'unknown'}"
        yield Waived(name=names.gpu("all", known.quantity), reason=reason)
        return
    table = listed(case.get("bandwidth_matrix"))
    row = listed(table[0]) if len(table) == 1 else []
    if not row:
        yield Waived(
            name=names.gpu("all", known.quantity), reason=f"{program}: {name} has no table of one row"
        )
    for index, entry in enumerate(row):
        rate = number(entry)
        what = f", {known.what}" if known.what else ""
        if not rate:
            reason = f"{program}: {name} says {text(entry) or 'nothing'} of GPU {index}"
            yield Waived(name=names.gpu(index, known.quantity), reason=reason)
            continue
        method = f"{program} {name}{what}"
        derived = known.factor != 1
        yield one(
            names.gpu(index, known.quantity), "B/s", known.factor * rate * GB, method, when, derived=derived
        )
