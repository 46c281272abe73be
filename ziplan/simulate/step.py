"""One training step, played: the runtime's own schedule on the links of the machine.

From bytes, FLOPs and bandwidths only: nothing here knows what the estimate says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ziplan.hardware.cluster import Cluster
from ziplan.hardware.rates import Assumed
from ziplan.plan import Plan
from ziplan.runtimes.runtime import Runtime, bare, swap_limit
from ziplan.runtimes.schedule import OWN, Buffers, Schedule, Stage, Work
from ziplan.simulate.engine import UNLIMITED, Played, Pool, Task, Tokens, play
from ziplan.simulate.links import Machine
from ziplan.simulate.trace import Tally, Watched, tally
from ziplan.workload.training import Workload

ROUNDS = (2, 3, 4)
"""Repetitions that are played to see what one more adds; what reaches into the next is past by then."""

PERIODIC = 1e-6
"""How alike two repetitions must be for the others to be taken as alike."""

MOST_ROUNDS = 64
"""Repetitions that are played at the most where no two are alike."""

OTHERS = "other ranks' "
"""What the links of ranks that are not the slow one are called."""


class StagePlayed(NamedTuple):
    """A stage of the step: how often it happens, how much of it was played, and what came of it."""

    name: str
    repeats: int
    rounds: int
    watched: Watched
    tally: Tally
    """Of all repetitions."""


@dataclass(frozen=True)
class Simulation:
    """A step played from its first event to its last. Bytes are one rank's."""

    cluster: Cluster
    workload: Workload
    runtime: Runtime
    plan: Plan
    stages: tuple[StagePlayed, ...]
    tally: Tally
    """Of the whole step."""
    buffers: tuple[Buffers, ...]
    capacities: Mapping[str, float]
    assumptions: tuple[Assumed, ...]
    conventions: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    slow: Mapping[str, float] = field(default_factory=dict)

    @property
    def makespan(self) -> float:
        """Seconds from the first event of the step to its last; NaN where an input is missing."""
        return math.nan if self.unknown else self.tally.span


def simulate(
    cluster: Cluster,
    workload: Workload,
    runtime: Runtime,
    plan: Plan,
    slow: Mapping[str, float] | None = None,
    **options: Any,
) -> Simulation:
    """Play a step of `plan`.

    `slow` makes parts of one node slower ("drive", "node" or a name of `slowable`, to a factor); its
    ranks are then the ones watched, and the ranks of other nodes are played beside them. `options`
    are the runtime's.
    """
    schedule = runtime.step_schedule(cluster, workload, plan, **options)
    ranks = float(plan.gpus)
    limit = swap_limit(cluster, runtime)
    threads = workload.training.optimizer_threads
    machines = [Machine(cluster, workload.precision, limit, ranks, slow, threads)]
    if slow and ranks > machines[0].ranks_per_node:
        machines.append(Machine(cluster, workload.precision, limit, ranks, threads=threads))
    player = _Player(machines, schedule, cluster.node.gpu_tier, int(ranks))
    stages = [] if player.unknown() else [player.stage(stage) for stage in schedule.stages]
    return Simulation(
        cluster=cluster,
        workload=workload,
        runtime=runtime,
        plan=plan,
        stages=tuple(stages),
        tally=sum((stage.tally for stage in stages), Tally()),
        buffers=schedule.buffers,
        capacities=player.capacities,
        assumptions=tuple(machines[0].assumptions.values()),
        conventions=schedule.conventions,
        unknown=player.unknown(),
        slow=dict(slow or {}),
    )


