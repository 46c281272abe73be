"""Plain stage 3: everything in HBM, on as many GPUs as that takes."""

from __future__ import annotations

from dataclasses import replace

from ziplan.errors import BadInput
from ziplan.estimate import Estimate
from ziplan.estimate.evaluate import ledger, memory
from ziplan.laws.efficiency import gpus_for_plain_stage3
from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes.runtime import PHASES
from ziplan.solve.enumerate import DOES_NOT_FIT, NO_KNOWN_COST, solved
from ziplan.solve.problem import Baseline, Problem

STATES = (
    "parameters",
    "frozen parameters",
    "gradients",
    "gradient shard",
    "master weights",
    "optimizer state",
)
"""Ledger lines that shrink with every GPU added; the others stay on each."""

MOST_GPUS = 65_536


def plain_stage3(problem: Problem, best: Estimate) -> Baseline:
    """The GPUs that plain stage 3 needs, and its step time on them (None where it cannot be told)."""
    gpus, usable = _needed(problem, best.plan.dp_degree)
    if gpus > MOST_GPUS:
        return Baseline(float("inf"), usable, None, False)
    here = gpus <= problem.cluster.gpu_count
    step_time, step_gpus = _step_time(problem, gpus, best)
    return Baseline(gpus, usable, step_time, bool(here), step_gpus)


def _needed(problem: Problem, dp_degree: float) -> tuple[float, float]:
    """The GPUs over which all states fit, inf where no number does, and what each has left for them.

    States over more ranks are more bytes where a runtime pads what it divides: FSDP2 pads stacked experts to
    a whole number for each rank.
    """
    gpus, usable = 0.0, 0.0
    while gpus <= MOST_GPUS:
        usable, states = _divided(problem, gpus or dp_degree)
        if usable <= 0:
            break
        needed = Derivation(record=False).apply(
            gpus_for_plain_stage3, state_bytes=states, usable_hbm_per_gpu=usable
        )
        if needed <= gpus:
            return gpus, usable
        gpus = needed
    return float("inf"), usable


def _plain(problem: Problem, dp_degree: float) -> Plan:
    home = {problem.cluster.node.gpu_tier: 1.0}
    return Plan(
        dp_degree=dp_degree,
        placement=Placement(home, home, home, home),
        activation_checkpointing=float(Checkpointing.FULL),
        prefetch_depth=0.0,
        sub_group_params=1e8,
    )


def _divided(problem: Problem, dp_degree: float) -> tuple[float, float]:
    """Bytes of a GPU left for states at micro-batch 1 with full checkpointing, and those of all states.

    States of all models of the job, as its runtime keeps them for its optimizer; what is asked to be
    on the host takes nothing of a GPU.
    """
    plan = problem.runtime.settle(problem.cluster, problem.workload, _plain(problem, dp_degree))
    book = ledger(Derivation(record=False), problem.cluster, problem.workload, problem.runtime, plan)
    gpu = problem.cluster.node.gpu_tier
    lines = [line for line in book.lines if line.tier == gpu]
    # "critic: parameters" are parameters.
    states = [line for line in lines if line.name.split(": ")[-1] in STATES]
    others = [line for line in lines if line not in states]
    working = max(sum(line.high for line in others if phase in line.phases) for phase in PHASES)
    held = dp_degree * sum(line.high for line in states)
    return memory(problem.cluster, book)[gpu].available - working, held


def _step_time(problem: Problem, gpus: float, best: Estimate) -> tuple[float | None, int | None]:
    """Time of the best plan without any offload for the tokens of one step of `best`, and on how many GPUs.

    Nodes come whole, and a batch that does not split over them is taken at the next size that
    does, its time scaled to the same tokens.
    """
    node = problem.cluster.node
    nodes = max(problem.cluster.nodes, -int(-gpus // node.gpus_per_node))
    if (nodes > 1 and node.network is None) or gpus > MOST_GPUS:
        return None, None
    sequences = int(best.tokens_per_step / problem.workload.training.sequence_length)
    ranks = nodes * node.gpus_per_node
    batch = -(-sequences // ranks) * ranks
    training = problem.workload.training.model_copy(
        update={"global_batch_size": batch, "micro_batch_size": None, "accumulation_steps": None}
    )
    larger = replace(
        problem,
        cluster=replace(problem.cluster, nodes=nodes),
        workload=replace(problem.workload, training=training),
        fixed={"zero_stage": 3.0, "placement": _plain(problem, 1.0).placement},
        objective="time",
    )
    try:
        _, found = solved(larger)
    except BadInput:
        return None, None
    if found[0].rank == DOES_NOT_FIT or found[0].cost >= NO_KNOWN_COST:
        return None, None
    return found[0].paid * best.tokens_per_step, ranks
