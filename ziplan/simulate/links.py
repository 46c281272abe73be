"""The links of a machine as one rank meets them, and the links that a piece of work crosses.

All ranks do the same at the same time, so what they share is a part for each: a drive array of 8
ranks is an eighth of it. A tier's own medium is a device whose time reads and writes share; links
to the GPU have two directions that do not disturb each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ziplan.hardware.cluster import Cluster
from ziplan.hardware.collectives import pass_latency
from ziplan.hardware.node import Tier
from ziplan.hardware.processors import (
    FEW_THREADS,
    THREADS,
    cpu_optimizer_rate,
    staging_rate,
    thread_rate,
)
from ziplan.hardware.rates import (
    ADAM_BYTES,
    ARITHMETIC,
    GPU,
    OVER_THE_HOST,
    UNLIMITED,
    Assumed,
    Rate,
    network_of,
    sustained_rate,
    tier_rate,
)
from ziplan.laws.contention import shared_link_bandwidth
from ziplan.laws.law import Derivation
from ziplan.runtimes.runtime import COLLECTIVE, FABRIC, HOST_THREAD, NETWORK, PYTHON, alone, bare, staged
from ziplan.units import Launcher, Precision

CPU, SOFTWARE, STAGING = "cpu", "swap software", "staging thread"
IN, OUT = "to GPU", "from GPU"
"""The directions of a link between a GPU and the rest of its node."""


class Path(NamedTuple):
    """What one unit of a resource's work is on the links: so many bytes (or FLOPs), and what they take."""

    scale: float
    uses: tuple[tuple[str, float], ...]


