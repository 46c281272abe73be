"""fio's JSON (`fio --output-format=json`), as stat.c of https://github.com/axboe/fio writes it.

"jobs" have "jobname", "groupid", "error", "job options" (text: "rw", "direct", "filename", "directory"), for
which "global options" stand where a job does not say, and "read" and "write" with "bw_bytes" (B/s),
"io_bytes" and "runtime" (ms); "disk_util" names the block devices below. Jobs of one group run at once
(https://fio.readthedocs.io/en/latest/fio_doc.html, `stonewall`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from ziplan.bench import names
from ziplan.bench.imports import Imported, listed, mapping, number, one, text
from ziplan.bench.measurement import Measured, Result, Waived
from ziplan.bench.topology import FoundDrive, FoundFolder
from ziplan.files import Document

SHORTEST = 5.0
"""Seconds that a job must run at the least: within fewer, a drive's cache takes what is written."""

_NO_DRIVE = re.compile(r"/dev/(null|zero|full|u?random|shm|ram\d+|zram\d+)(/|$)")
"""Places that are no drive's."""

_NO_ENGINE = ("null", "cpuio")
"""fio's engines that read and write nothing (fio_doc, `ioengine`)."""

_BUILT = re.compile(r"(md|dm-|ram|zram|sr)\d")
"""Devices that lie over others, or hold no data of their own."""


class Job(NamedTuple):
    """One job: which of them run at once, what it reads and writes, where."""

    group: int
    name: str
    options: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def places(self) -> tuple[str, ...]:
        """Files or devices that it works on; a directory where it names no file."""
        files = [part for part in re.split(r"(?<!\\):", self.options.get("filename", "")) if part]
        folder = self.options.get("directory", "")
        if folder:
            return tuple(os.path.join(folder, file) for file in files or [""])
        return tuple(files)

    @property
    def label(self) -> str:
        """What it is called: the device, or the last part of the folder; its own name where it names none."""
        labels = dict.fromkeys(_label(place) or self.name for place in self.places)
        return "+".join(labels) or self.name


def _label(place: str) -> str:
    """A device's name, or that of the folder that a file is in; empty where nothing says which that is."""
    if place.startswith("/dev/"):
        return os.path.basename(place)
    return os.path.basename(os.path.dirname(place)) or ("root" if place.startswith("/") else "")


def is_it(data: Mapping[str, Any]) -> bool:
    """Whether it is fio's."""
    return "fio version" in data and isinstance(data.get("jobs"), list)


