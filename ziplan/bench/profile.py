"""The machine file of a record: measured values with their spread, the rest from what it extends."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ziplan.bench import names
from ziplan.bench.comparison import judgements, shares_measured
from ziplan.bench.matching import drive_part, gpu_part, peak_rates
from ziplan.bench.measurement import Measured
from ziplan.bench.record import Contention, Record
from ziplan.bench.storage.plan import apart
from ziplan.hardware.node import Node
from ziplan.hardware.profiles import load_node
from ziplan.hardware.rates import ADAM_FETCHED
from ziplan.units import show

DIGITS = 6
"""Significant digits of a value in a file: more than any measurement has."""
HOST_LINK, FABRIC, NETWORK = "host", "fabric", "network"
FASTER = 1.2
"""GPUs that exchange this much faster than over their host links have a fabric of their own."""

Tree = dict[str, Any]


class Missing(NamedTuple):
    """What a profile does not say, and why."""

    name: str
    reason: str


class Profile:
    """The parts of a machine file, made from a record over the machine that it extends, if any."""

    def __init__(self, record: Record, extends: str = "") -> None:
        self.record = record
        self.extends = extends
        self.base: Node | None = load_node(extends)[0] if extends else None
        judged = judgements(record, self.base)
        impossible = {one.measured.name: one for one in judged if one.verdict == "impossible"}
        self.measured = {name: one for name, one in record.by_name().items() if name not in impossible}
        self.missing = [Missing(one.name, one.reason) for one in record.waived]
        for name in [name for name, one in self.measured.items() if not one.median > 0]:
            self.missing.append(Missing(name, f"{self.measured.pop(name).median:g} was measured: not used"))
        for name, one in impossible.items():
            told = show(one.measured.median, one.measured.unit)
            self.missing.append(Missing(name, f"{told} is more than can be ({one.source}): not used"))

    def tree(self) -> Tree:
        """The whole file as data, in the order in which it is written."""
        record = self.record
        host = record.topology.host or "this node"
        contention = [
            *record.contention,
            *(
                Contention(shared=shared, members=members, evidence="measured", note=note)
                for shared, members, note in shares_measured(record)
            ),
        ]
        parts: Tree = {
            "schema": "ziplan.machine/1",
            # The path of a file would be taken from where this one lies.
            "extends": os.path.abspath(self.extends) if os.path.isfile(self.extends) else self.extends,
            "name": f"{host}, measured" + (f" ({self.base.name} otherwise)" if self.base else ""),
            "gpu": self._gpu(),
            "gpus_per_node": self._leaf(names.GPU_COUNT),
            "cpu": self._cpu(),
            "tiers": self._tiers(),
            "links": self._links(),
        }
        for role, link in ((FABRIC, self._fabric_name()), (NETWORK, self._network_name())):
            if link and self.base is None:
                parts[role] = link
        parts |= self._limits()
        parts["not_measured"] = [{"name": one.name, "reason": one.reason} for one in self.missing]
        parts["environment"] = self._environment()
        parts["contention"] = [each.model_dump(mode="json") for each in contention]
        return {key: value for key, value in parts.items() if value not in (None, "", {}, [])}

    def _leaf(self, name: str) -> Tree | None:
        """A measured value as a file states it; None where it was not measured."""
        measured = self.measured.get(name)
        return None if measured is None else self._stated(measured)

    def _stated(self, measured: Measured, note: str = "") -> Tree:
        def text(value: float) -> Any:
            if measured.unit == "B":
                return size_text(value)
            return int(value) if measured.unit == "1" else show(value, measured.unit, DIGITS)

        source = f"{self.record.source or 'ziplan bench'} on {self.record.topology.host or 'this node'}"
        leaf: Tree = {"value": text(measured.median), "kind": measured.kind, "source": f"{source}{note}"}
        if measured.n > 1:
            leaf |= {"iqr": text(measured.iqr), "n": measured.n}
            leaf |= {"min": text(measured.minimum), "max": text(measured.maximum)}
        if measured.unstable:
            leaf["unstable"] = True
        return {**leaf, "method": measured.method, "date": measured.when[:10]}

    def _told(self, value: Any, source: str) -> Tree:
        """A value that the system tells."""
        return {"value": value, "kind": "measured", "source": source, "date": self.record.started[:10]}

    def _over_gpus(self, quantity: str) -> Measured | None:
        """The slowest GPU's: all wait for it."""
        found = [
            self.measured[name] for name in self.measured if re.fullmatch(rf"gpu\.\d+\.{quantity}", name)
        ]
        return min(found, key=lambda one: one.median, default=None)

    def _gpu(self) -> Tree | None:
        text = self.record.text(names.gpu(0, "name"))
        memory = self._over_gpus("memory")
        if not text:
            return None
        part = gpu_part(text, memory.median if memory else None)
        if not part and self.base is None:
            reason = f"no shipped GPU is known to be {text!r}: add `extends: MACHINE`, or its peak rates"
            self.missing.append(Missing("gpu.peak_flops_per_s", reason))
        # What it extends has a GPU: the same one, or another that takes its place.
        tree: Tree = {"part": part} if part else {"name": text}
        bandwidth = self._over_gpus(r"hbm\.copy_bandwidth")
        inner = {
            "capacity": self._stated(memory) if memory else None,
            "bandwidth": self._stated(bandwidth, ", copied") if bandwidth else None,
        }
        if any(inner.values()):
            tree["memory"] = {key: value for key, value in inner.items() if value}
        peaks = peak_rates(part) if part else self.base.gpu.peak_flops_per_s if self.base else None
        rates = dict(self._products(peaks))
        return {**tree, "matmul_flops_per_s": rates} if rates else tree

    def _products(self, peaks: Mapping[Any, float] | None) -> Iterator[tuple[str, Tree]]:
        """Matrix products by precision; a machine has none faster than its peak, nor without one.

        `peaks` is None where nobody knows the GPU. Hardly a data sheet says what fp32 without TF32 reaches.
        """
        for precision in ("fp32", "fp16", "bf16"):
            found = self._over_gpus(rf"matmul\.{precision}")
            if found is None:
                continue
            peak = (
                peaks.get(precision) if peaks is not None else float("inf") if precision != "fp32" else None
            )
            if peak is None:
                reason = f"{show(found.median, found.unit)}, but no data sheet has its peak rate: not used"
                self.missing.append(Missing(found.name, reason))
            else:
                yield precision, self._stated(found.model_copy(update={"median": min(peak, found.median)}))

    def _cpu(self) -> Tree:
        topology = self.record.topology
        cpu: Tree = {"name": topology.cpu} if topology.cpu else {}
        if topology.memory_bytes:  # the node was looked at, and not only other programs' numbers
            cpu["cores"] = self._told(topology.cores, "the kernel: cores that a process here may use")
        if (rate := self._leaf(names.ADAM_RATE)) is not None:
            cpu["adam_params_per_s"] = rate
        if (one := self.measured.get(names.CORE_ADAM_RATE)) is not None:
            cpu["core_bandwidth"] = self._stated(_fetched(one), f", at {ADAM_FETCHED:g} bytes a parameter")
        return cpu

    def _limits(self) -> Tree:
        topology = self.record.topology
        found: Tree = {}
        for key, limit, source in (
            ("memory_limit", topology.memory_limit_bytes, "control group of the process that measured"),
            ("memlock_limit", topology.memlock_limit_bytes, "ulimit -l where it was measured"),
        ):
            if limit is not None:
                found[key] = self._told(size_text(limit), source)
        return found

    def _tiers(self) -> Tree:
        via = [HOST_LINK] if self.base is None and self._host_link() is not None else None
        tiers: Tree = {}
        if self.base is None and self.record.text(names.gpu(0, "name")):
            tiers["hbm"] = {"medium": "hbm", "scope": "gpu"}
        if memory := self._dram(via):
            tiers[self._tier("dram")] = memory
        drives = self._drives(via)
        if drives is not None:
            tiers[self._tier("nvme")] = drives
        return tiers

    def _tier(self, medium: Any) -> str:
        """The name of a tier: that of the machine it extends, or its medium's."""
        return (self.base.tier_of(medium) if self.base else None) or str(medium)

    def _new(self, medium: str, via: list[str] | None) -> Tree:
        """The beginning of a tier that no machine below states."""
        if self.base is not None and self.base.tier_of(medium):  # type: ignore[arg-type]
            return {}
        own = via or ([HOST_LINK] if self.base is not None and HOST_LINK in self.base.links else [])
        return {"medium": medium, "scope": "node"} | ({"via": own} if own else {})

    def _dram(self, via: list[str] | None) -> Tree:
        tier = self._new("dram", via)
        if self.record.topology.memory_bytes:
            size = size_text(self.record.topology.memory_bytes)
            tier["capacity"] = self._told(size, "the kernel (MemTotal)")
        if (copied := self._leaf(names.DRAM_COPY)) is not None:
            # What is read and what is written share the channels: both at once reach this.
            tier |= {"read_bandwidth": copied, "write_bandwidth": copied}
        return tier

    def _drives(self, via: list[str] | None) -> Tree | None:
        every = [folder for folder in self.record.topology.folders if folder.kind == "drive"]
        tier_name = f"tiers.{self._tier('nvme')}"
        for folder in self.record.topology.folders:
            if folder.kind == "network":
                what = f"on a network file system ({folder.filesystem}), no drive of this node"
                self.missing.append(Missing(tier_name, f"{folder.path} is {what}"))
            if folder.kind == "unknown":
                what = f"on {folder.filesystem or 'no known file system'}, and its drives are not seen"
                self.missing.append(Missing(tier_name, f"{folder.path} is {what} from here"))
        folders = [folder for folder in apart(every) if self._of_folder(folder.label, "read") is not None]
        label = "all" if len(folders) > 1 else folders[0].label if folders else ""
        read = self._of_folder(label, "read")
        if read is None:
            return None
        drives = sorted({drive for folder in folders for drive in folder.drives})
        free = sum(folder.free_bytes for folder in folders)
        paths = ", ".join(folder.path for folder in folders)
        tier = self._new("nvme", via)
        if free > 0:
            tier["capacity"] = self._told(size_text(free), f"free on {paths} when it was measured")
        tier["read_bandwidth"] = self._stated(read)
        if (write := self._of_folder(label, "write")) is not None:
            tier["write_bandwidth"] = self._stated(write, ", sustained")
        parts = {drive_part(each.model) for each in self.record.topology.drives if each.name in drives}
        if len(parts) == 1 and (part := parts.pop()):
            tier["drive"] = part
        tier["drive_count"] = self._told(len(drives), f"drives below {paths}: {', '.join(drives)}")
        return tier

    def _of_folder(self, label: str, kind: str) -> Measured | None:
        return self.measured.get(names.storage(label, f"{kind}_bandwidth"))

    def _host_link(self) -> Measured | None:
        """The slowest of all GPUs' links while all are busy, or of the only one's."""
        ways = "(host_to_device|device_to_host)"
        return self._over_gpus(rf"beside_all\.{ways}") or self._over_gpus(ways)

    def _links(self) -> Tree:
        links: Tree = {}
        host = self._host_link()
        if host is not None:
            busy = ", the slowest with all at once" if ".beside_all." in host.name else ""
            links[HOST_LINK] = {
                "bandwidth": self._stated(host, busy),
                "shared_by": self._told(1, "each GPU's own part of what all reach together"),
            }
        for link, name in ((self._fabric_name(), "gpu.all.to_next"), (self._network_name(), names.NETWORK)):
            if link and (leaf := self._leaf(name)) is not None:
                links[link] = {"bandwidth": leaf}
        return links

    def _fabric_name(self) -> str:
        """The link between GPUs, where it is more than their ways over the host."""
        between, host = self.measured.get("gpu.all.to_next"), self._host_link()
        if between is None:
            return ""
        if self.base is not None:
            return self.base.fabric or ""
        return FABRIC if host is None or between.median > FASTER * host.median else ""

    def _network_name(self) -> str:
        if names.NETWORK not in self.measured:
            return ""
        return (self.base.network if self.base is not None else NETWORK) or ""

    def _environment(self) -> Tree:
        found = self.record.environment.model_dump(mode="json", exclude_defaults=True)
        return {"host": self.record.topology.host, "ziplan": self.record.ziplan, **found}


