"""Records of a cluster's nodes as one: of each value the least, since all wait for the slowest.

What cannot be one node's is not merged: other GPUs, another number of them. Memory that differs in size is
merged to the least only where that is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ziplan.bench import names
from ziplan.bench.measurement import Measured, Waived
from ziplan.bench.profile import comment, profile_text
from ziplan.bench.record import SCHEMA, Record, load
from ziplan.bench.topology import FoundFolder
from ziplan.errors import BadInput
from ziplan.files import read
from ziplan.units import show

STRAGGLES = 0.9
"""A node below this share of the middle of all nodes is named as a straggler."""

SAME_SIZE = 0.02
"""Sizes of memory within this share of each other are one: kernels keep back more or less of it."""

MOST_TOLD = 16
"""Missing ranks that are named."""


class NodeRecord(NamedTuple):
    """A node's record and the file that it came from."""

    path: Path
    record: Record

    @property
    def host(self) -> str:
        """The node's name; the file's where the record names none."""
        return self.record.topology.host or self.path.name


class Spread(NamedTuple):
    """One measurement over the nodes that have it, slowest first."""

    values: tuple[tuple[str, Measured], ...]

    @property
    def least(self) -> Measured:
        """The slowest node's."""
        return self.values[0][1]

    @property
    def slowest(self) -> str:
        """The slowest node."""
        return self.values[0][0]

    @property
    def middle(self) -> float:
        """The median over nodes."""
        return median(each.median for _, each in self.values)

    @property
    def most(self) -> float:
        """The fastest node's."""
        return self.values[-1][1].median

    @property
    def straggles(self) -> bool:
        """Whether the slowest node is far below the middle."""
        return self.least.median < STRAGGLES * self.middle


class Merged(NamedTuple):
    """The nodes as one: the record that stands for each of them, the spread of its values, what is odd."""

    nodes: tuple[NodeRecord, ...]
    record: Record
    spreads: dict[str, Spread]
    remarks: tuple[str, ...]


def load_nodes(paths: Sequence[Path]) -> list[NodeRecord]:
    """The records of files; of a machine file the one beside it."""
    return [NodeRecord(path, load(_record_beside(path))) for path in paths]


def _record_beside(path: Path) -> Path:
    """The record that a file is, or that was written beside the machine file that it is."""
    data = read(path).data
    if isinstance(data, dict) and data.get("schema") == SCHEMA:
        return path
    beside = path.with_name(f"{path.name}.bench.json")
    if beside.is_file():
        return beside
    raise BadInput.of(
        f"is no record of a run ({SCHEMA}), and {beside.name} is not beside it",
        file=str(path),
        help="merge what `ziplan bench -o FILE` wrote as FILE.bench.json on each node",
    )


def merged(nodes: Sequence[NodeRecord], unequal: bool = False) -> Merged:
    """The nodes as one; BadInput where they are not nodes of one kind, or one is given twice."""
    _each_once(nodes)
    _one_kind(nodes, unequal)
    found = _spreads(nodes)
    first, count = nodes[0].record, len(nodes)
    record = first.model_copy(
        update={
            "source": "" if not any(each.record.source for each in nodes) else _sources(nodes),
            "started": min(each.record.started for each in nodes),
            "complete": all(each.record.complete for each in nodes),
            "quick": any(each.record.quick for each in nodes),
            "topology": _topology(nodes),
            "measured": tuple(_least(each, count) for each in found.values()),
            "waived": tuple(_waived(nodes, set(found))),
            "contention": tuple(dict.fromkeys(c for each in nodes for c in each.record.contention)),
        }
    )
    return Merged(tuple(nodes), record, found, tuple(_remarks(nodes, found)))


def _spreads(nodes: Sequence[NodeRecord]) -> dict[str, Spread]:
    """Every measurement over the nodes that have it."""
    found: dict[str, list[tuple[str, Measured]]] = {}
    for each in nodes:
        for name, one in each.record.by_name().items():
            found.setdefault(name, []).append((each.host, one))
    return {name: Spread(tuple(sorted(have, key=_median))) for name, have in found.items()}


def _median(one: tuple[str, Measured]) -> float:
    return one[1].median


def _least(spread: Spread, count: int) -> Measured:
    """The slowest node's measurement, told as such."""
    least, of = spread.least, len(spread.values)
    among = f"{of} nodes" if of == count else f"{of} of {count} nodes"
    ends = f"middle {show(spread.middle, least.unit)}, most {show(spread.most, least.unit)}"
    method = f"{least.method}; the least of {among}: {spread.slowest} ({ends})"
    return least.model_copy(update={"method": method})


def _sources(nodes: Sequence[NodeRecord]) -> str:
    return ", ".join(dict.fromkeys(each.record.source or "ziplan bench" for each in nodes))


def _waived(nodes: Sequence[NodeRecord], measured: set[str]) -> Iterator[Waived]:
    """What no node measured."""
    known = set(measured)
    for each in nodes:
        for waived in each.record.waived:
            if waived.name not in known:
                known.add(waived.name)
                yield waived.model_copy(update={"reason": f"{each.host}: {waived.reason}"})


def _each_once(nodes: Sequence[NodeRecord]) -> None:
    seen: dict[str, NodeRecord] = {}
    for each in nodes:
        other = seen.setdefault(each.host, each)
        if other is not each:
            message = f"{other.path} and {each.path} are both of {each.host}"
            raise BadInput.of(message, help="give one file a node, or --host where it was imported")


