"""Several models in one job: the ledger and the step of all their engines together.

Every model has an engine of its own, which the runtime's own ledger and step program describe. One
that is not trained has an engine that only infers: in stage 3 its parameters are divided as the others'
are, below stage 3 every GPU has all of them, because DeepSpeed has no stage 1 or 2 without an optimizer
(`runtime/engine.py:_configure_zero_optimizer`; DeepSpeed-Chat's `get_eval_ds_config`, TRL's
`prepare_deepspeed` and OpenRLHF's `get_ds_eval_config` ask for stage 3 or 0).

What stands and what passes:

- Engines are made one after another, the trained model's first, and stay (DeepSpeed-Chat,
  `rlhf_engine.py`): while one is loaded and made, what the earlier ones keep stands beside it.
- States, parameters and pinned pools of all models stand from then on, and so do reduce buckets, which
  stage 3 allocates when the engine is made (`stage3.py:_setup_for_real_optimizer`). A line that is there
  in the optimizer step and in another phase outlasts its own model's sweeps, so it is one of these.
- Everything else is work: gathered parameters, activations, logits, temporaries of a step. Models run
  one after another (DeepSpeed-Chat, `ppo_trainer.py`), so that of one model counts, the largest.
- Where the losses are taken together, the trained model's activations are kept while another one
  runs: TRL's DPO and GKD run the reference or the teacher between its forward and its backward, and
  its PPO has policy and critic in one module. So beside those the high end has both.
- What a process has once (its context, its libraries) it has once for all models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ziplan.errors import BadInput
from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation, maximum, where
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes.runtime import PHASES, Demand, Ledger, Line, Runtime, Segment, total
from ziplan.workload.companions import Companion
from ziplan.workload.training import Workload

ONCE = (
    "GPU context",
    "collective buffers",
    "allocator slack",
    "processes and libraries",
    "data-loader workers",
)
"""Lines of a process, not of a model."""

EARLIER_GRADIENTS = "gradients of earlier micro-steps"
"""The one state that stands in forward alone: in backward it is another line's."""

SHARED_LOSS = ("reference", "teacher", "critic")
"""Roles of models that may run while the trained model's activations are kept."""

MAKING = ("load", "init")
"""Phases in which the engines are made, one after another."""

LedgerOf = Callable[[Derivation, Cluster, Workload, Plan], Ledger]
Settle = Callable[[Cluster, Workload, Plan], Plan]


class Engine(NamedTuple):
    """A companion's engine: its own workload under its own plan."""

    companion: Companion
    workload: Workload
    plan: Plan


def engines(runtime: Runtime, cluster: Cluster, workload: Workload, plan: Plan) -> list[Engine]:
    """The engine of each companion beside a plan of the trained model."""
    one_home = bool(getattr(runtime, "ONE_HOME", False))
    return engines_of(runtime.settle, cluster, workload, plan, one_home)


def engines_of(
    settle: Settle, cluster: Cluster, workload: Workload, plan: Plan, one_home: bool = False
) -> list[Engine]:
    """The same by what of a runtime is needed; with `one_home` its states of a model live in one place."""
    found = []
    for companion in workload.companions:
        own = companion.workload(workload)
        beside = (_trained if companion.trained else _inferring)(cluster, plan, companion, one_home)
        found.append(Engine(companion, own, settle(cluster, own, beside)))
    return found


def _trained(cluster: Cluster, plan: Plan, companion: Companion, one_home: bool) -> Plan:
    """The same plan, but parameters on the host need stage 3, and DeepSpeed's `ratio` is the main model's."""
    gpu, placement = cluster.node.gpu_tier, plan.placement
    optimizer = _whole(placement.optimizer, gpu)
    homes = Placement(placement.params, optimizer, optimizer, placement.checkpoints)
    home = _home(cluster, companion)
    if home is not None:
        moved = {home: 1.0}
        states = moved if one_home else optimizer
        homes = Placement(moved, states, states, placement.checkpoints)
    stage = maximum(plan.zero_stage, 3.0 if home not in (None, gpu) else 0.0)
    return replace(plan, placement=homes, zero_stage=stage, tile_count=1.0)


def _whole(homes: Any, gpu: str) -> Any:
    """Where a share is on the GPU and another off it, all of it off the GPU."""
    off = total(share for tier, share in homes.items() if tier != gpu)
    if not np.any(off > 0):
        return homes
    outside = {tier: where(off > 0, share / maximum(off, 1e-9), 0.0) for tier, share in homes.items()}
    return {**outside, gpu: where(off > 0, 0.0, homes.get(gpu, 0.0))}


