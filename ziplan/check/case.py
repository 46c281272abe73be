"""What the rules read: the config, the plan it comes to, and what is predicted of that plan.

Each fact is worked out once, when a rule first asks for it, by the module that owns it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ziplan.errors import BadInput
from ziplan.estimate import Estimate, TierMemory, estimate
from ziplan.files.document import Document, Path
from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes.runtime import Line, Runtime
from ziplan.workload.training import Training, Workload

if TYPE_CHECKING:
    from ziplan.check.launch import Launch
    from ziplan.check.policy import Gates
    from ziplan.runtimes.deepspeed.facts import Facts
    from ziplan.runtimes.deepspeed.reading.read import Trainer
    from ziplan.runtimes.deepspeed.reading.remarks import Remark
    from ziplan.runtimes.deepspeed.reading.settings import Settings
    from ziplan.simulate.step import Simulation
    from ziplan.solve.problem import Problem

Form = Literal["deepspeed", "accelerate", "arguments", "command", "plan"]

STATES = ("params", "grads", "optimizer")

SHARDED_FROM = 3
"""The stage from which parameters are divided."""


@dataclass(frozen=True, eq=False, repr=False)
class Case:
    """One config on one machine.

    `plan` is None where the config is refused before it comes to one. `settings` and `values` are
    DeepSpeed's, None under another runtime; for a plan.yaml they are those that are written for it.
    """

    document: Document
    form: Form
    cluster: Cluster
    workload: Workload
    runtime: Runtime
    plan: Plan | None
    settings: Settings | None = None
    values: Mapping[str, Any] | None = None
    remarks: tuple[Remark, ...] = ()
    launch: Launch | None = None
    inner: Document | None = None
    """What the DeepSpeed config stands in, at `within`, where that is a file that `document` names."""
    within: Path = ()
    trainer: Trainer = "none"
    """Who reads the config before DeepSpeed does."""
    other_plan: Plan | None = None
    """The plan under the other value of an input that nobody stated."""
    asked: Training | None = None
    """Training settings as the model's file and the command line state them, before the config's own."""
    gates: Gates | None = None
    baseline: Case | None = None
    max_regress: float = 0.0
    """Share by which a token may take longer than under `baseline`."""

    @property
    def file(self) -> str:
        """What the config is called."""
        return self.document.name

    @property
    def foreign(self) -> bool:
        """Whether somebody else than ziplan wrote it."""
        return self.form != "plan"

    @property
    def documents(self) -> tuple[tuple[Document, Path], ...]:
        """The files that findings are about, each with where in it the config is."""
        named = ((self.inner, self.within),) if self.inner is not None else ()
        return (*named, (self.document, ()))

    def place(self, key: str, field: str) -> tuple[str, str, int, int]:
        """(file, path, line, column) of a DeepSpeed key or a plan's field, whichever the file is made of."""
        name = key if self.foreign else field
        if self.foreign and self.runtime.NAME == "fsdp":
            from ziplan.runtimes.fsdp.reading import key_of

            name = key_of(field)
        document, within = self.documents[0]
        place = document.locate((*within, *steps(name)), key=True)
        return document.name, name, place.line, place.column

    @cached_property
    def estimate(self) -> Estimate | None:
        """What is predicted of the plan; None where there is none."""
        if self.plan is None:
            return None
        return estimate(self.cluster, self.workload, self.runtime, self.plan)

    @cached_property
    def other(self) -> Estimate | None:
        """What is predicted under the other value of an input that nobody stated."""
        if self.other_plan is None:
            return None
        return estimate(self.cluster, self.workload, self.runtime, self.other_plan)

    @cached_property
    def whole(self) -> Estimate | None:
        """What is predicted without zero.Init; None where that is stated, or the stage has no use for it."""
        loading = self.workload.training.loading
        if self.plan is None or self.plan.zero_stage < SHARDED_FROM or loading.zero_init is not None:
            return None
        stated = {"loading": loading.model_copy(update={"zero_init": False})}
        workload = replace(self.workload, training=self.workload.training.model_copy(update=stated))
        return estimate(self.cluster, workload, self.runtime, self.plan)

    @property
    def nodes(self) -> int:
        """Nodes that ranks are on; all of the cluster's where there is no plan."""
        return self.cluster.nodes if self.plan is None else self.cluster.nodes_of(self.plan.gpus)

    @property
    def ranks_per_node(self) -> int:
        """Ranks of a node; 0 where there is no plan."""
        if self.plan is None:
            return 0
        ranks = self.plan.gpus
        return min(self.cluster.node.gpus_per_node, int(ranks))

    @cached_property
    def with_cores_divided(self) -> Estimate | None:
        """What is predicted where the cores of a node are divided among its ranks."""
        if self.plan is None:
            return None
        training = self.workload.training.model_copy(update={"optimizer_threads": "bound"})
        return estimate(self.cluster, replace(self.workload, training=training), self.runtime, self.plan)

    @cached_property
    def memory(self) -> Mapping[str, TierMemory]:
        """Need and availability of every tier, over both values of what nobody stated."""
        if self.estimate is None:
            return {}
        if self.other is None:
            return self.estimate.memory
        both = zip(self.estimate.memory.items(), self.other.memory.values(), strict=True)
        return {name: _either(memory, other) for (name, memory), other in both}

    @property
    def problem(self) -> Problem | None:
        """The question that the config is one answer to: a plan for the same batch; None without a plan."""
        from ziplan.runtimes import RUNTIMES
        from ziplan.solve.problem import Problem

        if self.plan is None:
            return None
        sequences = int(self.plan.micro_batch_size * self.plan.accumulation_steps * self.plan.dp_degree)
        asked = {"global_batch_size": sequences, "micro_batch_size": None, "accumulation_steps": None}
        workload = replace(self.workload, training=self.workload.training.model_copy(update=asked))
        return Problem(self.cluster, workload, RUNTIMES[self.runtime.NAME])

    @cached_property
    def best(self) -> Estimate | None:
        """The best plan for the same batch and machine; None where there is none to compare with."""
        from ziplan.solve.enumerate import evaluated, solved

        problem = self.problem
        if problem is None:
            return None
        try:
            grid, found = solved(problem)
        except BadInput:
            return None
        return evaluated(problem, grid, found[0], record=False)

    @cached_property
    def _played(self) -> Simulation | str | None:
        from ziplan.simulate.engine import Stuck
        from ziplan.simulate.step import simulate

        # A job of several models has no schedule of its own.
        if self.plan is None or self.workload.companions:
            return None
        try:
            return simulate(self.cluster, self.workload, self.runtime, self.plan)
        except Stuck as error:
            return str(error)

    @property
    def simulation(self) -> Simulation | None:
        """A step of the plan, played; None where a step cannot be."""
        return None if isinstance(self._played, str) else self._played

    @property
    def stuck(self) -> str:
        """What the played step waits for and never gets; empty where it goes on."""
        return self._played if isinstance(self._played, str) else ""

    @property
    def hides_less(self) -> bool:
        """Whether a calibration says that less is hidden behind the GPU's work than a played step hides."""
        calibrated = self.cluster.calibrated
        hidden = calibrated.hidden(self.runtime.NAME, self.nodes) if calibrated is not None else None
        return hidden is not None and hidden < 1

    @property
    def step_time(self) -> float:
        """Seconds of a step as it is played, else as it is estimated; NaN where it is unknown."""
        if self.simulation is not None and not self.hides_less:
            return self.simulation.makespan
        return self.estimate.step_time if self.estimate is not None else math.nan

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of all ranks, by `step_time`; NaN where it is unknown."""
        return self.estimate.tokens_per_step / self.step_time if self.estimate is not None else math.nan

    @property
    def stall_fraction(self) -> float:
        """Share of the played step in which the GPU waits; NaN where it is unknown."""
        simulation = self.simulation
        return simulation.tally.stalled / simulation.makespan if simulation is not None else math.nan

    @cached_property
    def facts(self) -> Facts | None:
        """Shards, sub-groups and shares in DeepSpeed's terms; None under another runtime."""
        from ziplan.runtimes.deepspeed.facts import Facts

        if self.plan is None or self.settings is None:
            return None
        stated = self.settings if self.foreign else None
        return Facts(Derivation(), self.cluster, self.workload, self.plan, stated)

    @cached_property
    def live_tensors(self) -> float:
        """Most parameter tensors that are gathered or on their way at once, under the settings as stated."""
        from ziplan.runtimes.deepspeed.coordinator import Policy
        from ziplan.runtimes.deepspeed.fetches import fetches
        from ziplan.runtimes.deepspeed.knobs import REENTRANT

        if self.plan is None or self.settings is None:
            return 0.0
        policy = Policy(
            self.settings.prefetch_bucket_size,
            self.settings.max_live_parameters,
            self.settings.max_reuse_distance,
            self.settings.param_persistence_threshold,
            leaves=self.settings.leaf_classes,
        )
        played = fetches(self.workload.model, int(self.plan.activation_checkpointing), REENTRANT, policy)
        return float(played.peak_tensors)

    @property
    def gpu(self) -> str:
        """Name of the tier that is a GPU's own memory."""
        return self.cluster.node.gpu_tier

    @property
    def host(self) -> str | None:
        """Name of the DRAM tier."""
        return self.cluster.node.tier_of("dram")

    @property
    def nvme(self) -> str | None:
        """Name of the NVMe tier."""
        return self.cluster.node.tier_of("nvme")

    def share(self, state: str, tier: str | None) -> float:
        """The fraction of a kind of state ("params", ...) that the plan puts on a tier."""
        homes: Mapping[str, float] = getattr(self.plan.placement, state) if self.plan else {}
        return float(homes.get(tier, 0.0)) if tier else 0.0

    def off_gpu(self, states: Iterable[str] = STATES) -> list[str]:
        """Tiers outside the GPU that hold some of these states."""
        tiers = [name for name in self.cluster.node.tiers if name != self.gpu]
        return [name for name in tiers if any(self.share(state, name) > 0 for state in states)]

    def line(self, name: str, tier: str | None) -> Line | None:
        """The line of the ledger called `name`, where it holds anything."""
        found = self.lines(tier, name)
        return found[0] if found else None

    def lines(self, tier: str | None, *names: str) -> list[Line]:
        """Lines of a tier that hold anything, largest first: those of these names, or all."""
        if self.estimate is None:
            return []
        there = (line for line in self.estimate.ledger.lines if line.tier == tier and line.high > 0)
        kept = [line for line in there if not names or line.name in names]
        return sorted(kept, key=lambda line: -line.high)

    def available(self, tier: str | None) -> float:
        """Bytes of a tier after the reserve; 0 where there is no such tier."""
        memory = self.estimate.memory.get(tier) if self.estimate is not None and tier else None
        return memory.available if memory is not None else 0.0

    def terms(self, *resources: str) -> float:
        """Seconds of the step that wait for these resources ("gather", "nvme.swap_read", ...)."""
        return sum(time for term, time in self.exposed() if set(resources) & self.resources_of(term))

    def exposed(self) -> Iterator[tuple[str, float]]:
        """The step's terms and their seconds."""
        if self.estimate is not None:
            yield from self.estimate.terms.items()

    def resources_of(self, term: str) -> set[str]:
        """What a term of the step works on."""
        assert self.estimate is not None
        chains = (chain for segment in self.estimate.segments for chain in segment.chains)
        return {d.resource for chain in chains for d in chain if d.term == term and d.amount > 0}

    def terms_in(self, segment: str, *resources: str) -> float:
        """Seconds of the step exposed in a segment of its program ("optimizer step"), of some resources or "
        "all."""
        if self.estimate is None:
            return 0.0
        names = {
            d.term for s in self.estimate.segments if s.name == segment for chain in s.chains for d in chain
        }
        elsewhere = {
            d.term for s in self.estimate.segments if s.name != segment for chain in s.chains for d in chain
        }
        kept = [
            term for term in names - elsewhere if not resources or set(resources) & self.resources_of(term)
        ]
        return sum(time for term, time in self.exposed() if term in kept)


def _either(one: TierMemory, other: TierMemory) -> TierMemory:
    """The need of one or the other: the lower low end and the higher high end of each phase."""
    pairs = {phase: (one.phases[phase], other.phases[phase]) for phase in one.phases}
    phases = {phase: (min(a[0], b[0]), max(a[1], b[1])) for phase, (a, b) in pairs.items()}
    return replace(one, phases=phases)


def steps(path: str) -> Path:
    """A dotted path as the steps of a document."""
    return tuple(path.split(".")) if path else ()