def _one_kind(nodes: Sequence[NodeRecord], unequal: bool) -> None:
    """Refuse nodes that one machine file cannot stand for."""
    _alike(nodes, "GPU", lambda each: ", ".join(_gpus(each.record)) or "none", "plan each kind by itself")
    _alike(nodes, "number of GPUs", _gpu_count, "plan each kind by itself")
    if unequal:
        return
    for what, size in (("memory", _memory), ("GPU memory", _gpu_memory)):
        sizes = {each.host: size(each.record) for each in nodes if size(each.record)}
        low, high = (min(sizes.values(), default=0.0), max(sizes.values(), default=0.0))
        if high - low > SAME_SIZE * high:
            told = ", ".join(f"{host} {show(found, 'B')}" for host, found in sizes.items())
            raise BadInput.of(f"nodes differ in {what}: {told}", help="--unequal takes the least of each")


def _alike(nodes: Sequence[NodeRecord], what: str, of: Callable[[NodeRecord], str], help: str) -> None:
    kinds: dict[str, list[str]] = {}
    for each in nodes:
        kinds.setdefault(of(each), []).append(each.host)
    if len(kinds) > 1:
        told = "; ".join(f"{kind} on {', '.join(hosts)}" for kind, hosts in kinds.items())
        raise BadInput.of(f"nodes differ in {what}: {told}", help=help)


def _gpus(record: Record) -> list[str]:
    """The GPUs' names, each once."""
    found = [noted.text for noted in record.noted if re.fullmatch(r"gpu\.\d+\.name", noted.name)]
    return list(dict.fromkeys(found))


def _gpu_count(each: NodeRecord) -> str:
    count = each.record.by_name().get(names.GPU_COUNT)
    return f"{count.median:g}" if count else str(len(each.record.topology.gpus) or "none")


def _memory(record: Record) -> float:
    return record.topology.memory_bytes


def _gpu_memory(record: Record) -> float:
    sizes = [one.median for name, one in record.by_name().items() if re.fullmatch(r"gpu\.\d+\.memory", name)]
    return min(sizes, default=0.0)


def _topology(nodes: Sequence[NodeRecord]) -> Any:
    """The first node's, with the least of what each has."""
    every = [each.record.topology for each in nodes]

    def least(field: str) -> Any:
        found = [getattr(each, field) for each in every if getattr(each, field)]
        return min(found, default=getattr(every[0], field))

    fields = ("memory_bytes", "cores", "memory_limit_bytes", "memlock_limit_bytes", "cpu_limit")
    known = [field for field in fields if field in type(every[0]).model_fields]
    folders = tuple(_folder(nodes, folder) for folder in every[0].folders)
    host = f"{len(nodes)} nodes ({nodes[0].host} to {nodes[-1].host})" if len(nodes) > 1 else nodes[0].host
    changes = {**{field: least(field) for field in known}, "folders": folders, "host": host}
    return every[0].model_copy(update=changes)


def _folder(nodes: Sequence[NodeRecord], folder: FoundFolder) -> FoundFolder:
    """A folder with the least that is free on its like on any node."""
    same = [f for each in nodes for f in each.record.topology.folders if f.label == folder.label]
    return folder.model_copy(update={"free_bytes": min(each.free_bytes for each in same)})


def _remarks(nodes: Sequence[NodeRecord], found: dict[str, Spread]) -> Iterator[str]:
    """What a reader should know: stragglers, nodes that are not there, values that some lack."""
    count = len(nodes)
    for name, spread in found.items():
        if spread.straggles:
            share = spread.least.median / spread.middle
            yield f"{spread.slowest} straggles: {name} is {share:.0%} of the middle node's"
        if len(spread.values) < count:
            have = {host for host, _ in spread.values}
            lack = ", ".join(each.host for each in nodes if each.host not in have)
            yield f"{name}: not measured on {lack}"
    sizes = {each.record.environment.world_size for each in nodes} - {None}
    if len(sizes) == 1 and (size := sizes.pop()) and size > count:
        ranks = {each.record.environment.rank for each in nodes}
        # A record may claim any size: no more is looked at than is told.
        absent = (str(rank) for rank in range(size) if rank not in ranks)
        missing = ", ".join(islice(absent, MOST_TOLD)) + (", ..." if size - count > MOST_TOLD else "")
        yield f"{size} nodes were started and {count} files are given: ranks {missing} are missing"
    for each in nodes:
        if not each.record.complete:
            yield f"{each.host}: its run was ended before it was over"


def cluster_text(found: Merged, extends: str = "") -> str:
    """The cluster file: the machine that stands for each node, and how many there are."""
    lines = profile_text(found.record, extends).splitlines()
    head = [each for each in lines if each.startswith("#")]
    body = [f"  {each}" for each in lines if not each.startswith("#")]
    told = "# Nodes merged by `ziplan bench merge`: of each value the least, as all wait for the slowest."
    remarks = [comment(remark) for remark in found.remarks]
    count = ["schema: ziplan.cluster/1", f"nodes: {len(found.nodes)}", "machine:"]
    return "\n".join((told, *remarks, *head, *count, *body)) + "\n"
