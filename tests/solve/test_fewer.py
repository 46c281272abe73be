"""Fewest GPUs and cheapest tokens on large clusters: few sizes are solved, and the answer is the same."""

from dataclasses import replace
from itertools import pairwise

import pytest
from runtimes.toy import cluster, toy, workload

from ziplan.runtimes import RUNTIMES
from ziplan.solve import search
from ziplan.solve.problem import Problem
from ziplan.solve.search import Size, _sizes, _tried, best_plan, solve

LARGE = toy(96, 12288, 49152, 50257)
"""175e9 parameters."""


def asked(nodes, objective, **training):
    machine = cluster(nodes, 4, hbm="16 GB", dram="60 GB", nvme=None)
    settings = {"sequence_length": 512, **training}
    return Problem(machine, workload(LARGE, **settings), RUNTIMES["deepspeed"], objective=objective)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 66, 100, 1000, 100_000])
def test_sizes_that_are_tried(count):
    tried = list(_tried(count))
    assert tried[:65] == list(range(count))[:65]
    assert tried[-1] == count - 1
    assert tried == sorted(set(tried))
    for place, following in pairwise(tried):
        assert following - place <= max(1, place // 16)
    assert len(tried) < 300


def test_fewest_gpus_are_found_between_the_sizes_that_are_tried(monkeypatch):
    """The first size on which a plan surely fits, found again where every size is tried."""
    few = best_plan(asked(400, "gpus"))
    assert few.verdict == "fits"
    assert few.cluster.nodes > 70
    less = asked(400, "time")
    less = replace(less, cluster=replace(less.cluster, nodes=few.cluster.nodes - 1))
    assert best_plan(less).verdict != "fits"
    monkeypatch.setattr(search, "EACH", 400)
    assert best_plan(asked(400, "gpus")).cluster.nodes == few.cluster.nodes


def test_few_sizes_are_solved(monkeypatch):
    solved, real = [], search.solved

    def counted(problem, code_changes=False):
        solved.append(problem.cluster.nodes)
        return real(problem, code_changes)

    monkeypatch.setattr(search, "solved", counted)
    best_plan(asked(400, "gpus"))
    assert len(solved) < 100


@pytest.mark.parametrize(
    ("runtime", "nodes", "said"), [("ideal", 100, False), ("ideal", 128, True), ("deepspeed", 128, False)]
)
def test_latency_of_many_ranks_is_said_where_it_is_left_out(runtime, nodes, said):
    question = replace(asked(nodes, "time", global_batch_size=4 * nodes), runtime=RUNTIMES[runtime])
    notes = solve(question, 0).notes
    assert any("their latency" in note for note in notes) == said


def test_a_batch_splits_over_the_sizes_there_are():
    assert _sizes(asked(6, "gpus", global_batch_size=24)) == [
        Size(1, 1),
        Size(1, 2),
        Size(1, 3),
        *(Size(nodes) for nodes in (1, 2, 3, 6)),
    ]
    assert _sizes(asked(3, "cost")) == [Size(1), Size(2), Size(3)]
