"""What collectives take besides their bytes: hops around the ring, copies apart, views for every rank."""

import pytest
from runtimes.toy import cluster, plan, toy, workload

from ziplan.estimate import estimate
from ziplan.plan import Checkpointing
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed.coordinator import Policy
from ziplan.runtimes.deepspeed.fetches import fetches
from ziplan.runtimes.runtime import COLLECTIVE, PYTHON
from ziplan.runtimes.terms import UNPACKED

NONE = Checkpointing.NONE
MODEL = toy(4)
WORK = workload(MODEL)
TENSORS, MATRICES = 8, 4
"""Of a layer: two norms of two, and four matrices. Besides it has an embedding, a head and a norm."""


def told(runtime="deepspeed", ranks=8, nodes=1, **fields):
    runtime = RUNTIMES[runtime]
    chosen = plan("hbm", "hbm", dp_degree=float(ranks), activation_checkpointing=NONE, **fields)
    machine = cluster(nodes=nodes, gpus=ranks // nodes)
    return estimate(machine, WORK, runtime, runtime.settle(machine, WORK, chosen))


def amounts(answer, resource, term=None):
    """What a step has of a resource."""
    total = 0.0
    for segment in answer.segments:
        once = {id(demand): demand for chain in segment.chains for demand in chain}
        found = (d for d in once.values() if d.resource == resource and term in (None, d.term))
        total += segment.repeats * sum(d.amount for d in found)
    return total


def test_every_module_is_gathered_by_itself_where_nothing_is_read_ahead():
    """Matrices, embedding and head; norms persist. Once in forward, once in backward."""
    answer = told(prefetch_depth=0.0)
    assert amounts(answer, COLLECTIVE, "gather") == 2 * (4 * MATRICES + 2)
    assert answer.busy.get(UNPACKED, 0.0) == 0.0
    found = fetches(MODEL, int(NONE), False, Policy(0, 1e9, 0, 100_000))
    assert (found.calls, found.joined, found.joined_tensors) == (2 * (4 * MATRICES + 2), 0, 0)


def test_tensors_that_are_read_ahead_together_are_copied_apart():
    """Fewer gathers, some of more tensors than one."""
    alone = fetches(MODEL, int(NONE), False, Policy(0, 1e9, 0, 100_000))
    ahead = fetches(MODEL, int(NONE), False, Policy(MODEL.layer_params, 2 * MODEL.layer_params, 0, 100_000))
    assert ahead.calls < alone.calls
    assert ahead.elements <= alone.elements
    assert 0 < ahead.joined <= ahead.elements
    assert ahead.joined_tensors <= 2 * (4 * MATRICES + 2)
    answer = told(prefetch_depth=1.0)
    joined = amounts(answer, "hbm.read", UNPACKED)
    assert 0 < joined <= 2 * 2 * ahead.elements * 2
    assert told(ranks=1, prefetch_depth=1.0).busy.get(UNPACKED, 0.0) == 0.0


def test_a_layer_more_adds_its_own():
    """Extrapolated from layers that are played."""
    policy = Policy(MODEL.layer_params, 2 * MODEL.layer_params, 0, 100_000)
    found = [fetches(toy(layers), int(NONE), False, policy) for layers in (39, 40, 41)]
    for name in ("calls", "joined", "joined_tensors"):
        values = [getattr(each, name) for each in found]
        assert values[2] - values[1] == values[1] - values[0]
    assert found[1].calls > found[0].calls


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_gradients_are_reduced_a_bucket_at_a_time(stage):
    answer = told(zero_stage=float(stage))
    buckets = amounts(answer, COLLECTIVE, "gradient reduce") / (1 if stage == 3 else 2)
    assert 1 <= buckets <= TENSORS * 4 + 4
    assert buckets == int(buckets)


def test_fsdp_gathers_a_group_twice_and_reduces_it_once():
    """Layers in forward and backward, the root once."""
    answer = told("fsdp")
    assert amounts(answer, COLLECTIVE, "gather") == 2 * 4 + 1
    assert amounts(answer, COLLECTIVE, "gradient reduce") == 4 + 1


@pytest.mark.parametrize("runtime", ["deepspeed", "fsdp"])
def test_more_nodes_take_longer_though_each_rank_receives_as_much(runtime):
    """The same bytes nearly, many more hops."""
    few, many = told(runtime, 16, nodes=2), told(runtime, 1024, nodes=128)
    received = many.traffic["gather"][0] / few.traffic["gather"][0]
    assert 1 <= received < 1.1
    passes = amounts(many, COLLECTIVE, "gather") + amounts(many, COLLECTIVE, "gradient reduce")
    hops = passes * (14e-6 + 896 * 1.9e-6 + 127 * 4e-6)
    assert many.busy["gather"] + many.busy["gradient reduce"] > hops
    assert many.busy["gather"] - few.busy["gather"] * received > 0.5 * hops / 2


def test_one_rank_waits_for_nobody():
    for runtime in ("deepspeed", "fsdp"):
        assert told(runtime, 1).busy.get("gather", 0.0) == 0.0


def test_python_makes_views_of_every_rank_s_part():
    """A gradient takes two of each rank, and so does a tensor that was gathered with others."""
    few, many = (amounts(told(ranks=ranks, nodes=nodes), PYTHON) for ranks, nodes in ((8, 1), (1024, 128)))
    trained = TENSORS * 4 + 4
    assert many - few >= trained * 2 * (1024 - 8) * 2e-6 * 0.99
    assert amounts(told("fsdp", 1024, nodes=128), PYTHON) == amounts(told("fsdp", 8), PYTHON)
