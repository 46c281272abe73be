"""nccl-tests' JSON (`all_gather_perf -J FILE`), as https://github.com/NVIDIA/nccl-tests src/util.cu has it.

"args" is the command line, "config" has "devices" ("rank", "hostname", "device", "device_info"), "results" a
record for each size: "size" (bytes), "out_of_place" and "in_place" with "time" (us), "alg_bw", "bus_bw"
(GB/s of 1e9 bytes) and "nwrong".

Bus bandwidth is the rate at which bytes cross the slowest link of a ring (doc/PERFORMANCE.md): between nodes
that is what enters a node, over all its network cards, which is what a machine file calls its network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ziplan.bench import names
from ziplan.bench.imports import GB, Imported, listed, mapping, number, one, text
from ziplan.bench.measurement import Result, Waived
from ziplan.files import Document

RINGS = ("all_gather", "reduce_scatter")
"""Collectives of ZeRO's own, whose bus bandwidth is a link's. A reduction may be done by the network on its
way, and then its bus bandwidth is more than any link carries."""

LARGE = 64 * 2**20
"""Bytes of a collective from which latency no longer counts."""


def is_it(data: Mapping[str, Any]) -> bool:
    """Whether it is nccl-tests'."""
    return isinstance(data.get("results"), list) and "nccl_version" in data


def imported(document: Document, when: str) -> Imported:
    """What one collective test measured: between nodes the network, inside of one the fabric."""
    data = mapping(document.data)
    command = os.path.basename(text(next(iter(listed(data.get("args"))), "")))
    collective = re.sub(r"_perf.*$", "", command)
    program = f"nccl-tests {command}".strip()
    devices = [mapping(each) for each in listed(mapping(data.get("config")).get("devices"))]
    hosts = {text(each.get("hostname")).strip() for each in devices} - {""}
    name = names.NETWORK if len(hosts) > 1 else names.gpu("all", "to_next")
    result = _result(data, name, collective, program, len(hosts), when)
    return Imported(program, when, (result,), hosts.pop() if len(hosts) == 1 else "")


def _result(
    data: Mapping[str, Any], name: str, collective: str, program: str, hosts: int, when: str
) -> Result:
    if collective not in RINGS:
        reason = (
            f"{program}: only {' and '.join(RINGS)} tell a link's rate, not {collective or 'an unknown test'}"
        )
        return Waived(name=name, reason=reason)
    if hosts == 0:
        return Waived(name=name, reason=f"{program}: it does not say on which hosts it ran")
    rows = [mapping(each) for each in listed(data["results"])]
    largest = max(rows, key=lambda row: number(row.get("size")) or 0.0, default={})
    size, body = number(largest.get("size")) or 0.0, mapping(largest.get("out_of_place"))
    rate, wrong = number(body.get("bus_bw")), number(body.get("nwrong"))
    if not rate:
        return Waived(name=name, reason=f"{program}: no out-of-place bus bandwidth of its largest size")
    if wrong:
        return Waived(name=name, reason=f"{program}: {wrong:g} wrong values at its largest size")
    if size < LARGE:
        said = f"its largest size is {size:g} B, latency counts below {LARGE} B"
        return Waived(name=name, reason=f"{program}: {said}")
    over = f"{hosts} nodes" if hosts > 1 else "one node"
    return one(name, "B/s", rate * GB, f"{program} over {over}, bus bandwidth at {size:g} B", when)
