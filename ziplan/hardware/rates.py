"""How fast each part of a machine works: what is stated, what is taken in its place, what nobody knows.

Rates are those of one whole part (a GPU, a node's drives, a node's processors), whoever uses it.
"""

from __future__ import annotations

from typing import NamedTuple

from ziplan.errors import BadInput
from ziplan.hardware.cluster import Cluster
from ziplan.hardware.node import Node, Tier
from ziplan.units import Precision

ACHIEVABLE_SHARE = (0.64, 0.40, 0.75)
"""Share of the peak rate that training reaches, as far as a matrix product alone does: (value, low, high)."""

ACHIEVABLE_SOURCE = (
    "64 % of peak, as a 7B model without offload or recomputation reaches on 8 A100-80GB "
    "(https://github.com/mosaicml/llm-foundry, scripts/train/benchmarking)"
)

ADAM_BYTES = 28.0
"""Bytes of DRAM traffic per parameter that the CPU optimizer updates."""

DRAM_SHARE = 0.6
"""Share of the memory's peak bandwidth that the CPU optimizer reaches.

DGX-2's 10e9 parameters in 2.57 s (arXiv:2101.06840 table 4) are 109 GB/s of 256 GB/s, 0.43;
two threads measured 79 GB/s on a small machine, near its bandwidth.
"""

ADAM_BANDWIDTH = (36e9, 22e9, 51e9)
"""Bytes per second that users' CPU optimizers were seen to move: (value, low, high)."""

ADAM_SOURCE = (
    "neither `cpu.adam_params_per_s` nor the DRAM bandwidth is stated: 22 to 51 GB/s at 28 bytes per "
    "parameter, as users' step times give (https://github.com/deepspeedai/DeepSpeed/issues/6834 and 1635)"
)

UNLIMITED = float("inf")

UNKNOWN = 0.0
"""The rate of what nobody has stated: whatever needs it has no known time."""


class Assumed(NamedTuple):
    """A value that stands in for one that nobody stated: its path, its unit, where it comes from."""

    name: str
    value: float
    unit: str
    source: str
    low: float | None = None
    high: float | None = None


class Rate(NamedTuple):
    """A rate; `assumed` where it was not stated, `missing` the path of the input where it is UNKNOWN."""

    value: float
    assumed: Assumed | None = None
    missing: str = ""


def _taken(name: str, value: float, unit: str, source: str, low: float | None, high: float | None) -> Rate:
    return Rate(value, Assumed(name, value, unit, source, low, high))


def sustained_rate(node: Node, precision: Precision) -> Rate:
    """FLOP/s that one GPU sustains in training."""
    gpu = node.gpu
    if precision in gpu.sustained_flops_per_s:
        return Rate(gpu.sustained_flops_per_s[precision])
    if precision == "fp32" and precision not in gpu.peak_flops_per_s:
        # Every GPU computes in fp32; how fast, nobody has said.
        return Rate(UNKNOWN, missing=f"gpu.peak_flops_per_s.{precision}")
    if precision not in gpu.peak_flops_per_s:
        known = ", ".join(sorted(gpu.peak_flops_per_s))
        raise BadInput.of(
            f"{gpu.name} has no known rate for precision {precision}",
            help=f"train in {known}, or state `gpu.sustained_flops_per_s.{precision}`",
        )
    peak = gpu.peak_flops_per_s[precision]
    ceiling = gpu.matmul_flops_per_s.get(precision, peak)
    rate, low, high = (min(share * peak, ceiling) for share in ACHIEVABLE_SHARE)
    return _taken("gpu.sustained_flops_per_s", rate, "FLOP/s", ACHIEVABLE_SOURCE, low, high)


def cpu_optimizer_rate(node: Node) -> Rate:
    """Parameters per second that the processors of one node update."""
    if node.cpu.adam_params_per_s is not None:
        return Rate(node.cpu.adam_params_per_s)
    host = node.tier_of("dram")
    bandwidth = node.tiers[host].read_bandwidth if host else None
    name, unit = "cpu.adam_params_per_s", "param/s"
    if bandwidth is None:
        rate, low, high = (seen / ADAM_BYTES for seen in ADAM_BANDWIDTH)
        return _taken(name, rate, unit, ADAM_SOURCE, low, high)
    peak = bandwidth / ADAM_BYTES
    source = (
        f"{DRAM_SHARE:.0%} of the DRAM bandwidth at {ADAM_BYTES:.0f} bytes per parameter "
        "(0.43 on DGX-2, arXiv:2101.06840 table 4)"
    )
    return _taken(name, DRAM_SHARE * peak, unit, source, 0.3 * peak, peak)


def tier_rate(name: str, tier: Tier, direction: str) -> Rate:
    """B/s that a tier's own medium is read or written at, for its whole scope (all drives of a node)."""
    stated = tier.read_bandwidth if direction == "read" else tier.write_bandwidth
    if stated is not None:
        return Rate(stated)
    if tier.medium != "nvme":
        return Rate(tier.read_bandwidth if tier.read_bandwidth is not None else UNLIMITED)
    if direction == "write" and tier.read_bandwidth is not None:
        source = "no sustained write rate is known for the drive: taken as its read rate, an upper bound"
        rate = tier.read_bandwidth
        return _taken(f"tiers.{name}.write_bandwidth", rate, "B/s", source, None, rate)
    return Rate(UNKNOWN, missing=f"tiers.{name}.{direction}_bandwidth")


def network_of(cluster: Cluster) -> str | None:
    """The link between nodes; None where there is one node, BadInput where nobody has stated one."""
    if cluster.nodes <= 1:
        return None
    if cluster.node.network is None:
        raise BadInput.of(
            f"{cluster.node.name}: {cluster.nodes} nodes, but no network between them is stated",
            help="state a link and name it in `network`",
        )
    return cluster.node.network


OVER_THE_HOST = "no fabric stated: GPUs exchange over their host links"
