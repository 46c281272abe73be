"""Fewer GPUs are told of where they are faster for the same global batch, and nowhere else."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtimes.drawn import machines, with_link, workloads
from runtimes.toy import cluster, toy, workload

from ziplan.errors import BadInput
from ziplan.runtimes import RUNTIMES
from ziplan.solve import Problem, best_plan, fewer, solve

MODEL = toy(12, hidden=4096, middle=16384, vocabulary=32000)
"""Its 2.5 billion parameters take seconds over a slow network, its 64 short sequences less."""

PLACES = ((4, 0), (2, 0), (1, 0), (1, 4), (1, 2), (1, 1))
"""Nodes, and GPUs of one where not all of them."""


def asked(machine, **more):
    training = {"sequence_length": 1024, "global_batch_size": 64, **more}
    return Problem(machine, workload(MODEL, **training), RUNTIMES["deepspeed"])


def slowed(network=1.0, fabric=1.0, nodes=8):
    return with_link(with_link(cluster(nodes, 8, nvme=None), "network", network), "fabric", fabric)


def on(problem, nodes, ranks, batch):
    """The best plan on so many nodes, or GPUs of one; None where the batch does not split over them."""
    training = problem.workload.training.model_copy(
        update={"global_batch_size": batch, "accumulation_steps": None}
    )
    fixed = {"dp_degree": float(ranks)} if ranks else {}
    smaller = replace(
        problem,
        cluster=replace(problem.cluster, nodes=nodes),
        workload=replace(problem.workload, training=training),
        fixed=fixed,
    )
    try:
        return best_plan(smaller)
    except BadInput:
        return None


def fastest(problem, best):
    """Of every place that is asked about, without a bound that leaves any out."""
    batch = round(best.tokens_per_step / problem.workload.training.sequence_length)
    there = problem.cluster
    places = [
        place
        for place in PLACES
        if (place[0] < there.nodes and not place[1]) or 0 < place[1] < there.node.gpus_per_node
    ]
    found = [on(problem, *place, batch) for place in places]
    known = [each for each in found if each is not None and each.verdict == "fits"]
    return min(known, key=lambda each: each.step_time, default=None)


@pytest.mark.parametrize(
    ("network", "fabric", "gpus"), [(0.01, 1.0, 8), (0.001, 1e-4, 1), (1.0, 1.0, None), (0.2, 1.0, None)]
)
def test_fewer_are_told_of_where_a_network_or_a_fabric_makes_them_faster(network, fabric, gpus):
    problem = asked(slowed(network, fabric))
    answer = solve(problem, 0)
    told = answer.faster_on_fewer
    assert (told and told.gpus) == gpus
    best = fastest(problem, answer.best)
    if told is None:
        assert best.step_time > 0.97 * answer.best.step_time
    else:
        assert told.step_time == best.step_time < 0.97 * answer.best.step_time
        assert told.tokens_per_step == answer.best.tokens_per_step


@settings(derandomize=True, max_examples=25, deadline=None)
@given(machines(), workloads(), st.sampled_from([1.0, 0.01, 1e-4]), st.sampled_from([1.0, 0.01]), st.data())
def test_the_bound_leaves_out_nothing_that_is_faster(machine, work, network, fabric, data):
    machine = with_link(with_link(machine, "network", network), "fabric", fabric)
    problem = Problem(machine, work, RUNTIMES[data.draw(st.sampled_from(["deepspeed", "fsdp", "ideal"]))])
    answer = solve(problem, 0)
    if answer.best.verdict != "fits":
        return
    told, best = answer.faster_on_fewer, fastest(problem, answer.best)
    if told is not None:
        assert told.step_time == best.step_time
    elif best is not None:
        assert best.step_time >= 0.97 * answer.best.step_time


def test_few_sizes_are_solved_where_the_gpus_have_work(monkeypatch):
    solved, real = [], fewer.solved

    def counted(problem, code_changes=False):
        solved.append(problem.ranks)
        return real(problem, code_changes)

    monkeypatch.setattr(fewer, "solved", counted)
    solve(asked(slowed(), sequence_length=8192, activation_checkpointing="none", kernels="compiled"), 0)
    assert not solved


@pytest.mark.parametrize("objective", ["gpus", "cost", "wear"])
def test_other_objectives_choose_their_gpus_themselves(objective):
    problem = replace(asked(slowed(0.01)), objective=objective)
    assert solve(problem, 0).faster_on_fewer is None


def test_a_batch_of_the_solvers_choice_and_stated_sizes_are_kept():
    free = solve(asked(slowed(1e-5), global_batch_size=None), 0)
    assert free.faster_on_fewer.tokens_per_step == free.best.tokens_per_step
    stated = solve(asked(slowed(1e-3), global_batch_size=None, micro_batch_size=2, accumulation_steps=1), 0)
    told = stated.faster_on_fewer.plan
    assert told.micro_batch_size == 2
    assert told.micro_batch_size * told.accumulation_steps * told.dp_degree == 128


def test_nothing_is_told_of_where_nothing_fits():
    machine = cluster(4, 8, hbm="2 GB", dram="8 GB", nvme=None)
    assert solve(asked(with_link(machine, "network", 1e-3)), 0).faster_on_fewer is None
