"""How many parameters the processors of a node update: as DRAM allows, or as few threads do."""

from __future__ import annotations

from ziplan.hardware.node import Node, Tier
from ziplan.hardware.rates import ADAM_BYTES, ADAM_FETCHED, UNLIMITED, Rate, taken
from ziplan.laws.optimizer import cpu_adam_time_by_bandwidth, cpu_adam_time_by_threads
from ziplan.units import Launcher

THREADS = "threads of the CPU optimizer"
"""What is said to limit an update that more threads would shorten."""

FEW_THREADS = "of a node, by `training.optimizer_threads`: too few for DRAM to limit the update"

DRAM_SHARE = (0.22, 0.15, 0.43)
"""Share of the theoretical DRAM bandwidth that an update on two processors reaches: (value, low, high).

Bytes that the update passes over sockets x channels x rate of a channel, the middle of four. At 28 B:
DGX-2, 10e9 parameters in 2.57 s, 109 of 256 GB/s, 0.43 (arXiv:2101.06840 table 4);
2 x Xeon Gold 6330, 32e9 in 9.6 s, 93 of 375.4 GB/s, 0.25 (https://github.com/ITcarrot/RoundPipe).
Whole steps of DeepSpeed's optimizer, which scale and cast besides, at 42 B, on the hosts of A100s if those
have the 409.6 GB/s of two EPYCs: 72.7e9 over 4 nodes in 10 s, parameters on the host, 76 GB/s, 0.19
(https://github.com/deepspeedai/DeepSpeed/issues/6834); 6.74e9 in 4.6 s less 0.1 for the way back, 63 GB/s,
0.15 (https://github.com/deepspeedai/DeepSpeed blogs/deepspeed-zenflow, figure 4).
"""

DRAM_SHARE_SOURCE = (
    f"{DRAM_SHARE[0]:.0%} of the node's theoretical DRAM bandwidth at {ADAM_BYTES:.0f} bytes per parameter, "
    "the middle of 15 % (a host of A100s, https://github.com/deepspeedai/DeepSpeed blogs/deepspeed-zenflow), "
    "19 % (another, issues/6834 there), 25 % (2 x Xeon Gold 6330, https://github.com/ITcarrot/RoundPipe) and "
    "43 % (DGX-2, arXiv:2101.06840 table 4)"
)

ONE_SOCKET_SHARE = (0.57, DRAM_SHARE[0], 0.57)
"""The same of one processor, whose memory is all its own: Grace, 8e9 in 0.769 s at 28 B, 291 of 512 GB/s."""

ONE_SOCKET_SOURCE = (
    f"{ONE_SOCKET_SHARE[0]:.0%} of the theoretical DRAM bandwidth at {ADAM_BYTES:.0f} bytes per parameter, "
    "as on Grace (arXiv:2509.21271), the only node of one processor that is published; "
    f"{DRAM_SHARE[0]:.0%} where it does as those of two"
)

NODE_ADAM_RATE = (3.33e9, 1.82e9, 10.4e9)
"""Parameters per second that the processors of a whole node update: (value, low, high).

32e9 in 9.6 s on 2 x Xeon Gold 6330, the slowest of the published updates; a user's whole optimizer
step, 72.7e9 over 4 nodes in 10 s; 8e9 in 0.769 s on Grace, the fastest.
"""

ADAM_SOURCE = (
    "neither `cpu.adam_params_per_s` nor the DRAM bandwidth is stated: the slowest published update of a "
    "node (2 x Xeon Gold 6330, https://github.com/ITcarrot/RoundPipe), between a user's whole optimizer step "
    "(https://github.com/deepspeedai/DeepSpeed/issues/6834) and Grace (arXiv:2509.21271)"
)

CORE_BANDWIDTH = (14.5e9, 10.9e9, 21.8e9)
"""B/s that one core of a server, alone at work, reads from memory: (value, low, high).

The middle, the least and the most of seven: Xeon Platinum 8174 10.9, Gold 6248 13.0, Gold 6148 14.3,
Platinum 8470 14.5, Platinum 8360Y 15.4, EPYC 7451 21.6, EPYC 7452 21.8 GB/s (`load` of likwid-bench on one
core; https://github.com/RRZE-HPC/kerncraft, examples/machine-files, MEM).
"""

CORE_SOURCE = (
    "nobody has stated what one core reads: the middle of seven server processors, from 10.9 (Xeon Platinum "
    "8174) to 21.8 GB/s (EPYC 7452) (https://github.com/RRZE-HPC/kerncraft, examples/machine-files)"
)


STAGED_FETCHES = 2.0
"""Bytes that a core fetches for each byte that it copies: the source's line, and the one that is written to.

What the driver does of a copy from memory that is not pinned: one thread copies piece by piece to pinned
memory while the piece before crosses the link (CUDA C++ Best Practices Guide, pinned memory). 6 GB/s were
seen over a link of PCIe 4.0 (https://github.com/efeslab/fiddler/issues/7), 4.0 of 5.8 by a Xeon E5-2680, of
whose cores one reads 12.3 GB/s
(https://github.com/ComputationalRadiationPhysics/jungfrau-photoncounter/issues/18).
"""