class _Player:
    """Turns the work of a schedule into the engine's tasks, on numbered links and pools."""

    def __init__(self, machines: Sequence[Machine], schedule: Schedule, gpu_tier: str, ranks: int) -> None:
        self.machines, self.schedule, self.gpu_tier, self.ranks = machines, schedule, gpu_tier, ranks
        self.links: dict[str, int] = {}
        self.rates: list[float] = []
        self.pools = [
            Pool(buffers.name, UNLIMITED if buffers.gauge else buffers.capacity)
            for _ in machines
            for buffers in schedule.buffers
        ]
        self.pool_of = {buffers.name: place for place, buffers in enumerate(schedule.buffers)}
        self._paths: dict[tuple[int, str, int], tuple[float, tuple[tuple[int, float], ...]]] = {}
        self._first = {stage: stage.works(1) for stage in schedule.stages}

    @property
    def capacities(self) -> dict[str, float]:
        """What the links give that the watched rank has."""
        return {name: self.rates[number] for name, number in self.links.items()}

    def unknown(self) -> tuple[str, ...]:
        """Inputs that nobody stated and that the step needs."""
        machine = self.machines[0]
        resources = {w.resource for works in self._first.values() for w in works if w.amount > 0}
        for resource in sorted(resources):
            machine.path(resource)
        missing = [machine.unknown[key] for key in machine.unknown if key in _touched(resources)]
        return tuple(dict.fromkeys(missing))

    def stage(self, stage: Stage) -> StagePlayed:
        """A stage with all its repetitions, of which as few are played as tell the others."""
        if not stage.carries or stage.repeats <= max(ROUNDS):
            rounds = stage.repeats if stage.carries else 1
            watched = self._watch(stage, rounds)
            found = tally(watched)
            return StagePlayed(stage.name, stage.repeats, rounds, watched, found * (stage.repeats / rounds))
        rounds = ROUNDS[0]
        before, last = tally(self._watch(stage, rounds - 1)), tally(self._watch(stage, rounds))
        step = last.span - before.span
        while True:
            rounds += 1
            watched = self._watch(stage, rounds)
            before, last = last, tally(watched)
            alike = abs(last.span - before.span - step) <= PERIODIC * abs(step)
            if (alike and rounds >= max(ROUNDS)) or rounds >= min(stage.repeats, MOST_ROUNDS):
                break
            step = last.span - before.span
        more = (last + before * -1.0) * float(stage.repeats - rounds)
        return StagePlayed(stage.name, stage.repeats, rounds, watched, (last + more).peaks_of(last))

    def _watch(self, stage: Stage, rounds: int) -> Watched:
        works = self._first[stage] if rounds == 1 else stage.works(rounds)
        tasks, mine = self._tasks(works)
        played: Played = play(tasks, self.rates, self.pools)
        names = list(self.links)
        gauges = len(self.schedule.buffers)
        return Watched(
            works=works,
            tasks=tasks,
            mine=mine,
            played=played,
            links=names,
            rates=list(self.rates),
            pools=[buffers.name for buffers in self.schedule.buffers],
            levels=played.levels[:gauges],
            gpu_tier=self.gpu_tier,
            ranks=self.ranks,
        )

    def _tasks(self, works: Sequence[Work]) -> tuple[list[Task], list[int]]:
        """The engine's tasks, and for each piece of work the one that is the watched rank's."""
        if len(self.machines) == 1:
            return [self._task(work, 0, work.after) for work in works], list(range(len(works)))
        tasks: list[Task] = []
        places: list[list[int]] = [[], []]
        for work in works:
            after = [tuple(own[place] for place in work.after) for own in places]
            if work.resource == "gather" or work.owner != OWN:
                self._together(work, after, tasks, places)
                continue
            for rank in (0, 1):
                places[rank].append(len(tasks))
                tasks.append(self._task(work, rank, after[rank]))
        return tasks, places[0]

    def _together(
        self, work: Work, after: list[tuple[int, ...]], tasks: list[Task], places: list[list[int]]
    ) -> None:
        """What all ranks do at once: it begins when each is ready, and goes at the pace of the slowest."""
        ready = len(tasks)
        tasks.append(Task(work.module, 0.0, (), after[1], self._tokens(work.takes, 1)))
        scale, uses = self._path(0, work)
        if work.owner == OWN:
            uses = (*uses, *self._path(1, work)[1])
        places[0].append(len(tasks))
        tasks.append(
            Task(
                work.module,
                work.amount * scale,
                uses,
                (*after[0], ready),
                self._tokens(work.takes, 0),
                self._tokens(work.gives, 0),
            )
        )
        places[1].append(len(tasks))
        tasks.append(Task(work.module, 0.0, (), (places[0][-1],), (), self._tokens(work.gives, 1)))

    def _task(self, work: Work, rank: int, after: tuple[int, ...]) -> Task:
        scale, uses = self._path(rank, work)
        return Task(
            work.module,
            work.amount * scale,
            uses,
            after,
            self._tokens(work.takes, rank) if work.takes else (),
            self._tokens(work.gives, rank) if work.gives else (),
        )

    def _tokens(self, held: tuple[tuple[str, float], ...], rank: int) -> Tokens:
        first = rank * len(self.schedule.buffers)
        return tuple((first + self.pool_of[name], count) for name, count in held)

    def _path(self, rank: int, work: Work) -> tuple[float, tuple[tuple[int, float], ...]]:
        key = rank, work.resource, work.owner
        if key not in self._paths:
            machine, prefix = self.machines[rank], OTHERS if rank else ""
            if work.owner != OWN:
                prefix = f"owner {work.owner}'s "
                # The slow node's ranks are the first ones.
                machine = self.machines[0 if work.owner < machine.ranks_per_node else -1]
            path = machine.path(work.resource)
            uses = []
            for name, taken in path.uses:
                link = self.links.setdefault(prefix + name, len(self.links))
                if link == len(self.rates):
                    self.rates.append(machine.capacities[name])
                uses.append((link, taken))
            self._paths[key] = path.scale, tuple(uses)
        return self._paths[key]


def _touched(resources: set[str]) -> set[str]:
    """The resources as unknown rates are noted: a swap is a matter of the drive."""
    return {bare(resource) for resource in resources}