def size_text(size: float) -> str:
    """A size to the last byte: rounded up, a plan could take what is not there."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= factor and size % factor == 0:
            return f"{size / factor:.0f} {unit}"
    return f"{size:.0f} B"


def profile_text(record: Record, extends: str = "") -> str:
    """The machine file, with what it is in its first lines."""
    tree = Profile(record, extends).tree()
    head = [
        comment(
            f"What {record.source or 'ziplan bench'} found on {record.topology.host or 'this node'}, "
            f"{record.started or 'at an unknown time'}."
        ),
        "# A value is the median of n samples; iqr is how far the quartiles lie apart.",
    ]
    if not record.complete:
        head.append("# The run was ended before it was over: what it had not come to is not here.")
    if "gpu" not in tree and not extends:
        head.append("# No GPU was measured: add `extends: MACHINE` to plan with it.")
    return "\n".join((*head, *_lines(tree))) + "\n"


def comment(text: str) -> str:
    """A line that YAML passes over, whatever the text holds."""
    return "# " + "".join(each if each.isprintable() else "?" for each in text)


def _lines(value: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """A mapping as YAML; a measured value on one line."""
    for key, part in value.items():
        if isinstance(part, Mapping) and "value" not in part:
            yield f"{indent}{_scalar(key)}:"
            yield from _lines(part, f"{indent}  ")
        elif isinstance(part, list) and part and isinstance(part[0], Mapping):
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {_flow(each)}" for each in part)
        else:
            yield f"{indent}{_scalar(key)}: {_flow(part)}"


def _flow(part: Any) -> str:
    if isinstance(part, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(value)}" for key, value in part.items()) + "}"
    if isinstance(part, (list, tuple)):
        return "[" + _joined(part) + "]"
    return _scalar(part)


def _joined(parts: Iterable[Any]) -> str:
    return ", ".join(_flow(each) for each in parts)


def _scalar(value: Any) -> str:
    """A value as YAML takes it: plain where nothing could take it for anything else."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", value) and value not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=True)


_WORDS = ("true", "false", "null", "True", "False", "Null", "TRUE", "FALSE", "NULL")


def _fetched(core: Measured) -> Measured:
    """What a core reads from memory, from the parameters that it updates."""
    ends = ("median", "iqr", "minimum", "maximum")
    bytes_per_s = {end: ADAM_FETCHED * getattr(core, end) for end in ends}
    return core.model_copy(update={"name": "", "unit": "B/s", "kind": "derived", **bytes_per_s})