def imported(document: Document, when: str) -> Imported:
    """What fio measured: of each folder or device alone, or of all at once."""
    data = mapping(document.data)
    program = text(data.get("fio version")) or "fio"
    stamp = number(data.get("timestamp"))
    if stamp and stamp < 2**33:
        when = datetime.fromtimestamp(stamp, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    shared = _texts(data.get("global options"))
    jobs = [_job(mapping(each), shared) for each in listed(data["jobs"])]
    results: dict[str, Result] = {}
    for group in dict.fromkeys(job.group for job in jobs):
        for found in _of_group([job for job in jobs if job.group == group], program, when):
            _keep(results, found)
    folders, drives = _places(jobs, listed(data.get("disk_util")))
    host = text(data.get("hostname"))
    return Imported(program, when, tuple(results.values()), host, folders, drives)


def _texts(options: Any) -> dict[str, str]:
    return {key: value for key, value in mapping(options).items() if isinstance(value, str)}


def _job(body: Mapping[str, Any], shared: Mapping[str, str]) -> Job:
    options = {**shared, **_texts(body.get("job options"))}
    group = body.get("groupid")
    return Job(group if isinstance(group, int) else 0, text(body.get("jobname")) or "job", options, body)


def _keep(results: dict[str, Result], found: Result) -> None:
    """Of several measurements of a name the fastest: it is what the drive gives when it is asked rightly."""
    known = results.get(found.name)
    slower = isinstance(known, Measured) and isinstance(found, Measured) and known.median >= found.median
    if known is None or (isinstance(found, Measured) and not slower):
        results[found.name] = found


def _of_group(jobs: list[Job], program: str, when: str) -> Iterator[Result]:
    """What jobs that ran at once come to, reading and writing."""
    labels = list(dict.fromkeys(job.label for job in jobs))
    label = labels[0] if len(labels) == 1 else "all"
    both = all(any(_bytes(job, way) for job in jobs) for way in ("read", "write"))
    for way in ("read", "write"):
        busy = [job for job in jobs if _bytes(job, way)]
        if not busy:
            continue
        quantity = f"mixed_{way}_bandwidth" if both else f"{way}_bandwidth"
        name = names.storage(label, quantity)
        reason = next((why for job in busy if (why := _unfit(job, way))), "")
        if reason:
            yield Waived(name=name, reason=f"{program}: {reason}")
            continue
        rate = sum(number(mapping(job.body.get(way)).get("bw_bytes")) or 0.0 for job in busy)
        seconds = max(_seconds(job, way) for job in busy)
        told = f"{len(busy)} jobs" if len(busy) > 1 else "1 job"
        tail = ", the mean of all of it: no tail is told" if way == "write" else ""
        block = busy[0].options.get("bs") or busy[0].options.get("blocksize") or "4k"
        method = f"{program}, {told} of {block} blocks, direct I/O, {seconds:.0f} s{tail}"
        yield one(name, "B/s", rate, method, when)


def _bytes(job: Job, way: str) -> float:
    return number(mapping(job.body.get(way)).get("io_bytes")) or 0.0


def _seconds(job: Job, way: str) -> float:
    return (number(mapping(job.body.get(way)).get("runtime")) or 0.0) / 1000


def _unfit(job: Job, way: str) -> str:
    """Why a job's number is not a drive's; empty where it may be."""
    if job.body.get("error"):
        return f"{job.name} ended with error {job.body['error']}"
    if job.options.get("direct") not in ("1", "true") and job.options.get("buffered") != "0":
        return f"{job.name} went through the page cache (direct=1 is not set)"
    engine = job.options.get("ioengine", "")
    if engine in _NO_ENGINE:
        return f"{job.name} ran with ioengine={engine}, which reads and writes nothing"
    if elsewhere := next((place for place in job.places if _NO_DRIVE.match(place)), ""):
        return f"{job.name} worked on {elsewhere}, which is no drive"
    pattern = job.options.get("rw") or job.options.get("readwrite") or "read"
    if pattern.startswith("rand"):
        return f"{job.name} is {pattern}: a training engine reads and writes whole tensors in order"
    if not number(mapping(job.body.get(way)).get("bw_bytes")):
        return f"{job.name} has no bandwidth"
    if _seconds(job, way) < SHORTEST:
        return f"{job.name} ran {_seconds(job, way):.1f} s, {SHORTEST:.0f} are needed"
    return ""


def _places(jobs: list[Job], disks: list[Any]) -> tuple[tuple[FoundFolder, ...], tuple[FoundDrive, ...]]:
    """The folders that jobs worked on, with the drives below where fio tells them apart."""
    devices = [text(mapping(each).get("name")) for each in disks]
    below = tuple(dict.fromkeys(name for name in devices if name and not _BUILT.match(name)))
    labels = {job.label: job for job in jobs}
    folders = []
    for label, job in labels.items():
        own = tuple(os.path.basename(place) for place in job.places if place.startswith("/dev/"))
        drives = own or (below if len(labels) == 1 else ())
        path = ":".join(job.places) or job.name
        folders.append(
            FoundFolder(path=path, label=label, kind="drive", filesystem="", drives=drives or (label,))
        )
    named = dict.fromkeys(drive for folder in folders for drive in folder.drives)
    return tuple(folders), tuple(FoundDrive(name=name, kind="unknown") for name in named)
