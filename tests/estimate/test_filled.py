"""Ranks fill nodes one after the other: those of a plan that is for fewer than a node has are on one."""

import pytest
from runtimes.drawn import with_link
from runtimes.toy import cluster, plan, workload

from ziplan.check.case import Case
from ziplan.errors import BadInput
from ziplan.estimate import estimate
from ziplan.files import Document
from ziplan.runtimes import RUNTIMES
from ziplan.simulate.step import simulate

ONE, FOUR = (cluster(nodes=nodes, gpus=8) for nodes in (1, 4))
WORK = workload(sequence_length=512)


def settled(runtime, machine, ranks, stage):
    asked = plan("hbm", "hbm", dp_degree=float(ranks), zero_stage=float(stage))
    return RUNTIMES[runtime].settle(machine, WORK, asked)


@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (4, 1), (8, 1), (9, 2), (16, 2), (17, 3), (32, 4)])
def test_nodes_that_ranks_fill(ranks, nodes):
    assert FOUR.nodes_of(ranks) == nodes
    assert ONE.nodes_of(ranks) == 1


@pytest.mark.parametrize(
    ("runtime", "stage"), [("deepspeed", 1), ("deepspeed", 3), ("fsdp", 3), ("ideal", 3), ("megatron", 1)]
)
def test_ranks_of_one_node_cross_no_network(runtime, stage):
    few = settled(runtime, FOUR, 4, stage)
    here, there = (estimate(machine, WORK, RUNTIMES[runtime], few) for machine in (ONE, FOUR))
    assert there.terms == here.terms
    assert there.step_time == here.step_time
    played = [simulate(machine, WORK, RUNTIMES[runtime], few).makespan for machine in (ONE, FOUR)]
    assert played[0] == played[1]
    slow, over = with_link(FOUR, "network", 1e-3), settled(runtime, FOUR, 16, stage)
    assert estimate(slow, WORK, RUNTIMES[runtime], few).step_time == here.step_time
    assert estimate(slow, WORK, RUNTIMES[runtime], over).step_time > here.step_time


def test_few_ranks_need_no_network_and_many_do():
    bare = cluster(nodes=2, gpus=8, network=None)
    runtime = RUNTIMES["deepspeed"]
    assert estimate(bare, WORK, runtime, settled("deepspeed", bare, 8, 3)).step_time > 0
    with pytest.raises(BadInput, match="no network between them"):
        estimate(bare, WORK, runtime, settled("deepspeed", bare, 16, 3))


@pytest.mark.parametrize(("ranks", "nodes"), [(4, 1), (16, 2)])
def test_a_case_counts_the_nodes_of_its_plan(ranks, nodes):
    few = settled("deepspeed", FOUR, ranks, 3)
    case = Case(Document("plan.yaml", ""), "plan", FOUR, WORK, RUNTIMES["deepspeed"], few)
    assert case.nodes == nodes
