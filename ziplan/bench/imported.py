"""Numbers that a site has already: the JSON of nvbandwidth, fio and nccl-tests as a record of a node.

Each importer takes what its program measured under the names of `ziplan.bench.names`, and says of the rest
why it was left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from ziplan.bench import imported_fio, imported_nccl, imported_nvbandwidth, names
from ziplan.bench.imports import Imported
from ziplan.bench.measurement import Measured, Result, Waived
from ziplan.bench.record import Record, with_results
from ziplan.bench.topology import Topology
from ziplan.errors import BadInput
from ziplan.files import Document, read, read_text


class Form(NamedTuple):
    """A program's JSON: how it is told, and who reads it."""

    program: str
    is_it: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Document, str], Imported]


FORMS = (
    Form("nvbandwidth", imported_nvbandwidth.is_it, imported_nvbandwidth.imported),
    Form("fio", imported_fio.is_it, imported_fio.imported),
    Form("nccl-tests", imported_nccl.is_it, imported_nccl.imported),
)


def record_of(paths: Iterable[Path], host: str = "") -> Record:
    """One node's record from the files of several programs; BadInput where they are of several nodes."""
    found = [(path, imported(path)) for path in paths]
    _one_each(found)
    hosts = {each.host: path for path, each in found if each.host}
    if len(hosts) > 1 and not host:
        told = ", ".join(f"{path} of {name}" for name, path in hosts.items())
        raise BadInput.of(f"files of several nodes: {told}", help="import each node's by itself, then merge")
    folders = {each.label: each for _, one in found for each in one.folders}
    drives = {each.name: each for _, one in found for each in one.drives}
    record = Record(
        source=", ".join(dict.fromkeys(each.program for _, each in found)),
        started=min((each.when for _, each in found), default=""),
        complete=True,
        topology=Topology(
            host=host or next(iter(hosts), ""), folders=tuple(folders.values()), drives=tuple(drives.values())
        ),
    )
    for _, each in found:
        record = with_results(record, each.results)
    record = with_results(record, _alone(record))
    if not set(record.by_name()) - {names.GPU_COUNT}:
        reasons = "; ".join(f"{each.name}: {each.reason}" for each in record.waived) or "they hold no result"
        files = ", ".join(str(path) for path, _ in found)
        raise BadInput.of(f"nothing in it can be used: {reasons}", file=files)
    return record


def _alone(record: Record) -> Iterator[Result]:
    """Said where several drives were measured one by one: what they give together, nobody knows then."""
    if len(record.topology.folders) > 1:
        reason = "each drive was measured alone: run fio on all of them at once, in one group"
        for quantity in ("read_bandwidth", "write_bandwidth"):
            yield Waived(name=names.storage("all", quantity), reason=reason)


def _one_each(found: Iterable[tuple[Path, Imported]]) -> None:
    """Refuse two files that measured the same thing: which one counts, nobody said."""
    known: dict[str, Path] = {}
    for path, each in found:
        for result in each.results:
            if not isinstance(result, Measured) or result.name == names.GPU_COUNT:
                continue
            if known.setdefault(result.name, path) != path:
                both = f"{known[result.name]} and {path} both have {result.name}"
                raise BadInput.of(both, help="give one of the two")


def imported(path: Path) -> Imported:
    """What a file of a known program holds."""
    document = read(path, parse=_json_in)
    data = document.data
    form = next((each for each in FORMS if isinstance(data, dict) and each.is_it(data)), None)
    if form is None:
        known = ", ".join(each.program for each in FORMS)
        raise BadInput.of(
            f"is the JSON of none of {known}",
            file=str(path),
            help="nvbandwidth -j, fio --output-format=json, all_gather_perf -J FILE",
        )
    return form.read(document, _written(path))


def _json_in(content: str, name: str) -> Document:
    """The JSON of a program's output, which may have lines of text before it (fio's notes, warnings)."""
    begin = re.search(r"^\{", content, re.MULTILINE)
    before = content[: begin.start()] if begin else ""
    # Blanks in their place: lines and columns of a problem stay those of the file.
    return read_text(re.sub(r"[^\n]", " ", before) + content[len(before) :], name)


def _written(path: Path) -> str:
    """When a file was written, as results carry it."""
    return datetime.fromtimestamp(os.stat(path).st_mtime, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
