"""What an answer says beside its plan: changes that work, nodes that suffice, numbers that are plain."""

import dataclasses
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtimes.drawn import machines, with_tier, workloads
from runtimes.toy import cluster, toy, workload

from ziplan.errors import BadInput
from ziplan.hardware.parts import Drive
from ziplan.hardware.profiles import load_cluster
from ziplan.runtimes import RUNTIMES
from ziplan.solve import Problem, batches, solve
from ziplan.units import parse
from ziplan.workload.load import load_workload

DEEPSPEED = RUNTIMES["deepspeed"]
MIDDLING = toy(12, hidden=4096, middle=16384, vocabulary=32000)
LARGE = toy(48, hidden=8192, middle=32768, vocabulary=32000)
BATCH = {"sequence_length": 2048, "global_batch_size": 64}
RANK = ("fits", "tight", "does_not_fit")

DRIVE = Drive.model_validate({"name": "Drive", "capacity": "1 TB"})


def asked(machine=None, model=MIDDLING, runtime="deepspeed", **more):
    training = more.pop("training", BATCH)
    return Problem(machine or cluster(gpus=4), workload(model, **training), RUNTIMES[runtime], **more)


def with_change(problem, change):
    """The problem with a proposed change made, from what its text says."""
    machine, steps = problem.cluster, change.path.split(".")
    if steps[0] == "nodes":
        return replace(problem, cluster=replace(machine, nodes=int(change.after)))
    if steps[0] == "training":
        value = int(change.after) if change.after.isdigit() else change.after
        training = problem.workload.training.model_copy(update={steps[1]: value})
        return replace(problem, workload=replace(problem.workload, training=training))
    if steps[0] == "links":
        link = machine.node.links[steps[1]].model_copy(update={"bandwidth": parse(change.after, "B/s")})
        node = machine.node.model_copy(update={"links": {**machine.node.links, steps[1]: link}})
        return replace(problem, cluster=replace(machine, node=node))
    if steps[2] == "capacity":
        changed = with_tier(machine, steps[1], capacity=parse(change.after, "B"))
        return replace(problem, cluster=changed)
    tier, count = machine.node.tiers[steps[1]], int(change.after)
    factor = count / tier.drive_count
    fields = {
        name: factor * getattr(tier, name) for name in ("capacity", "read_bandwidth", "write_bandwidth")
    }
    return replace(problem, cluster=with_tier(machine, steps[1], drive_count=count, **fields))


def hold(problem, answer):
    """Every proposed change, made as it is written, does what it says."""
    for change in answer.changes:
        try:
            best = solve(with_change(problem, change)).best
        except BadInput as error:
            pytest.fail(f"{change} cannot be made: {error}")
        if change.effect.startswith("fits"):
            assert best.verdict == "fits", change
        else:
            assert best.time_per_token < answer.best.time_per_token, change


SHORT_OF = {
    "memory": asked(cluster(gpus=2, hbm="24 GB", dram="64 GB", nvme=None), LARGE),
    "gpu memory": asked(cluster(gpus=2, hbm="12 GB"), training={**BATCH, "sequence_length": 131072}),
    "recomputation": asked(
        cluster(gpus=2, hbm="24 GB"),
        training={"sequence_length": 16384, "global_batch_size": 2, "activation_checkpointing": "none"},
    ),
    "micro-batch": asked(
        cluster(gpus=2, hbm="24 GB"), training={"sequence_length": 2048, "micro_batch_size": 64}
    ),
    "everything": asked(cluster(gpus=1, hbm="1 GB", dram="2 GB", nvme=None), LARGE),
}


@pytest.mark.parametrize("lack", SHORT_OF)
def test_changes_make_it_fit(lack):
    problem = SHORT_OF[lack]
    answer = solve(problem)
    assert answer.best.verdict == "does_not_fit"
    assert answer.binding.kind == "capacity"
    assert answer.changes or lack == "everything"
    hold(problem, answer)


def test_a_smaller_capacity_than_proposed_does_not_fit():
    problem = SHORT_OF["memory"]
    (change,) = (c for c in solve(problem).changes if c.path == "tiers.dram.capacity")
    proposed = parse(change.after, "B")
    less = with_tier(problem.cluster, "dram", capacity=0.99 * proposed)
    assert solve(replace(problem, cluster=less)).best.verdict != "fits"


def test_fewer_nodes_than_proposed_do_not_fit():
    problem = asked(
        cluster(gpus=4, hbm="40 GB", dram="200 GB", nvme=None), LARGE, training={"sequence_length": 2048}
    )
    (change,) = (c for c in solve(problem).changes if c.path == "nodes")
    fewer = replace(problem.cluster, nodes=int(change.after) - 1)
    assert solve(replace(problem, cluster=fewer)).best.verdict != "fits"


def test_fewer_nodes_are_proposed_where_more_do_not_fit():
    """FSDP2 pads stacked experts to a whole number for each rank: on fewer ranks there is less of them."""
    machine = load_cluster("4x dgx-a100-40g")
    work = load_workload("mixtral-8x7b", {"sequence_length": 2048}, ("bf16",))
    problem = Problem(machine, work, RUNTIMES["fsdp"])
    answer = solve(problem, 0)
    assert answer.best.verdict == "does_not_fit"
    (change,) = (change for change in answer.changes if change.path == "nodes")
    assert int(change.after) < machine.nodes
    hold(problem, answer)


def test_drives_are_added_whole():
    machine = cluster(gpus=4, hbm="40 GB", dram="4 TB", nvme="1 TB")
    few = with_tier(machine, "nvme", drive_count=1, drive=DRIVE)
    small = with_tier(few, "dram", capacity=300e9)
    problem = asked(small, LARGE)
    answer = solve(problem)
    hold(problem, answer)
    paths = {change.path for change in answer.changes}
    assert "tiers.nvme.drive_count" in paths
    assert "tiers.nvme.capacity" not in paths


