"""How fast each part of a machine works: what is stated, what is taken in its place, what nobody knows.

Rates are those of one whole part (a GPU, a node's drives, a node's processors), whoever uses it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ziplan.errors import BadInput
from ziplan.hardware.cluster import Cluster
from ziplan.hardware.node import Node
from ziplan.units import Precision, show

ACHIEVABLE_SHARE = (0.64, 0.40, 0.75)
"""Share of the peak rate that training reaches, as far as a matrix product alone does: (value, low, high)."""

ACHIEVABLE_SOURCE = (
    "64 % of peak, as a 7B model without offload or recomputation reaches on 8 A100-80GB "
    "(https://github.com/mosaicml/llm-foundry, scripts/train/benchmarking)"
)

MATRIX_OVER_SUSTAINED = 1.0695
"""Rate of the matrix products in a training step, over the rate of the whole step that a profile states.

The sustained rate holds attention, norms, the loss, FSDP's passes and the optimizer too. This is what is
left to the matrix products of the run that the sustained rate of the A100 is from (7B, 2,048 tokens,
micro-batch 6, 8 A100 80 GB, nothing recomputed; https://github.com/mosaicml/llm-foundry,
scripts/train/benchmarking), once the rest of its step is taken off: 214 TFLOP/s, 0.79 of the best product
alone.
"""

WAVES_OF_THAT_RUN = 1.0273
"""Time of the same run's matrix products over that of whole waves of tiles (`ziplan.laws.tiles.wave_stretch`,
12,288 tokens, width 4,096, 108 multiprocessors): where waves are counted, a full one is so much faster."""

ATTENTION_OVER_MATRIX = 0.4258
"""Rate of a fused attention kernel over that of matrix products, the FLOPs of backward counted as twice
forward's (it recomputes the scores besides).

From the run with 65,536 tokens of the same source, 58 % of whose FLOPs are attention: 91 TFLOP/s, 0.29 of
the peak; counted with the scores that backward recomputes, 0.34. Such kernels reach 25 to 40 % of an A100
in their first version and 50 to 73 % in their second (arXiv:2307.08691).
"""

FLASH_2_OVER_MATRIX = 0.692
"""The same of FlashAttention-2 where a GPU's own rate of it is not stated: as on the A100."""

COUNTED_OF_EXECUTED = 3.0 / 3.5
"""FLOPs of attention in forward and backward as they are counted, over those that a fused kernel executes.

Its backward makes five products, of which one is the scores again; four are counted.
"""

ADAM_BYTES = 28.0
"""Bytes of DRAM traffic per parameter that the CPU optimizer updates.

A 4 B gradient read, 12 B of master weight and moments read and written (arXiv:2101.06840 sec 5.1).
"""

ADAM_FETCHED = 16.0
"""Bytes that a core fetches from memory per parameter that it updates: gradient, master weight and moments.

What is written, it has fetched. One core of an EPYC 7003 was seen to fetch 20 GB/s in DeepSpeedCPUAdam, in
PyTorch's fused AdamW, in a sum and in a cast alike, whatever they wrote; of Xeons the single-core rates of
kernels that read, update in place and do both lie within 15 % by bytes fetched
(https://github.com/RRZE-HPC/kerncraft, examples/machine-files, MEM).
"""

STREAMED = (0.87, 0.85, 0.89)
"""Share of a data sheet's memory bandwidth that a kernel reaches which reads and writes as much: (value, low,
high).

The mean of 1,381 GB/s on an A100 of 40 GB (1,555 on its sheet), 1,732 on one of 80 (2,039), 803 on a V100
(900), 1,704 on an H100 PCIe (2,000) and 770 on an L40 (864): the column `scale` at full occupancy in
https://github.com/te42kyfo/gpu-benches, gpu-stream and cuda-stream. A GH200 of 4 TB/s copied at 2.98 and
added at 3.30 (https://github.com/UoB-HPC/BabelStream/issues/194). What was measured or stated stays as it is.
Low and high are the least and the most of the five.
"""

STREAMED_SOURCE = "as an A100, a V100, an H100 and an L40 stream (https://github.com/te42kyfo/gpu-benches)"

UNLIMITED = float("inf")

UNKNOWN = 0.0
"""The rate of what nobody has stated: whatever needs it has no known time."""


End = Literal["value", "low", "high"]
"""Which of an assumption's numbers is taken for what nobody stated."""


class Assumed(NamedTuple):
    """A value that stands in for one that nobody stated: its path, its unit, where it comes from."""

    name: str
    value: float
    unit: str
    source: str
    low: float | None = None
    high: float | None = None

    def at(self, end: End) -> float:
        """One end of its range; the value where that end is not known."""
        found = {"value": self.value, "low": self.low, "high": self.high}[end]
        return self.value if found is None else found


class Rate(NamedTuple):
    """A rate; `assumed` where it was not stated, `missing` the path of the input where it is UNKNOWN."""

    value: float
    assumed: Assumed | None = None
    missing: str = ""
    dram_limited: bool = False
    """Whether it is the CPU optimizer's and what limits it is DRAM, at ADAM_BYTES a parameter."""
    threads: float = 0.0
    """Threads of a node that limit the CPU optimizer, ADAM_FETCHED a parameter; 0 where they do not."""

    def at(self, end: End) -> float:
        """The rate where what was assumed is at this end of its range."""
        if self.assumed is None or end == "value":
            return self.value
        return self.value * self.assumed.at(end) / self.assumed.value