def _inferring(cluster: Cluster, plan: Plan, companion: Companion, one_home: bool) -> Plan:
    """Forward alone: nothing is recomputed, no gradient and no optimizer is anywhere."""
    gpu, home = cluster.node.gpu_tier, _home(cluster, companion)
    there = plan.placement.params if home is None else {home: 1.0}
    stage = 3.0 if home not in (None, gpu) else where(plan.zero_stage >= 3, 3.0, 0.0)
    on_gpu = {gpu: 1.0}
    states = there if one_home else on_gpu
    return replace(
        plan,
        placement=Placement(there, states, states, on_gpu),
        zero_stage=stage,
        activation_checkpointing=float(Checkpointing.NONE),
        tile_count=1.0,
    )


def _home(cluster: Cluster, companion: Companion) -> str | None:
    """The tier that a companion's parameters are asked to live on; None: where the plan puts parameters."""
    if companion.offload == "auto":
        return None
    if companion.offload == "none":
        return cluster.node.gpu_tier
    host = cluster.node.tier_of("dram")
    if host is None:
        raise BadInput.of(f"{companion.name}: offload: cpu, but {cluster.label} has no tier of DRAM")
    return host


class _Named(Derivation):
    """A derivation whose steps are a companion's."""

    def __init__(self, inner: Derivation, name: str) -> None:
        super().__init__(inner.record)
        self.steps, self.name = inner.steps, name

    def apply(self, law_function: Callable[..., float], label: str = "", /, **arguments: float) -> float:
        """The law applied, labelled as the companion's."""
        return super().apply(law_function, f"{self.name}: {label}" if label else self.name, **arguments)


def job_ledger(
    ledger: LedgerOf,
    derivation: Derivation,
    cluster: Cluster,
    workload: Workload,
    plan: Plan,
    others: Sequence[Engine],
) -> Ledger:
    """The lines of all models, each as far as it counts beside the others."""
    books = [_Book("", "", True, ledger(derivation, cluster, workload, plan).lines)]
    for each in others:
        named = _Named(derivation, each.companion.name)
        lines = ledger(named, cluster, each.workload, each.plan).lines
        role, trained = each.companion.role, each.companion.trained
        books.append(_Book(each.companion.name, role, trained, _own(lines, trained)))
    book = Ledger(derivation)
    for tier in dict.fromkeys(line.tier for each in books for line in each.lines):
        book.lines += _folded(books, tier)
    return book


def _own(lines: Iterable[Line], trained: bool) -> list[Line]:
    """A companion's lines: none of the process's; without training none of backward, step or save alone."""
    own = [line for line in lines if line.name not in ONCE]
    return own if trained else [line for line in own if set(line.phases) & {"load", "init", "forward"}]


@dataclass(frozen=True)
class _Book:
    """One model's lines; the trained model's has no name and comes first."""

    name: str
    role: str
    trained: bool
    lines: Sequence[Line]


class _Share(NamedTuple):
    """How much of a line counts in a phase: of its low end, of its high end (0 or 1, or arrays of them)."""

    low: float
    high: float


ALL, NONE = _Share(1.0, 1.0), _Share(0.0, 0.0)


def _stands(line: Line) -> bool:
    """Whether a line outlasts the sweeps of its model."""
    later = "step" in line.phases and len(line.phases) > 1
    return later or line.name == EARLIER_GRADIENTS or line.name in ONCE


def _folded(books: Sequence[_Book], tier: str) -> Iterator[Line]:
    """All lines of one tier, named by their model; a line that counts in some of its phases is cut."""
    tiers = [[line for line in book.lines if line.tier == tier] for book in books]
    shares = {
        phase: (_while_made if phase in MAKING else _while_running)(books, tiers, phase) for phase in PHASES
    }
    for place, (book, lines) in enumerate(zip(books, tiers, strict=True)):
        for line in lines:
            name = f"{book.name}: {line.name}" if book.name else line.name
            for phases, share in _cut(line, {phase: shares[phase](place, line) for phase in PHASES}):
                yield _part(line, name, phases, share)


def _cut(line: Line, shares: Mapping[str, _Share]) -> Iterator[tuple[tuple[str, ...], _Share]]:
    """The phases in which all of a line counts together, then each in which a part may."""
    whole = tuple(phase for phase, share in shares.items() if _is(share, ALL))
    if whole:
        yield whole, ALL
    for phase, share in shares.items():
        if not _is(share, ALL) and not _is(share, NONE):
            yield (phase,), share


