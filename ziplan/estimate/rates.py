"""How fast each resource works for one rank while all ranks work, and what had to be assumed."""

from __future__ import annotations

from ziplan.errors import BadInput
from ziplan.estimate.result import Assumption
from ziplan.hardware.cluster import Cluster
from ziplan.hardware.node import Tier
from ziplan.laws.contention import path_bandwidth, shared_link_bandwidth
from ziplan.laws.law import Derivation
from ziplan.laws.partition import ring_bandwidth
from ziplan.runtimes.runtime import Runtime
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


class Rates:
    """Rates of one cluster under one runtime, per rank, with every rank at work.

    Rates do not depend on the plan beyond the number of ranks, so one object serves a grid.
    """

    def __init__(
        self, derivation: Derivation, cluster: Cluster, precision: Precision, runtime: Runtime, ranks: float
    ) -> None:
        self._derivation, self._cluster, self._precision, self._runtime = (
            derivation,
            cluster,
            precision,
            runtime,
        )
        self._node, self._gpus = cluster.node, ranks
        self.ranks_per_node = min(float(cluster.node.gpus_per_node), ranks)
        self._known: dict[str, float] = {}
        self.assumptions: dict[str, Assumption] = {}
        self.unknown: dict[str, str] = {}
        """Path of the missing input, by resource."""

    def of(self, resource: str) -> float:
        """FLOP/s of "gpu", param/s of "cpu_optimizer" (the node's), else B/s of one rank."""
        if resource not in self._known:
            self._known[resource] = self._work_out(resource)
        return self._known[resource]

    def _work_out(self, resource: str) -> float:
        if resource == "gpu":
            return self._sustained()
        if resource == "cpu_optimizer":
            return self._cpu_optimizer()
        if resource == "gather":
            return self._gather()
        name, direction = resource.rsplit(".", 1)
        tier = self._node.tiers[name]
        if direction.startswith("swap_"):
            return self._swap(name, tier, direction.removeprefix("swap_"))
        return self._to_gpu(name, tier, direction)

    def _sustained(self) -> float:
        gpu, precision = self._node.gpu, self._precision
        if precision in gpu.sustained_flops_per_s:
            return gpu.sustained_flops_per_s[precision]
        if precision == "fp32" and precision not in gpu.peak_flops_per_s:
            # Every GPU computes in fp32; how fast, nobody has said.
            self.unknown["gpu"] = f"gpu.peak_flops_per_s.{precision}"
            return UNKNOWN
        if precision not in gpu.peak_flops_per_s:
            known = ", ".join(sorted(gpu.peak_flops_per_s))
            raise BadInput.of(
                f"{gpu.name} has no known rate for precision {precision}",
                help=f"train in {known}, or state `gpu.sustained_flops_per_s.{precision}`",
            )
        peak = gpu.peak_flops_per_s[precision]
        ceiling = gpu.matmul_flops_per_s.get(precision, peak)
        rate, low, high = (min(share * peak, ceiling) for share in ACHIEVABLE_SHARE)
        self._assume("gpu.sustained_flops_per_s", rate, "FLOP/s", ACHIEVABLE_SOURCE, low, high)
        return rate

    def _cpu_optimizer(self) -> float:
        stated = self._node.cpu.adam_params_per_s
        if stated is not None:
            return stated
        host = self._node.tier_of("dram")
        dram = self._node.tiers[host] if host else None
        if dram is None or dram.read_bandwidth is None:
            rate, low, high = (bandwidth / ADAM_BYTES for bandwidth in ADAM_BANDWIDTH)
            self._assume("cpu.adam_params_per_s", rate, "param/s", ADAM_SOURCE, low, high)
            return rate
        peak = dram.read_bandwidth / ADAM_BYTES
        source = (
            f"{DRAM_SHARE:.0%} of the DRAM bandwidth at {ADAM_BYTES:.0f} bytes per parameter "
            "(0.43 on DGX-2, arXiv:2101.06840 table 4)"
        )
        self._assume("cpu.adam_params_per_s", DRAM_SHARE * peak, "param/s", source, 0.3 * peak, peak)
        return DRAM_SHARE * peak

    def _gather(self) -> float:
        if self._gpus <= 1:
            return UNLIMITED
        inside = self._fabric()
        if self._cluster.nodes <= 1:
            return inside
        if self._node.network is None:
            raise BadInput.of(
                f"{self._node.name}: {self._cluster.nodes} nodes, but no network between them is stated",
                help="state a link and name it in `network`",
            )
        return self._derivation.apply(
            ring_bandwidth,
            "what a rank receives in a ring over nodes",
            fabric_bandwidth=inside,
            node_network_bandwidth=self._node.links[self._node.network].bandwidth,
        )

    def _fabric(self) -> float:
        if self._node.fabric is not None:
            return self._share("fabric", self._node.fabric)
        host = next((t for t in self._node.tiers.values() if t.medium == "dram" and t.via), None)
        if self.ranks_per_node <= 1 or host is None:
            return UNLIMITED
        rate = self._path("GPU to GPU over the host", host.via)
        self._assume(
            "fabric", rate, "B/s", "no fabric stated: GPUs exchange over their host links", None, None
        )
        return rate

    def _share(self, label: str, link: str) -> float:
        part = self._node.links[link]
        return self._derivation.apply(
            shared_link_bandwidth,
            label,
            link_bandwidth=part.bandwidth,
            instance_bandwidth=part.bandwidth,
            user_count=min(float(part.shared_by), self.ranks_per_node),
        )

    def _path(self, label: str, links: tuple[str, ...], start: float = UNLIMITED) -> float:
        rate = start
        for link in links:
            share = self._share(f"{label}: {link}", link)
            rate = (
                share
                if rate == UNLIMITED
                else self._derivation.apply(path_bandwidth, label, near_bandwidth=share, far_bandwidth=rate)
            )
        return rate

    def _to_gpu(self, name: str, tier: Tier, direction: str) -> float:
        own = self._own(name, tier, direction)
        if tier.scope == "gpu":
            return own
        return self._path(f"{name} {direction}", tier.via, own / self.ranks_per_node)

    def _own(self, name: str, tier: Tier, direction: str) -> float:
        stated = tier.read_bandwidth if direction == "read" else tier.write_bandwidth
        if stated is None and tier.medium != "nvme":
            return tier.read_bandwidth if tier.read_bandwidth is not None else UNLIMITED
        if stated is None and direction == "write" and tier.read_bandwidth is not None:
            source = "no sustained write rate is known for the drive: taken as its read rate, an upper bound"
            self._assume(
                f"tiers.{name}.write_bandwidth", tier.read_bandwidth, "B/s", source, None, tier.read_bandwidth
            )
            return tier.read_bandwidth
        if stated is None:
            self.unknown[f"{name}.{direction}"] = f"tiers.{name}.{direction}_bandwidth"
            return UNKNOWN
        return stated

    def _swap(self, name: str, tier: Tier, direction: str) -> float:
        device = self._own(name, tier, direction) / self.ranks_per_node
        limit = self._runtime.SWAP_LIMIT
        if limit is None:
            return device
        return self._derivation.apply(
            path_bandwidth, f"{name} {direction} of one process", near_bandwidth=limit, far_bandwidth=device
        )

    def _assume(
        self, name: str, value: float, unit: str, source: str, low: float | None, high: float | None
    ) -> None:
        self.assumptions[name] = Assumption(name, value, unit, "assumed", source, low, high)