class Machine:
    """The links of one rank: capacity by name, and the path of every resource."""

    def __init__(
        self,
        cluster: Cluster,
        precision: Precision,
        swap_limit: float | None,
        ranks: float,
        slow: Mapping[str, float] | None = None,
        threads: int | Launcher | None = None,
    ) -> None:
        self._cluster, self._node, self._precision = cluster, cluster.node, precision
        self._swap_limit, self._ranks, self._slow = swap_limit, ranks, dict(slow or {})
        self._threads = threads
        self.ranks_per_node = min(float(cluster.node.gpus_per_node), ranks)
        self.capacities: dict[str, float] = {}
        """What each link gives: B/s or FLOP/s, of a tier seconds of its time per second."""
        self.assumptions: dict[str, Assumed] = {}
        self.unknown: dict[str, str] = {}
        """Path of the missing input, by resource."""
        self._paths: dict[str, Path] = {}
        self._between_ranks: Mapping[str, Callable[[], Iterable[tuple[str, float]]]] = {
            "gather": self._gather,
            COLLECTIVE: self._around,
            FABRIC: self._between_gpus,
            NETWORK: self._between_nodes,
        }
        self._duplex = {link for tier in self._node.tiers.values() for link in tier.via}

    def path(self, resource: str) -> Path:
        """The links that work of a resource crosses, slowest parts of it all at once."""
        if resource not in self._paths:
            self._paths[resource] = self._work_out(resource)
        return self._paths[resource]

    def _work_out(self, resource: str) -> Path:
        if not resource:
            return Path(1.0, ())
        if resource in ARITHMETIC:
            return Path(1.0, self._arithmetic(resource))
        if resource == PYTHON:
            return Path(1.0, self._link(PYTHON, 1.0))
        if resource == HOST_THREAD:
            rate = self._known(HOST_THREAD, thread_rate(self._node))
            return Path(1.0, (*self._link(HOST_THREAD, rate), *self._dram("read")))
        if resource == "cpu_optimizer":
            return self._cpu_optimizer()
        if resource in self._between_ranks:
            return Path(1.0, _merged(tuple(self._between_ranks[resource]())))
        return self._of_tier(resource)

    def _of_tier(self, resource: str) -> Path:
        """The way of a tier's bytes."""
        name, moved = bare(resource).rsplit(".", 1)
        tier, by_itself = self._node.tiers[name], alone(resource)
        own = self._medium(name, tier, moved, by_itself)
        if tier.scope == "gpu":
            return Path(1.0, own)
        if ".swap_" in resource:
            limit = () if self._swap_limit is None else self._link(SOFTWARE, self._swap_limit)
            return Path(1.0, (*own, *limit, *self._dram("write" if moved == "read" else "read")))
        way = tuple(
            u for link in tier.via for u in self._part(link, IN if moved == "read" else OUT, by_itself)
        )
        if tier.medium == "dram":
            return Path(1.0, (*own, *way, *(self._staging(tier) if staged(resource) else ())))
        # Direct I/O goes through pinned host memory: written there, and read again.
        return Path(1.0, _merged((*own, *self._dram("write"), *self._dram("read"), *way)))

    def _staging(self, tier: Tier) -> tuple[tuple[str, float], ...]:
        """A rank's thread that copies to pinned memory."""
        rate = self._known(STAGING, staging_rate(self._node, tier))
        return () if rate == UNLIMITED else self._link(STAGING, rate)

    def _arithmetic(self, kind: str) -> tuple[tuple[str, float], ...]:
        """A FLOP of one kind, as what it takes of a GPU whose rate is the sustained one."""
        sustained = self._known(kind, sustained_rate(self._node, self._precision))
        rate = ARITHMETIC[kind](self._node, self._precision).value
        return tuple((link, sustained / rate) for link, _ in self._link(GPU, sustained))

    def _cpu_optimizer(self) -> Path:
        """A node's parameters, as the bytes of DRAM that one rank's share of them moves."""
        found = cpu_optimizer_rate(self._node, self.ranks_per_node, self._threads)
        rate, scale = self._known("cpu_optimizer", found), ADAM_BYTES / self.ranks_per_node
        if found.threads:
            self.assumptions[THREADS] = Assumed(THREADS, found.threads, "1", FEW_THREADS)
        # What memory limits is as slow as memory is.
        limit = self._node.tier_of("dram") if found.dram_limited else ""
        return Path(scale, (*self._link(CPU, rate * scale, alias=limit or ""), *self._dram("read")))

    def _gather(self) -> tuple[tuple[str, float], ...]:
        """The fabric between GPUs (their host links where there is none) and the network of the node."""
        if self._ranks <= 1:
            return ()
        crossed = self._between_gpus()
        if network_of(self._cluster, self._ranks) != self._node.fabric:
            crossed += self._between_nodes()
        return _merged(tuple(crossed))

    def _around(self) -> tuple[tuple[str, float], ...]:
        """Ways around the ring of all ranks: those of one communicator follow each other."""
        if self._ranks <= 1:
            return ()
        latency = pass_latency(Derivation(record=False), self._cluster, self._ranks)
        return self._link(COLLECTIVE, 1 / latency)

    def _between_gpus(self) -> list[tuple[str, float]]:
        """The fabric of a node, or where there is none the GPUs' host links."""
        host, crossed = self._host(), list[tuple[str, float]]()
        if self._node.fabric is not None:
            crossed += self._both(self._node.fabric)
        elif self.ranks_per_node > 1 and host is not None:
            for link in host.via:
                crossed += self._both(link)
            rate = min(self.capacities[link] for link, _ in crossed)
            self.assumptions["fabric"] = Assumed("fabric", rate, "B/s", OVER_THE_HOST)
        return crossed

    def _between_nodes(self) -> list[tuple[str, float]]:
        """The network of the node: in a ring every rank sees the rate at which bytes enter its node."""
        network = network_of(self._cluster, self._ranks)
        if network is None:
            return []
        if network in self._duplex:
            return list(self._both(network))
        return list(self._link(network, self._node.links[network].bandwidth, of=network))

    def _both(self, link: str) -> tuple[tuple[str, float], ...]:
        """A link that is received and sent over at once; one that leads to the GPU has two directions."""
        if link in self._duplex:
            return (*self._part(link, IN), *self._part(link, OUT))
        return self._part(link, "")

    def _part(self, link: str, direction: str, by_itself: bool = False) -> tuple[tuple[str, float], ...]:
        part = self._node.links[link]
        users = min(float(part.shared_by), self.ranks_per_node)
        rate = shared_link_bandwidth(
            link_bandwidth=part.bandwidth, instance_bandwidth=part.bandwidth, user_count=users
        )
        # A link may be called as a tier is, or as a processor.
        shown = f"{link} link" if link in (*self._node.tiers, GPU, CPU, SOFTWARE) else link
        crossed = self._link(f"{shown} {direction}".strip(), rate, of=link)
        share = rate / part.bandwidth if by_itself else 1.0
        return tuple((name, taken * share) for name, taken in crossed)

    def _host(self) -> Tier | None:
        return next((t for t in self._node.tiers.values() if t.medium == "dram" and t.via), None)

    def _dram(self, direction: str) -> tuple[tuple[str, float], ...]:
        name = self._node.tier_of("dram")
        return self._medium(name, self._node.tiers[name], direction) if name else ()

    def _medium(
        self, name: str, tier: Tier, direction: str, by_itself: bool = False
    ) -> tuple[tuple[str, float], ...]:
        """A tier's own medium: what a byte takes of one rank's part of its time."""
        rate = self._known(f"{name}.{direction}", tier_rate(self._cluster, name, direction))
        if rate == UNLIMITED or not rate:
            return ()
        ranks = 1.0 if by_itself or tier.scope == "gpu" else self.ranks_per_node
        alias = "drive" if tier.medium == "nvme" else ""
        ((link, _),) = self._link(name, 1.0, alias=alias)
        return ((link, ranks / rate),)

    def _link(self, name: str, rate: float, of: str = "", alias: str = "") -> tuple[tuple[str, float], ...]:
        """A link of this rate, slowed down where it is asked for."""
        if rate == UNLIMITED or not rate:
            return ()
        asked = [self._slow[key] for key in {of or name, alias, "node"} if key in self._slow]
        factor = 1.0 if name == SOFTWARE else min(asked, default=1.0)
        self.capacities[name] = rate * factor
        return ((name, 1.0),)

    def _known(self, resource: str, rate: Rate) -> float:
        if rate.assumed is not None:
            self.assumptions[rate.assumed.name] = rate.assumed
        if rate.missing:
            self.unknown[resource] = rate.missing
        return rate.value


def slowable(cluster: Cluster) -> list[str]:
    """The names of what can be slowed down on one node."""
    node = cluster.node
    drives = ["drive"] if node.tier_of("nvme") else []
    parts = [GPU, CPU, *node.tiers, *node.links]
    return ["node", *drives, *dict.fromkeys(parts)]


def _merged(uses: tuple[tuple[str, float], ...]) -> tuple[tuple[str, float], ...]:
    """Each link once, with all that is taken of it."""
    taken: dict[str, float] = {}
    for link, amount in uses:
        taken[link] = taken.get(link, 0.0) + amount
    return tuple(taken.items())