@settings(derandomize=True, max_examples=25, deadline=None)
@given(machines(), workloads(), st.sampled_from(["deepspeed", "ideal"]))
def test_changes_hold_for_any_problem(machine, work, runtime):
    problem = Problem(machine, work, RUNTIMES[runtime])
    hold(problem, solve(problem))


@settings(derandomize=True, max_examples=25, deadline=None)
@given(machines(), workloads(), st.sampled_from(["deepspeed", "ideal"]), st.floats(1, 50), st.data())
def test_more_capacity_never_worsens_the_verdict(machine, work, runtime, factor, data):
    name = data.draw(st.sampled_from(list(machine.node.tiers)))
    roomier = with_tier(machine, name, capacity=factor * machine.node.tiers[name].capacity)
    before, after = (solve(Problem(m, work, RUNTIMES[runtime])).best for m in (machine, roomier))
    assert RANK.index(after.verdict) <= RANK.index(before.verdict)


def test_fewest_gpus_are_the_fewest_nodes_that_surely_fit():
    problem = asked(cluster(nodes=8, gpus=4, hbm="40 GB", dram="200 GB", nvme=None), LARGE, objective="gpus")
    answer = solve(problem)
    nodes = answer.problem.cluster.nodes
    assert nodes > 1
    assert answer.best.verdict == "fits"
    assert answer.best.gpus == 4 * nodes
    for fewer in range(1, nodes):
        smaller = replace(problem, cluster=replace(problem.cluster, nodes=fewer), objective="time")
        if BATCH["global_batch_size"] % (4 * fewer) == 0:
            assert solve(smaller).best.verdict != "fits"


def test_fewest_gpus_may_be_some_of_one_node():
    problem = asked(cluster(nodes=2, gpus=8, hbm="32 GB", dram="24 GB", nvme=None), objective="gpus")
    best = solve(problem).best
    assert best.verdict == "fits"
    assert best.gpus == best.plan.dp_degree == 2
    alone = replace(problem, cluster=replace(problem.cluster, nodes=1), objective="time")
    assert solve(replace(alone, fixed={"dp_degree": 1.0})).best.verdict != "fits"


def test_more_gpus_come_before_changes_to_the_model():
    """Tiles would fit on fewer nodes, but nobody allowed them."""
    problem = asked(cluster(nodes=4, gpus=4, hbm="40 GB", dram="200 GB", nvme=None), LARGE, objective="gpus")
    assert solve(problem).best.plan.tile_count == 1


def test_cheapest_is_the_least_node_time_per_token():
    problem = asked(cluster(nodes=4, gpus=4), objective="cost", training={"sequence_length": 2048})
    answer = solve(problem)
    spent = answer.problem.cluster.nodes * answer.best.time_per_token
    for nodes in (1, 2, 3, 4):
        other = replace(problem, cluster=replace(problem.cluster, nodes=nodes), objective="time")
        assert spent <= nodes * solve(other).best.time_per_token * (1 + 1e-12)


def test_least_wear_writes_least_then_runs_fastest():
    problem = asked(cluster(gpus=4, dram="400 GB"), LARGE)
    fast, gentle = solve(problem).best, solve(replace(problem, objective="wear")).best
    assert gentle.flash_writes / gentle.tokens_per_step <= fast.flash_writes / fast.tokens_per_step


def test_wear_counts_what_goes_straight_from_the_gpu():
    machine = cluster(gpus=4, hbm="8 GB", dram="8 GB")
    best = solve(asked(machine, runtime="ideal")).best
    assert best.flash_writes == best.traffic["nvme"][1] > 0


def test_do_not_offload_is_an_answer():
    roomy = solve(asked(cluster(gpus=8)))
    assert roomy.do_not_offload
    assert roomy.baseline.fits_here
    assert not solve(asked(cluster(gpus=8, hbm="10 GB"))).do_not_offload


def test_baseline_takes_the_gpus_that_states_of_16_bytes_take():
    answer = solve(asked(cluster(gpus=2, hbm="40 GB"), LARGE))
    baseline = answer.baseline
    needed = 16 * LARGE.params / baseline.usable_bytes_per_gpu
    assert needed <= baseline.gpus < needed + 1
    assert not baseline.fits_here
    assert 0 < baseline.usable_bytes_per_gpu < 40e9


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("training", [BATCH, {"sequence_length": 4096}])
def test_numbers_are_pythons_own(runtime, training):
    answer = solve(
        asked(cluster(nodes=2, gpus=4, hbm="24 GB", dram="100 GB"), training=training, runtime=runtime)
    )
    assert leaks(answer) == set()


def leaks(thing, path="answer", seen=None):
    """Where in a record numpy's numbers stand."""
    seen = set() if seen is None else seen
    if isinstance(thing, (np.generic, np.ndarray)):
        return {path}
    if id(thing) in seen or isinstance(thing, (str, int, float, type(None))):
        return set()
    seen.add(id(thing))
    if dataclasses.is_dataclass(thing):
        inside = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
    elif isinstance(thing, Mapping):
        inside = dict(thing)
    elif isinstance(thing, (list, tuple)):
        inside = dict(enumerate(thing))
    else:
        inside = {"lines": thing.lines} if hasattr(thing, "lines") else {}
    return set().union(*(leaks(value, f"{path}.{name}", seen) for name, value in inside.items()))


def test_divisors_are_all_there_and_in_order():
    for number in (1, 2, 36, 97, 1024, 99_999_999):
        found = batches._divisors(number)
        assert found == sorted(set(found))
        assert all(number % divisor == 0 for divisor in found)
    assert batches._divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
