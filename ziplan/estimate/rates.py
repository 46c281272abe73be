"""How fast each resource works for one rank while all ranks work, and what had to be assumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ziplan.estimate.result import Assumption
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
    ADAM_FETCHED,
    ARITHMETIC,
    OVER_THE_HOST,
    UNLIMITED,
    Assumed,
    End,
    Rate,
    network_of,
    tier_rate,
)
from ziplan.laws.contention import path_bandwidth, shared_link_bandwidth
from ziplan.laws.law import Derivation
from ziplan.laws.optimizer import cpu_adam_time, cpu_adam_time_by_bandwidth, cpu_adam_time_by_threads
from ziplan.laws.partition import ring_bandwidth
from ziplan.runtimes.runtime import (
    COLLECTIVE,
    FABRIC,
    HOST_THREAD,
    NETWORK,
    PYTHON,
    Runtime,
    alone,
    bare,
    staged,
    swap_limit,
)
from ziplan.units import Launcher, Precision
from ziplan.workload.training import Workload


class Rates:
    """Rates of one cluster under one runtime, per rank, with every rank at work.

    Rates do not depend on the plan beyond the number of ranks, so one object serves a grid.
    """

    def __init__(
        self,
        derivation: Derivation,
        cluster: Cluster,
        precision: Precision,
        runtime: Runtime,
        ranks: float,
        end: End = "value",
        threads: int | Launcher | None = None,
    ) -> None:
        self._end: End = end
        self._dram_limited, self._threads = False, threads
        self.limiting_threads = 0.0
        """Threads of a node that limit the CPU optimizer, once its rate is asked for; 0 where they do not."""
        self._derivation, self._cluster, self._precision, self._runtime = (
            derivation,
            cluster,
            precision,
            runtime,
        )
        self._node, self._gpus = cluster.node, ranks
        self.ranks_per_node = min(float(cluster.node.gpus_per_node), ranks)
        calibrated, nodes = cluster.calibrated, cluster.nodes_of(ranks)
        hidden = calibrated.hidden(runtime.NAME, nodes) if calibrated is not None else None
        self.overlap = 1.0 if hidden is None else hidden
        """Share of what runs beside the GPU's work that is hidden: all of it where no run shows how much."""
        self._known: dict[str, float] = {}
        self._between_ranks: Mapping[str, Callable[[], float]] = {
            "gather": self._gather,
            COLLECTIVE: self._passes,
            FABRIC: self._fabric,
            NETWORK: self._network,
        }
        self.assumptions: dict[str, Assumption] = {}
        self.unknown: dict[str, str] = {}
        """Path of the missing input, by resource."""

    def of(self, resource: str) -> float:
        """What it does in a second, for one rank.

        FLOPs of the GPU's, parameters of "cpu_optimizer" (the node's), seconds of "python", ways around the
        ring of "collective", else bytes.
        """
        if resource not in self._known:
            self._known[resource] = self._work_out(resource)
        return self._known[resource]

    def _work_out(self, resource: str) -> float:
        if resource in ARITHMETIC:
            return self._stated(resource, ARITHMETIC[resource](self._node, self._precision))
        if resource == PYTHON:
            return 1.0
        if resource == HOST_THREAD:
            return self._stated(resource, thread_rate(self._node))
        if resource == "cpu_optimizer":
            return self._stated(resource, cpu_optimizer_rate(self._node, self.ranks_per_node, self._threads))
        if resource in self._between_ranks:
            return self._between_ranks[resource]()
        name, direction = bare(resource).rsplit(".", 1)
        tier = self._node.tiers[name]
        if ".swap_" in resource:
            return self._swap(name, direction)
        rate = self._to_gpu(name, tier, direction, alone(resource))
        return min(rate, self._stated(resource, staging_rate(self._node, tier))) if staged(resource) else rate

    def _stated(self, resource: str, rate: Rate) -> float:
        """The rate, with what it was assumed from or lacks noted."""
        if rate.assumed is not None:
            self._assume(rate.assumed)
        if rate.missing:
            self.unknown[resource] = rate.missing
        if resource == "cpu_optimizer":
            self._dram_limited = rate.dram_limited
            self.limiting_threads = rate.threads
        return rate.at(self._end)

    def said(self) -> Iterator[Assumption]:
        """What was assumed, how much is really hidden, and threads that limit the CPU optimizer."""
        yield from self.assumptions.values()
        calibrated = self._cluster.calibrated
        if calibrated is not None and self.overlap < 1:
            where = "several nodes" if self._cluster.nodes_of(self._gpus) > 1 else "one node"
            source = f"calibrated from {calibrated.source}, runs on {where}"
            yield Assumption("overlap", self.overlap, "1", "calibrated", source)
        if self.limiting_threads:
            yield Assumption(THREADS, self.limiting_threads, "1", "stated", FEW_THREADS)

    def update_time(self, derivation: Derivation, label: str, params: float) -> float:
        """Seconds in which a node's processors update so many parameters, by the law that limits them."""
        rate = self.of("cpu_optimizer")
        if self.limiting_threads:
            return derivation.apply(
                cpu_adam_time_by_threads,
                label,
                params=params,
                fetched_bytes_per_param=ADAM_FETCHED,
                thread_count=self.limiting_threads,
                core_bandwidth=rate * ADAM_FETCHED / self.limiting_threads,
            )
        if not self._dram_limited:
            return derivation.apply(cpu_adam_time, label, params=params, cpu_adam_params_per_s=rate)
        return derivation.apply(
            cpu_adam_time_by_bandwidth,
            label,
            params=params,
            optimizer_bytes_per_param=ADAM_BYTES,
            dram_bandwidth=rate * ADAM_BYTES,
        )

    def _network(self) -> float:
        between = network_of(self._cluster, self._gpus)
        return UNLIMITED if between is None else self._node.links[between].bandwidth

    def _passes(self) -> float:
        """Ways around the ring of all ranks in a second."""
        alone_here = self._gpus <= 1
        return UNLIMITED if alone_here else 1 / pass_latency(self._derivation, self._cluster, self._gpus)

    def _gather(self) -> float:
        if self._gpus <= 1:
            return UNLIMITED
        inside, network = self._fabric(), network_of(self._cluster, self._gpus)
        if network is None:
            return inside
        return self._derivation.apply(
            ring_bandwidth,
            "what a rank receives in a ring over nodes",
            fabric_bandwidth=inside,
            node_network_bandwidth=self._node.links[network].bandwidth,
        )

    def _fabric(self) -> float:
        if self._node.fabric is not None:
            return self._share("fabric", self._node.fabric)
        host = next((t for t in self._node.tiers.values() if t.medium == "dram" and t.via), None)
        if self.ranks_per_node <= 1 or host is None:
            return UNLIMITED
        rate = self._path("GPU to GPU over the host", host.via)
        self._assume(Assumed("fabric", rate, "B/s", OVER_THE_HOST))
        return rate

    def _share(self, label: str, link: str, by_itself: bool = False) -> float:
        part = self._node.links[link]
        return self._derivation.apply(
            shared_link_bandwidth,
            label,
            link_bandwidth=part.bandwidth,
            instance_bandwidth=part.bandwidth,
            user_count=1.0 if by_itself else min(float(part.shared_by), self.ranks_per_node),
        )

    def _path(
        self, label: str, links: tuple[str, ...], start: float = UNLIMITED, by_itself: bool = False
    ) -> float:
        rate = start
        for link in links:
            share = self._share(f"{label}: {link}", link, by_itself)
            rate = (
                share
                if rate == UNLIMITED
                else self._derivation.apply(path_bandwidth, label, near_bandwidth=share, far_bandwidth=rate)
            )
        return rate

    def _to_gpu(self, name: str, tier: Tier, direction: str, by_itself: bool) -> float:
        own = self._own(name, direction)
        if tier.scope == "gpu":
            return own
        label = f"{name} {direction}, one rank at a time" if by_itself else f"{name} {direction}"
        return self._path(label, tier.via, own if by_itself else own / self.ranks_per_node, by_itself)

    def _own(self, name: str, direction: str) -> float:
        return self._stated(f"{name}.{direction}", tier_rate(self._cluster, name, direction))

    def _swap(self, name: str, direction: str) -> float:
        device = self._own(name, direction) / self.ranks_per_node
        limit = swap_limit(self._cluster, self._runtime)
        if limit is None:
            return device
        return self._derivation.apply(
            path_bandwidth, f"{name} {direction} of one process", near_bandwidth=limit, far_bandwidth=device
        )

    def _assume(self, value: Assumed) -> None:
        self.assumptions[value.name] = Assumption(
            value.name, value.value, value.unit, "assumed", value.source, value.low, value.high
        )


def rates_of(
    derivation: Derivation,
    cluster: Cluster,
    workload: Workload,
    runtime: Runtime,
    ranks: float,
    end: End = "value",
) -> Rates:
    """What a rank of a workload gets of each resource while so many work."""
    threads = workload.training.optimizer_threads
    return Rates(derivation, cluster, workload.precision, runtime, ranks, end, threads)