def taken(name: str, value: float, unit: str, source: str, low: float | None, high: float | None) -> Rate:
    """A rate that nobody stated, which is itself what is assumed."""
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
    return taken(f"gpu.sustained_flops_per_s.{precision}", rate, "FLOP/s", ACHIEVABLE_SOURCE, low, high)


def counts_waves(node: Node, precision: Precision) -> bool:
    """Whether products count in tiles and waves: on tensor cores, of a known number of multiprocessors."""
    return node.gpu.multiprocessors is not None and precision != "fp32"


def matrix_rate(node: Node, precision: Precision) -> Rate:
    """FLOP/s of one GPU in the matrix products of a training step, at most that of a product alone.

    Where waves are counted it is the rate of full ones, and what is not full is counted apart (IDLE).
    """
    full = WAVES_OF_THAT_RUN if counts_waves(node, precision) else 1.0
    return _of_products(node, precision, full * MATRIX_OVER_SUSTAINED)


def attention_rate(node: Node, precision: Precision) -> Rate:
    """FLOP/s of one GPU in a fused attention kernel."""
    matrices = _of_products(node, precision, MATRIX_OVER_SUSTAINED)
    return matrices._replace(value=ATTENTION_OVER_MATRIX * matrices.value)


def flash_2_rate(node: Node, precision: Precision) -> Rate:
    """FLOP/s of one GPU in FlashAttention-2, counted as `attention_rate`'s are."""
    stated = node.gpu.flash_2_flops_per_s.get(precision)
    if stated is not None:
        return Rate(COUNTED_OF_EXECUTED * stated)
    matrices = _of_products(node, precision, MATRIX_OVER_SUSTAINED)
    return matrices._replace(value=FLASH_2_OVER_MATRIX * matrices.value)


def _of_products(node: Node, precision: Precision, over_sustained: float) -> Rate:
    gpu, sustained = node.gpu, sustained_rate(node, precision)
    best = gpu.matmul_flops_per_s.get(precision) or gpu.peak_flops_per_s.get(precision, UNLIMITED)
    return sustained._replace(value=min(over_sustained * sustained.value, best))


GPU, MATRIX, ATTENTION, FLASH_2 = "gpu", "gpu_matrix", "gpu_attention", "gpu_flash_2"

IDLE = "gpu_idle"
"""FLOPs that matrix products leave undone in waves and tiles that are not full: all they take is time."""

ARITHMETIC = {
    GPU: sustained_rate,
    MATRIX: matrix_rate,
    ATTENTION: attention_rate,
    FLASH_2: flash_2_rate,
    IDLE: matrix_rate,
}
"""What a GPU computes, to its rate: all kinds at the one that training sustains, matrices, attention."""

COUNTED = (GPU, MATRIX, ATTENTION, FLASH_2)
"""Those of them whose FLOPs are done."""


def tier_rate(cluster: Cluster, name: str, direction: str) -> Rate:
    """B/s that a tier's own medium is read or written at, for its whole scope (all drives of a node)."""
    tier = cluster.node.tiers[name]
    stated = tier.read_bandwidth if direction == "read" else tier.write_bandwidth
    if stated is not None and _of_a_sheet(cluster, name, direction):
        rate, low, high = (share * stated for share in STREAMED)
        source = f"{STREAMED[0]} of the data sheet's {show(stated, 'B/s')}, {STREAMED_SOURCE}"
        return taken(f"tiers.{name}.{direction}_bandwidth", rate, "B/s", source, low, high)
    if stated is not None:
        return Rate(stated)
    if tier.medium == "dram":
        # What crosses a link is no faster than the link.
        return Rate(tier.read_bandwidth if tier.read_bandwidth is not None else UNLIMITED)
    if direction == "write" and tier.read_bandwidth is not None:
        what = "drive" if tier.medium == "nvme" else "memory"
        source = f"no sustained write rate is known for the {what}: taken as its read rate, an upper bound"
        rate = tier.read_bandwidth
        return taken(f"tiers.{name}.write_bandwidth", rate, "B/s", source, None, rate)
    return Rate(UNKNOWN, missing=f"tiers.{name}.{direction}_bandwidth")


def _of_a_sheet(cluster: Cluster, name: str, direction: str) -> bool:
    """Whether it is a GPU's memory, whose bandwidth is only known from a data sheet."""
    source = cluster.provenance.get(f"tiers.{name}.{direction}_bandwidth")
    return cluster.node.tiers[name].medium == "hbm" and source is not None and source.kind == "datasheet"


def network_of(cluster: Cluster, ranks: float) -> str | None:
    """The link between the nodes of so many ranks: None on one node, BadInput where nobody states it."""
    if cluster.nodes_of(ranks) <= 1:
        return None
    if cluster.node.network is None:
        raise BadInput.of(
            f"{cluster.node.name}: {cluster.nodes} nodes, but no network between them is stated",
            help=STATE_NETWORK,
        )
    return cluster.node.network


STATE_NETWORK = (
    "--set 'links.network={bandwidth: 100 Gbit/s}' --set network=network, or both under `with:` in a "
    "cluster.yaml, with the bandwidth that a node has"
)
"""What to do where several nodes have no network."""


OVER_THE_HOST = "no fabric stated: GPUs exchange over their host links"
