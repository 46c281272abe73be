"""ZP4xx: what wires, drives and the operating system do to a plan that adds up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import PurePosixPath

from ziplan.check.case import Case
from ziplan.check.finding import Hit, Number, Rule
from ziplan.check.rules.capacity import size
from ziplan.check.rules.fatal import ZERO
from ziplan.runtimes.runtime import MEMLOCK, swap_limit
from ziplan.units import show, show_duration

IN_MEMORY = ("/dev/shm", "/run")  # noqa: S108 - nothing is written there
"""Folders that are memory on Linux systems: swap files there take the DRAM that they should relieve."""

SHORT_LIFE = 365.25 * 86_400.0
"""Seconds of training, within which drives should not be worn out."""

FASTER_THAN_RATED = 1.25
"""A measured rate above the drives' rated ones by this factor was not measured on the drives."""


def contention(case: Case) -> Iterator[Hit]:
    """What is streamed from a tier and what ranks exchange cross the same link."""
    node, estimate = case.cluster.node, case.estimate
    if estimate is None or estimate.plan.dp_degree < 2:
        return
    exchanged = [node.fabric] if node.fabric is not None else []
    exchanged += [node.network] if node.network is not None and case.nodes > 1 else []
    if node.fabric is None and case.host is not None:
        exchanged += list(node.tiers[case.host].via)
    for tier in case.off_gpu():
        shared = [link for link in node.tiers[tier].via if link in exchanged]
        moved = [sum(estimate.traffic.get(name, (0.0, 0.0))) for name in (tier, "gather")]
        if shared and min(moved) > 0:
            streamed = case.share("params", tier) > 0
            yield Hit(
                f"what is read from {tier} and what GPUs exchange cross the same link, `{shared[0]}`: ranks "
                "x link is not what "
                f"{'striping gets' if streamed else 'both get'}",
                key=f"{ZERO}.{'offload_param' if streamed else 'offload_optimizer'}",
                field="placement",
                fix="drives and interconnect on separate lanes, or state what both get at once",
                number=Number(node.links[shared[0]].bandwidth, "B/s"),
            )
            return


def page_cache(case: Case) -> Iterator[Hit]:
    """The folder of the swap files is memory."""
    settings = case.settings
    if settings is None or settings.stage < 3:
        return
    for name in ("offload_param", "offload_optimizer"):
        offload = getattr(settings, name)
        path = offload.nvme_path if offload.device == "nvme" else None
        inside = [top for top in IN_MEMORY if path and PurePosixPath(path).is_relative_to(top)]
        if inside:
            yield Hit(
                f"{name}.nvme_path {path} is below {inside[0]}, which is memory: swap files take the DRAM "
                "that they "
                "should relieve",
                key=f"{ZERO}.{name}.nvme_path",
                field="placement",
                fix="a folder on the drives, mounted on a file system with direct I/O (ext4, xfs)",
            )


def beyond_rating(case: Case) -> Iterator[Hit]:
    """A tier that is faster than its drives was measured through the page cache."""
    for name, tier in case.cluster.node.tiers.items():
        if tier.drive is None or name not in case.off_gpu():
            continue
        for direction in ("read", "write"):
            rate, rated = (
                getattr(tier, f"{direction}_bandwidth"),
                getattr(tier.drive, f"{direction}_bandwidth"),
            )
            most = rated * max(1, tier.drive_count) if rated else math.inf
            if rate is not None and rate > FASTER_THAN_RATED * most:
                yield Hit(
                    f"tiers.{name}.{direction}_bandwidth is {show(rate, 'B/s', 3)}, its {tier.drive_count} "
                    "drives are "
                    f"rated {show(most, 'B/s', 3)} together: measured through the page cache?",
                    key=f"{ZERO}.offload_optimizer",
                    field="placement",
                    fix="measure with direct I/O (ds_io, fio --direct=1)",
                    number=Number(rate, "B/s"),
                )


def software_limit(case: Case) -> Iterator[Hit]:
    """Drives that are faster than one process swaps."""
    limit, nvme = swap_limit(case.cluster, case.runtime), case.nvme
    if limit is None or not nvme or nvme not in case.off_gpu() or case.plan is None:
        return
    tier = case.cluster.node.tiers[nvme]
    ranks = min(float(case.cluster.node.gpus_per_node), float(case.plan.dp_degree))
    each = (tier.read_bandwidth or 0.0) / ranks
    if each > limit:
        yield Hit(
            f"drives give each process {show(each, 'B/s', 3)}, of which it swaps {show(limit, 'B/s', 3)} at "
            "the most",
            key="aio",
            field="placement",
            fix="more ranks on a node use the rest; more drives do not help",
            number=Number(limit, "B/s"),
        )


def shallow_queue(case: Case) -> Iterator[Hit]:
    """Fewer requests in flight than there are drives."""
    settings, nvme = case.settings, case.nvme
    if settings is None or not nvme or nvme not in case.off_gpu() or case.plan is None:
        return
    tier, aio = case.cluster.node.tiers[nvme], settings.aio
    ranks = min(case.cluster.node.gpus_per_node, int(case.plan.dp_degree))
    in_flight = aio.queue_depth * aio.intra_op_parallelism * ranks
    if in_flight < tier.drive_count:
        yield Hit(
            f"queue_depth {aio.queue_depth} x intra_op_parallelism {aio.intra_op_parallelism} x {ranks} "
            "ranks are "
            f"{in_flight} requests in flight, fewer than {tier.drive_count} drives: some always wait",
            key="aio.queue_depth",
            field="placement",
            fix='"queue_depth": 32; `ds_nvme_tune` finds what a machine likes',
            number=Number(float(in_flight)),
        )