def thread_count(threads: int | Launcher | None, cores: int | None, ranks: float) -> float | None:
    """OpenMP threads of each of a node's ranks; None where that takes cores, which nobody has stated.

    torchrun sets OMP_NUM_THREADS to 1 where it starts several processes on a node and finds the variable
    unset (`torch/distributed/run.py:config_from_args`; `torch.distributed.launch` since PyTorch 1.2),
    `accelerate launch` in any case (`commands/launch.py:_validate_launch_command`, since 0.14); `deepspeed`
    leaves it alone, so that each rank has as many as the node has cores, unless `--bind_cores_to_rank`
    divides them (`launcher/launch.py:main`).
    """
    if isinstance(threads, int):
        return float(threads)
    if threads == "accelerate" or (threads == "torchrun" and ranks > 1):
        return 1.0
    if cores is None:
        return None
    return float(cores) if threads in ("deepspeed", "torchrun") else max(1.0, cores // ranks)


def cpu_optimizer_rate(node: Node, ranks: float = 1.0, threads: int | Launcher | None = None) -> Rate:
    """Parameters per second that the processors of one node update for so many ranks.

    `threads` are those of a rank, or what starts the run; None: cores are divided among the ranks, as in
    what is emitted.
    """
    rate, each = _of_all_cores(node), thread_count(threads, node.cpu.cores, ranks)
    if each is None:
        return rate
    count = ranks * each if node.cpu.cores is None else min(ranks * each, float(node.cpu.cores))
    return _of_threads(node, count, rate)


def staging_rate(node: Node, tier: Tier) -> Rate:
    """B/s that one thread copies from memory that is not pinned to memory that is, where a GPU needs that."""
    if any(node.links[link].coherent for link in tier.via):
        return Rate(UNLIMITED)
    core = thread_rate(node)
    return core._replace(value=core.value / STAGED_FETCHES)


def thread_rate(node: Node) -> Rate:
    """B/s that one thread reads from host memory."""
    if node.cpu.core_bandwidth is not None:
        return Rate(node.cpu.core_bandwidth)
    middle, low, high = CORE_BANDWIDTH
    return taken("cpu.core_bandwidth", middle, "B/s", CORE_SOURCE, low, high)


def _of_threads(node: Node, count: float, most: Rate) -> Rate:
    """The rate of so many threads of a node, at most that of all its cores."""
    if node.cpu.core_bandwidth is not None:
        rate = _update_rate(count, node.cpu.core_bandwidth)
        return _limited(most, rate, count)
    middle, low, high = CORE_BANDWIDTH
    if _update_rate(count, middle) >= most.value:
        return most
    per_rate = middle / _update_rate(count, middle)
    low, high = min(low, per_rate * most.at("low")), min(high, per_rate * most.value)
    core = taken("cpu.core_bandwidth", middle, "B/s", CORE_SOURCE, low, high)
    return core._replace(value=_update_rate(count, middle), threads=count)


def _limited(most: Rate, rate: float, count: float) -> Rate:
    """The rate of all cores, or that of few threads where it is less, with what is assumed of all cores."""
    if rate >= most.value:
        return most
    assumed = most.assumed
    if assumed is None or assumed.low is None or assumed.low >= rate:
        return Rate(rate, threads=count)
    capped = assumed._replace(value=rate, high=rate)
    return Rate(rate, capped, threads=count)


def _update_rate(count: float, core_bandwidth: float) -> float:
    """Parameters per second of so many threads."""
    return 1.0 / cpu_adam_time_by_threads(
        params=1.0, fetched_bytes_per_param=ADAM_FETCHED, thread_count=count, core_bandwidth=core_bandwidth
    )


def _of_all_cores(node: Node) -> Rate:
    """Parameters per second of all cores: measured, or as DRAM allows."""
    if node.cpu.adam_params_per_s is not None:
        return Rate(node.cpu.adam_params_per_s)
    host = node.tier_of("dram")
    bandwidth = node.tiers[host].read_bandwidth if host else None
    name, unit = "cpu.adam_params_per_s", "param/s"
    if bandwidth is None:
        rate, low, high = NODE_ADAM_RATE
        return taken(name, rate, unit, ADAM_SOURCE, low, high)
    at_peak = cpu_adam_time_by_bandwidth(
        params=1.0, optimizer_bytes_per_param=ADAM_BYTES, dram_bandwidth=bandwidth
    )
    alone = node.cpu.sockets == 1
    shares, source = (ONE_SOCKET_SHARE, ONE_SOCKET_SOURCE) if alone else (DRAM_SHARE, DRAM_SHARE_SOURCE)
    rate, low, high = (share / at_peak for share in shares)
    return taken(name, rate, unit, source, low, high)._replace(dram_limited=True)
