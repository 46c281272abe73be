"""Processors, memory, and what a container leaves of them."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator

from ziplan.bench.discover.root import Root, cpu_list

_NODES = "/sys/devices/system/node"
_CPUS = "/sys/devices/system/cpu"
_UNLIMITED = 2**60
"""What version 1 of control groups says where nothing limits is the largest number of pages."""
_MARKS = (
    ("/.dockerenv", "docker"),
    ("/run/.containerenv", "podman"),
    ("/singularity.d", "apptainer"),
    ("/.singularity.d", "apptainer"),
)


def cpu_name(root: Root) -> str:
    """The processors' name."""
    found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", root.text("/proc/cpuinfo"), re.MULTILINE)
    return found[1].strip() if found else ""


def sockets(root: Root) -> int:
    """How many processors are in sockets; at least 1."""
    ids = {
        root.text(f"{_CPUS}/{name}/topology/physical_package_id")
        for name in root.names(_CPUS)
        if re.fullmatch(r"cpu\d+", name)
    }
    return max(1, len(ids - {""}))


def first_of_cores(root: Root, usable: tuple[int, ...]) -> tuple[int, ...]:
    """Of the processors that may be used, the first of each physical core."""
    seen: set[tuple[int, ...]] = set()
    found = []
    for cpu in usable:
        siblings = cpu_list(root.text(f"{_CPUS}/cpu{cpu}/topology/thread_siblings_list")) or (cpu,)
        if siblings not in seen:
            seen.add(siblings)
            found.append(cpu)
    return tuple(found)


def numa_cpus(root: Root) -> dict[int, tuple[int, ...]]:
    """The processors of each NUMA node that has some."""
    found = {}
    for name in root.names(_NODES):
        cpus = cpu_list(root.text(f"{_NODES}/{name}/cpulist"))
        if re.fullmatch(r"node\d+", name) and cpus:
            found[int(name[4:])] = cpus
    return dict(sorted(found.items()))


def memory_bytes(root: Root) -> float:
    """Memory of the node as the kernel has it; 0 where it does not tell."""
    found = re.search(r"^MemTotal:\s*(\d+) kB", root.text("/proc/meminfo"), re.MULTILINE)
    return 1024.0 * int(found[1]) if found else 0.0


def memory_limit(root: Root) -> float | None:
    """Bytes that control groups leave to this process; None where none limits."""
    limits = [
        int(text)
        for text in (
            *(root.text(f"{group}/memory.max") for group in _groups(root, "")),
            *(root.text(f"{group}/memory.limit_in_bytes") for group in _groups(root, "memory")),
        )
        if text.isdigit()
    ]
    least = min((limit for limit in limits if 0 < limit < _UNLIMITED), default=None)
    whole = memory_bytes(root)
    return float(least) if least is not None and not (whole and least >= whole) else None


def cpu_limit(root: Root) -> float | None:
    """Processors that control groups' quotas are worth; None where none limits."""
    worth = []
    for group in _groups(root, ""):
        quota, _, period = root.text(f"{group}/cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            worth.append(int(quota) / int(period))
    for group in _groups(root, "cpu"):
        old_quota = root.number(f"{group}/cpu.cfs_quota_us")
        old_period = root.number(f"{group}/cpu.cfs_period_us")
        if old_quota and old_quota > 0 and old_period:
            worth.append(old_quota / old_period)
    return min(worth, default=None)


def _groups(root: Root, controller: str) -> Iterator[str]:
    """Folders of this process's control groups, from its own up to the top.

    `controller` is empty for version 2 (Documentation/admin-guide/cgroup-v2.rst).
    """
    for line in root.text("/proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller not in names.split(",") or (not controller and number != "0"):
            continue
        tops = (
            (f"/sys/fs/cgroup/{controller}",) if controller else ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
        )
        for top in tops:
            steps = [step for step in path.split("/") if step and step != ".."]
            for length in range(len(steps), -1, -1):
                yield "/".join((top, *steps[:length]))


def container(root: Root) -> str:
    """The container that this process runs in; empty where none is known."""
    for path, name in _MARKS:
        if root.exists(path):
            return name
    found = re.search(r"kubepods|docker|containerd|lxc|libpod", root.text("/proc/1/cgroup"))
    return found[0] if found else ""


def usable_cpus(root: Root) -> tuple[int, ...]:
    """Processors that this process may run on; of a planted root those that are online."""
    if str(root.path) == "/":
        return tuple(sorted(os.sched_getaffinity(0)))
    return cpu_list(root.text(f"{_CPUS}/online")) or (0,)


def memlock_limit() -> float | None:
    """Bytes that a process of this user may lock; None where nothing limits."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    # The administrator may lock what there is (CAP_IPC_LOCK).
    return None if soft == resource.RLIM_INFINITY or os.geteuid() == 0 else float(soft)