def _part(line: Line, name: str, phases: tuple[str, ...], share: _Share) -> Line:
    known = line.step if _is(share, ALL) or _is(share, _Share(0.0, 1.0)) else None
    low, high = line.low * share.low, line.high * share.high
    return line._replace(name=name, phases=phases, low=low, high=high, step=known)


def _is(share: _Share, wanted: _Share) -> bool:
    return all(np.ndim(part) == 0 and part == whole for part, whole in zip(share, wanted, strict=True))


ShareOf = Callable[[int, Line], _Share]
"""How much counts of a line of the model at a place of the list."""


def _while_made(books: Sequence[_Book], tiers: Sequence[Sequence[Line]], phase: str) -> ShareOf:
    """The engine whose making takes most, beside what the earlier ones keep."""
    moments, before = [], 0.0
    for lines in tiers:
        moments.append(before + _high(lines, lambda line: phase in line.phases))
        before = before + _high(lines, _stays)
    chosen = _first_of_most(moments)
    later = [total(chosen[place + 1 :]) for place in range(len(books))]

    def share(place: int, line: Line) -> _Share:
        own = phase in line.phases
        if own and line.name in ONCE:
            return ALL
        counts = (chosen[place] if own else 0.0) + (later[place] if _stays(line) else 0.0)
        return _Share(counts, counts)

    return share


def _stays(line: Line) -> bool:
    """Whether an engine has the line from its making on."""
    return "init" in line.phases and _stands(line)


def _while_running(books: Sequence[_Book], tiers: Sequence[Sequence[Line]], phase: str) -> ShareOf:
    """All that stands, and the work of the model that has most."""

    def works(line: Line) -> bool:
        return phase in line.phases and not _stands(line)

    low = [total(line.low for line in lines if works(line)) for lines in tiers]
    high = [_high(lines, works) for lines in tiers]
    beside = [phase in ("forward", "backward") and book.role in SHARED_LOSS for book in books]
    chosen = _first_of_most([h + high[0] if b else h for h, b in zip(high, beside, strict=True)])
    main = chosen[0] + total(c for c, b in zip(chosen, beside, strict=True) if b)
    of_other = total(c * amount for c, amount in zip(chosen[1:], low[1:], strict=True))
    # At the low end one of the two counts: the larger.
    main_low = main * where(low[0] >= of_other, 1.0, 0.0)

    def share(place: int, line: Line) -> _Share:
        if phase not in line.phases:
            return NONE
        if not works(line):
            return ALL
        if place == 0:
            return _Share(main_low, main)
        return _Share(chosen[place] * (1 - main_low), chosen[place])

    return share


def _high(lines: Iterable[Line], counts: Callable[[Line], bool]) -> float:
    return total(line.high for line in lines if counts(line))


def _first_of_most(amounts: Sequence[float]) -> list[float]:
    """1 for the first amount that is the greatest, 0 for the others (element by element)."""
    most, left = maximum(*amounts), 1.0
    chosen = []
    for amount in amounts:
        chosen.append(where(amount >= most, left, 0.0))
        left = left - chosen[-1]
    return chosen


def job_program(
    runtime: Runtime,
    derivation: Derivation,
    cluster: Cluster,
    workload: Workload,
    plan: Plan,
    others: Sequence[Engine],
) -> tuple[Segment, ...]:
    """The step of all models, one after another; a companion's terms go by its name.

    Generating text (rollouts), and scoring it once more with the models that are trained, is no part of it.
    """
    segments = [*runtime.program(derivation, cluster, workload, plan)]
    for each in others:
        named = _Named(derivation, each.companion.name)
        own = runtime.program(named, cluster, each.workload, each.plan)
        segments += [_renamed(segment, each.companion.name) for segment in own]
    return tuple(segments)


def _renamed(segment: Segment, name: str) -> Segment:
    """The segment under a name; a demand that stands in several chains stays one demand."""
    known: dict[int, Demand] = {}

    def renamed(demand: Demand) -> Demand:
        return known.setdefault(id(demand), demand._replace(term=f"{name}: {demand.term}"))

    chains, ways = (
        tuple(tuple(renamed(demand) for demand in chain) for chain in each)
        for each in (segment.chains, segment.ways)
    )
    return Segment(f"{name}: {segment.name}", segment.repeats, chains, ways=ways)
