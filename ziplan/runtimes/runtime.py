"""What a runtime tells about a plan: its memory ledger, its step program, its files.

Amounts are scalars for one plan and arrays for a grid of plans (statically `float`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ziplan.hardware.cluster import Cluster
from ziplan.hardware.rates import ARITHMETIC
from ziplan.laws.law import Derivation, Step
from ziplan.plan import Plan
from ziplan.runtimes.refusal import Refusal
from ziplan.workload.training import Workload

if TYPE_CHECKING:
    from ziplan.runtimes.schedule import Schedule

PHASES = ("load", "init", "forward", "backward", "step", "save")
MEMLOCK = "memlock"
"""The tier of ledger lines that count against the limit of what one process may lock (`ulimit -l`)."""

TRAINING = ("forward", "backward", "step")
RUNNING = ("init", "forward", "backward", "step", "save")


PYTHON = "python"
"""Seconds of the Python thread that launches what the GPU does."""

COLLECTIVE = "collective"
"""Ways around the ring of all ranks, each of which takes its time however few its bytes are."""

HOST_THREAD = "host_thread"
"""Bytes of host memory that one thread of each rank reads, while the rank's others wait for it."""

NOT_BYTES = (*ARITHMETIC, PYTHON, "cpu_optimizer", COLLECTIVE, HOST_THREAD)
"""Resources whose amounts are no bytes that move between tiers or ranks."""

FABRIC, NETWORK = "fabric", "network"
"""Bytes between the GPUs of a node, and bytes between nodes, apart: "gather" is a ring over all of both."""


class Line(NamedTuple):
    """One line of a ledger: so many bytes of one tier in some phases.

    Bytes are those of one instance of the tier: of one GPU where its scope is the GPU, of one
    node where it is the node. `knob` names the config key or input that would change the line,
    `step` is the law application that gave `high`, where one is recorded.
    """

    name: str
    tier: str
    phases: tuple[str, ...]
    low: float
    high: float
    pinned: bool = False
    knob: str = ""
    step: Step | None = None


class Ledger:
    """All lines of a plan; sums them by tier and phase."""

    def __init__(self, derivation: Derivation) -> None:
        self.lines: list[Line] = []
        self._derivation = derivation
        self._sums: dict[tuple[str, str], tuple[float, float]] = {}

    def add(
        self,
        name: str,
        tier: str,
        phases: tuple[str, ...],
        high: float,
        *,
        low: float | None = None,
        pinned: bool = False,
        knob: str = "",
    ) -> None:
        """Enter a line; `low` equals `high` unless given. Its law is the last one that gave `high`."""
        step = self._derivation.latest(high)
        self.lines.append(Line(name, tier, phases, high if low is None else low, high, pinned, knob, step))
        self._sums.clear()

    def tiers(self) -> list[str]:
        """Names of the tiers that have a line, in order of first mention."""
        return list(dict.fromkeys(line.tier for line in self.lines))

    def need(self, tier: str, phase: str) -> tuple[float, float]:
        """Bytes needed of `tier` in `phase`: (low, high)."""
        known = self._sums.get((tier, phase))
        if known is None:
            lines = [line for line in self.lines if line.tier == tier and phase in line.phases]
            known = total(line.low for line in lines), total(line.high for line in lines)
            self._sums[tier, phase] = known
        return known


def total(amounts: Iterable[float]) -> float:
    """The sum in the order given, so that a plan alone and in a grid comes to the same bits."""
    result: Any = 0.0
    for amount in amounts:
        result = result + amount
    return float(result) if np.ndim(result) == 0 else result


class Demand(NamedTuple):
    """So much work of one resource: bytes of a tier or link, FLOPs, or parameters to update.

    `resource` is one of `ziplan.hardware.rates.ARITHMETIC` (FLOPs), "python" (seconds of its thread),
    "cpu_optimizer" (parameters of the whole node), "host_thread" (bytes that one thread of a rank reads where
    they are), "gather" (bytes received per rank), "fabric" (bytes
    between the GPUs of a node, per rank), "network" (bytes that leave a node), "collective" (ways around the
    ring of all ranks, whatever their bytes), "<tier>.read" or
    "<tier>.write" (bytes per rank between tier and GPU; of the GPU's own tier, through its memory), or
    "<tier>.swap_read" / "<tier>.swap_write" (bytes per rank between tier and DRAM). With `ALONE` bytes
    between tier and GPU cross while no other rank's do; with `OF_OTHERS` at the end they are those of other
    ranks, which this one waits for. With `STAGED` they come from memory that is not pinned or go there, and a
    thread of the rank copies them to or from pinned memory.
    """

    term: str
    resource: str
    amount: float