def wear(case: Case) -> Iterator[Hit]:
    """Swapping uses up the drives' rated endurance within a year of training."""
    estimate = case.estimate
    life = estimate.drive_lifetime if estimate is not None else None
    if life is None or not math.isfinite(life) or life > SHORT_LIFE or estimate is None or not case.nvme:
        return
    yield Hit(
        f"a step writes {size(estimate.flash_writes)} of each rank to flash, which uses up the drives' "
        "rated endurance "
        f"in {show_duration(life, 3)} of training",
        key=f"{ZERO}.offload_optimizer.device",
        field="placement",
        fix="more accumulation (state is written once a step), host memory, or drives made for writing",
        number=Number(life, "s"),
    )


def locked_by_default(case: Case) -> Iterator[Hit]:
    """Buffers are locked, nobody said how much may be, and the launch script does not ask for more."""
    node = case.cluster.node
    if (
        node.memlock_limit is not None
        or not case.nvme
        or case.nvme not in case.off_gpu()
        or case.plan is None
    ):
        return
    if case.launch is not None and case.launch.lifts_memlock:
        return
    names = ("optimizer swap buffers", "parameter swap buffers", "parameter write-back buffer")
    lines = case.lines(case.host, *names)
    ranks = min(float(node.gpus_per_node), float(case.plan.dp_degree))
    each = sum(line.high for line in lines) / ranks
    if each > 0:
        yield Hit(
            f"each process locks {size(each)} of swap buffers, and a shell's limit (`ulimit -l`) is often 8 "
            "MiB or less",
            key=f"{ZERO}.offload_optimizer.buffer_count",
            field="optimizer_buffer_count",
            fix=f"`ulimit -l unlimited` in the launch script; state `{MEMLOCK}_limit` to have it checked",
            number=Number(each, "B"),
        )


PHYSICS = (
    Rule(
        "ZP401",
        "Link contention",
        "warning",
        contention,
        "The links of a tier that state is streamed from are also those over which GPUs exchange data.",
        "The allgather that makes striping work and the reads that feed it share a root complex: dp x "
        "bandwidth is "
        "fiction there.",
        "eight consumer cards without NVLink, parameters on NVMe: reads and gathers cross the same slots",
        "Separate lanes; a machine with a fabric; numbers measured with both at work.",
    ),
    Rule(
        "ZP402",
        "Page-cache shadowing: swap files in memory",
        "warning",
        page_cache,
        "nvme_path is a folder that the system keeps in memory.",
        "Flash data is copied into the same DRAM that should be relieved. On drives DeepSpeed reads and "
        "writes past the "
        "page cache, into pinned buffers.",
        '"nvme_path": "/dev/shm/swap"',
        "A folder on the drives.",
    ),
    Rule(
        "ZP403",
        "A tier faster than its drives",
        "warning",
        beyond_rating,
        "The stated bandwidth of a tier is over 1.25 times what its drives are rated together.",
        "Benchmarks without direct I/O measure the page cache: 22 to 25 GB/s were reported of a drive of "
        "3.2 GB/s.",
        "tiers.nvme.read_bandwidth: 25 GB/s with one drive of 3.2 GB/s",
        "Measure with direct I/O and files larger than memory.",
    ),
    Rule(
        "ZP404",
        "Software is slower than the drives",
        "note",
        software_limit,
        "The drives give each process more than a process swaps.",
        "Published step times come to 6.2 GB/s for a process with 6 to 10 drives: drives beyond that are "
        "idle.",
        "one rank on eight Gen4 drives",
        "More ranks for each node, fewer drives.",
    ),
    Rule(
        "ZP405",
        "Too few requests in flight",
        "warning",
        shallow_queue,
        "queue_depth x intra_op_parallelism x ranks of a node is less than the number of drives.",
        "A drive without a request does nothing, whatever its rating.",
        '"aio": {"queue_depth": 1} with one rank on eight drives',
        "queue_depth 32, intra_op_parallelism 1 to 8: `ds_nvme_tune` measures it.",
    ),
    Rule(
        "ZP406",
        "Drives wear out",
        "warning",
        wear,
        "At this rate of steps the drives' rated endurance is used up within a year.",
        "18 bytes per parameter are written in every step with everything on NVMe.",
        "a 7B model on one consumer drive of 1.2 PB",
        "Fewer steps for the tokens, optimizer in DRAM, enterprise drives.",
    ),
    Rule(
        "ZP407",
        "Locked memory is not asked for",
        "note",
        locked_by_default,
        "Something swaps, `memlock_limit` is not stated, and no launch script lifts the limit.",
        "mlock fails when the buffers are made, in containers above all.",
        "offload_optimizer to nvme under a shell with `ulimit -l` of 64 KiB",
        "`ulimit -l unlimited`, `--ulimit memlock=-1`, or memlock in limits.conf.",
    ),
)