def scaled(demands: Iterable[Demand], share: float) -> list[Demand]:
    """A share of each demand, as work of its own; none where there is nothing of it."""
    if np.ndim(share) == 0 and share == 0:
        return []
    if np.ndim(share) == 0 and share == 1:
        return list(demands)
    there = (d for d in demands if np.ndim(d.amount) or d.amount)
    return [Demand(d.term, d.resource, d.amount * share) for d in there]


ALONE, OF_OTHERS, STAGED = "_alone", "_of_others", "_staged"


def bare(resource: str) -> str:
    """A resource of a tier as "<tier>.read" or "<tier>.write", whoever moves what."""
    return resource.replace("swap_", "").removesuffix(OF_OTHERS).removesuffix(ALONE).removesuffix(STAGED)


def staged(resource: str) -> bool:
    """Whether its bytes come from memory that is not pinned, or go there."""
    return STAGED in resource


def alone(resource: str) -> bool:
    """Whether its bytes cross while those of no other rank do."""
    return resource.removesuffix(OF_OTHERS).endswith(ALONE)


class Segment(NamedTuple):
    """A stretch of the step. Demands of one chain follow each other; chains run at once.

    An `idle` one takes the time of its demands without doing them: others work, and are waited for. `ways` go
    through several chains: parts of what is in those, one after the other, and no work of their own.
    """

    name: str
    repeats: float
    chains: tuple[tuple[Demand, ...], ...]
    idle: bool = False
    ways: tuple[tuple[Demand, ...], ...] = ()


class Axis(NamedTuple):
    """A search axis: plan fields that vary together, one value each per choice, best first among equals."""

    name: str
    choices: tuple[Mapping[str, Any], ...]


def swap_limit(cluster: Cluster, runtime: Runtime) -> float | None:
    """B/s that one process swaps at the most: the machine's, else the runtime's; None where it has none."""
    if runtime.SWAP_LIMIT is None or cluster.node.swap_limit is None:
        return runtime.SWAP_LIMIT
    return cluster.node.swap_limit


class Runtime(Protocol):
    """What a runtime's folder provides (modules satisfy it).

    What a plan holds and moves depends on the model, the plan, the GPUs and which tiers there are, never on
    how fast a link or tier is, nor on how much a node's tier holds: the solver relies on it.
    """

    NAME: str
    VERSION: str
    SWAP_LIMIT: float | None
    """B/s that one process swaps at the most where a machine does not state it (`swap_limit`)."""
    SWAP_LIMIT_SOURCE: str

    def refusals(self, cluster: Cluster, workload: Workload, plan: Plan) -> list[Refusal]:
        """Why the runtime cannot express this plan; empty when it can."""

    def homes(self, cluster: Cluster, plan: Plan) -> Sequence[str]:
        """Tiers that parameters, gradients or optimizer state can be in under such a plan, nearest first."""

    def axes(self, cluster: Cluster, workload: Workload, code_changes: bool = False) -> Sequence[Axis]:
        """The search space; `code_changes` adds what needs the user's model changed."""

    def settle(self, cluster: Cluster, workload: Workload, plan: Plan) -> Plan:
        """The plan with the fields that follow from the others at their smallest sufficient values."""

    def ledger(self, derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan) -> Ledger:
        """Bytes by tier and phase, line by line."""

    def program(
        self, derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan
    ) -> Sequence[Segment]:
        """The step as segments of resource demands."""

    def step_schedule(self, cluster: Cluster, workload: Workload, plan: Plan, **options: Any) -> Schedule:
        """The step piece by piece: what follows what, and which buffers it holds; for the simulator."""

    def emit(
        self, cluster: Cluster, workload: Workload, plan: Plan, nvme_path: str = ..., trainer: str = ...
    ) -> dict[str, str]:
        """Files that make the runtime run this plan, name to text; `trainer` is who runs the loop."""
