"""Two-layer steps of every runtime against lists worked out by hand (times in s; see `two`)."""

from dataclasses import replace
from itertools import pairwise

import pytest
from runtimes.drawn import with_link
from simulate.two import events, machine, plan, products_alone, work

from ziplan.plan import Checkpointing
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.knobs import knobs
from ziplan.simulate.engine import Stuck
from ziplan.simulate.links import Machine
from ziplan.simulate.step import simulate
from ziplan.workload.model import Operator

NONE = float(Checkpointing.NONE)


@pytest.fixture(autouse=True)
def no_hops(monkeypatch):
    """Round numbers: gathers that take no more than their bytes do."""
    monkeypatch.setattr(Machine, "_around", lambda self: ())


def ideal(chosen, **more):
    return simulate(machine(), work(), RUNTIMES["ideal"], chosen, **more)


def deepspeed(chosen, layers=2, **more):
    return simulate(products_alone(), work(layers), RUNTIMES["deepspeed"], chosen, **more)


def test_ideal_one_buffer_ahead():
    """A fetch is 0.5 s of drive beside 0.5 s of fabric; backward is 3 s, with recomputation, 2 s in layer 0.

    Two buffers: both layers are fetched one after the other, and each fetch of backward begins when
    a layer has computed.
    """
    simulation = ideal(plan("nvme", "dram"))
    assert events(simulation, "micro-step", "gpu") == [
        (0.5, 1.5, "gpu", "layer 0 forward"),
        (1.5, 2.5, "gpu", "layer 1 forward"),
        (2.5, 5.5, "gpu", "layer 1 backward"),
        (5.5, 7.5, "gpu", "layer 0 backward"),
    ]
    fetched = [
        (0.0, 0.5, "layer 0 forward"),
        (0.5, 1.0, "layer 1 forward"),
        (1.5, 2.0, "layer 1 backward"),
        (2.5, 3.0, "layer 0 backward"),
    ]
    for resource in ("nvme.read", "gather"):
        found = events(simulation, "micro-step", resource)
        assert [(b, e, name) for b, e, _, name in found] == fetched
    assert events(simulation, "micro-step", "dram.write") == [
        (5.5, 5.6, "dram.write", "layer 1 backward"),
        (7.5, 7.6, "dram.write", "layer 0 backward"),
    ]
    # The pass: 4e6 parameters on one node at 2e6 a second.
    assert events(simulation, "optimizer step") == [(0.0, 2.0, "cpu_optimizer", "sub-group 0")]
    assert simulation.makespan == pytest.approx(7.6 + 2.0)
    assert simulation.tally.stalls_by_cause == {
        "cpu": pytest.approx(2.0),
        "nvme": pytest.approx(0.5),
        "host from GPU": pytest.approx(0.1),
    }


def test_ideal_stops_at_the_turn_when_asked():
    simulation = ideal(plan("nvme", "hbm"), over_the_turn=False)
    assert events(simulation, "micro-step", "nvme.read")[2:] == [
        (2.5, 3.0, "nvme.read", "layer 1 backward"),
        (3.0, 3.5, "nvme.read", "layer 0 backward"),
    ]
    assert events(simulation, "micro-step", "gpu")[2] == (3.0, 6.0, "gpu", "layer 1 backward")


def test_ideal_reaches_into_the_next_micro_step():
    """Its first layer's fetch waits for a buffer and for nothing else."""
    simulation = ideal(plan("nvme", "hbm", accumulation_steps=2.0))
    assert events(simulation, "micro-step", "nvme.read")[4] == (5.5, 6.0, "nvme.read", "layer 0 forward")
    assert simulation.stages[0].tally.span == pytest.approx(0.5 + 2 * 7.0)


def test_ideal_owners_read_whole_layers_side_by_side():
    """Layer 0 is rank 0's, layer 1 rank 1's: 4e6 bytes at 4 MB/s each, at the same time."""
    simulation = ideal(plan("nvme", "hbm"), owner_broadcast=True)
    assert events(simulation, "micro-step", "nvme.read")[:2] == [
        (0.0, 1.0, "nvme.read", "layer 0 forward"),
        (0.0, 1.0, "nvme.read", "layer 1 forward"),
    ]
    assert events(simulation, "micro-step", "gather") == []
    assert simulation.tally.moved["nvme.read"] == 8e6, "a rank reads every other layer, in both sweeps"


def test_deepspeed_reads_ahead_beside_compute():
    """Stage 3 from the host, one layer ahead: 0.1 s of copy, then 0.5 s of gather.

    Layer 1 is kept over the turn, so three fetches in all; at layer 1 (forward) there is room to
    ask for layer 0 again. All gradients fit in one bucket, which is reduced at the end: 4e6 B in 1 s.
    """
    simulation = deepspeed(plan("dram", "hbm", activation_checkpointing=NONE))
    assert events(simulation, "last micro-step") == [
        (0.0, 0.1, "dram.read", "layer 0 matrix forward"),
        (0.1, 0.2, "dram.read", "layer 0 matrix forward"),
        (0.1, 0.6, "gather", "layer 0 matrix forward"),
        (0.6, 1.1, "gather", "layer 0 matrix forward"),
        (0.6, 1.6, "gpu_matrix", "layer 0 matrix forward"),
        (1.6, 1.7, "dram.read", "layer 1 matrix forward"),
        (1.6, 2.6, "gpu_matrix", "layer 1 matrix forward"),
        (1.7, 2.2, "gather", "layer 1 matrix forward"),
        (2.6, 4.6, "gpu_matrix", "layer 1 matrix backward"),
        (4.6, 5.6, "gpu_matrix", "layer 0 matrix backward"),
        (5.6, 6.6, "gather", "bucket 0"),
    ]
    assert simulation.tally.high_water["gathered parameters"] == 8e6


def test_deepspeed_on_nvme_fetches_when_the_module_is_reached():
    """Read 0.5 s, copy 0.1 s, gather 0.5 s, then compute: each in the way of the next."""
    chosen = plan("nvme", "hbm", activation_checkpointing=NONE, param_buffer_count=1.0)
    simulation = deepspeed(chosen)
    assert events(simulation, "last micro-step")[:8] == [
        (0.0, 0.5, "nvme.swap_read", "layer 0 matrix forward"),
        (0.5, 0.6, "dram.read", "layer 0 matrix forward"),
        (0.6, 1.1, "gather", "layer 0 matrix forward"),
        (1.1, 2.1, "gpu_matrix", "layer 0 matrix forward"),
        (2.1, 2.6, "nvme.swap_read", "layer 1 matrix forward"),
        (2.6, 2.7, "dram.read", "layer 1 matrix forward"),
        (2.7, 3.2, "gather", "layer 1 matrix forward"),
        (3.2, 4.2, "gpu_matrix", "layer 1 matrix forward"),
    ]


def test_deepspeed_recomputes_a_layer_up_to_its_last_matrix_which_here_is_its_only_one():
    simulation = deepspeed(plan("hbm", "hbm"))
    assert [name for *_, name in events(simulation, "last micro-step", "gpu_matrix")] == [
        "layer 0 matrix forward",
        "layer 1 matrix forward",
        "layer 1 matrix backward",
        "layer 0 matrix backward",
    ]
    assert [e - b for b, e, *_ in events(simulation, "last micro-step", "gpu_matrix")] == [1.0, 1.0, 2.0, 1.0]


def test_deepspeed_takes_turns_in_an_optimizer_step_that_is_not_pipelined():
    """4 sub-groups of half a layer's shard: read, update, write, one after the other."""
    chosen = plan("hbm", "nvme", sub_group_params=1e6, optimizer_buffer_count=4.0)
    simulation = deepspeed(chosen, layers=4)
    found = events(simulation, "optimizer step")
    assert [(resource, name) for _, _, resource, name in found[:8]] == [
        (resource, f"sub-group {number}")
        for number in (0, 1)
        for resource in ("nvme.swap_read", "cpu_optimizer", "dram.read_staged", "nvme.swap_write")
    ]
    for before, after in pairwise(found):
        assert before[1] == after[0]


def test_deepspeed_reads_and_writes_behind_the_update_when_it_is_pipelined():
    chosen = plan("hbm", "nvme", sub_group_params=1e6, optimizer_buffer_count=12.0)
    simulation = deepspeed(chosen, layers=4)
    found = {(resource, name): (b, e) for b, e, resource, name in events(simulation, "optimizer step")}
    # The read of the next one begins when this one's is there, and this one's update with it.
    begins = found["nvme.swap_read", "sub-group 1"][0]
    assert begins == found["nvme.swap_read", "sub-group 0"][1] == found["cpu_optimizer", "sub-group 0"][0]
    # Writing one goes on beside the update of the next.
    assert found["nvme.swap_write", "sub-group 0"][1] > found["cpu_optimizer", "sub-group 1"][0]
    assert simulation.tally.high_water["optimizer swap buffers"] == 12.0
    in_turn = plan("hbm", "nvme", sub_group_params=1e6, optimizer_buffer_count=4.0)
    slower = deepspeed(in_turn, layers=4)
    assert simulation.stages[-1].tally.span < slower.stages[-1].tally.span


def test_deepspeed_without_buffers_for_what_is_live_is_stuck():
    """As the swapper is: a buffer is held until the gathered tensor is let go, and here two are kept."""
    chosen = plan("nvme", "hbm", activation_checkpointing=float(Checkpointing.FULL), param_buffer_count=0.0)
    with pytest.raises(Stuck, match="waits for ever for 1 of 'parameter swap buffers'"):
        deepspeed(chosen)


def test_fsdp_gathers_ahead_and_reduces_behind():
    """0.5 s of gather a layer, 0.5 s to reduce 4e6 bytes of gradients between two ranks; no recomputation.

    Both first gathers may begin at once and share nothing: they take turns. Layer 1's gather in
    backward stands in the way (nothing comes before it to hide it), layer 0's begins with layer 1's
    compute.
    """
    simulation = simulate(products_alone(), work(), RUNTIMES["fsdp"], plan(activation_checkpointing=NONE))
    assert events(simulation, "first micro-step") == [
        (0.0, 0.5, "gather", "layer 0 forward"),
        (0.5, 1.0, "gather", "layer 1 forward"),
        (0.5, 1.5, "gpu_matrix", "layer 0 forward"),
        (1.5, 2.5, "gpu_matrix", "layer 1 forward"),
        (2.5, 3.0, "gather", "layer 1 backward"),
        (3.0, 3.5, "gather", "layer 0 backward"),
        (3.0, 5.0, "gpu_matrix", "layer 1 backward"),
        (5.0, 5.5, "gather", "layer 1 gradients"),
        (5.0, 6.0, "gpu_matrix", "layer 0 backward"),
        (6.0, 6.5, "gather", "layer 0 gradients"),
    ]


def test_deepspeed_writes_one_sub_group_at_a_time():
    """`swap_out_optimizer_state` waits for the write before it begins the next.

    A small sub-group is read and updated while the large one before it is still being written.
    """
    wide = Operator("wide", "linear", 1000, 12_000, count=2)
    narrow = Operator("narrow", "linear", 1000, 2000, count=2)
    job = replace(work(), model=replace(work().model, operators=(wide, narrow)))
    chosen = plan("hbm", "nvme", sub_group_params=1e6, optimizer_buffer_count=12.0)
    simulation = simulate(machine(), job, RUNTIMES["deepspeed"], chosen)
    writes = events(simulation, "optimizer step", "nvme.swap_write")
    assert [name for *_, name in writes] == [f"sub-group {number}" for number in range(4)]
    updates = {name: end for _, end, _, name in events(simulation, "optimizer step", "cpu_optimizer")}
    assert updates["sub-group 1"] < writes[0][1] == writes[1][0]
    for before, after in pairwise(writes):
        assert before[1] <= after[0]


def reduced_slowly(stage):
    """A layer a bucket on a slow fabric: when backward begins with each layer, when buckets are reduced."""
    slow = with_link(products_alone(), "fabric", 0.02)
    chosen = plan(activation_checkpointing=NONE, zero_stage=stage)
    simulation = simulate(slow, work(9, 12_000), RUNTIMES["deepspeed"], chosen)
    ends = [end for _, end, _, name in events(simulation, "last micro-step", "gather") if "bucket" in name]
    gpu = events(simulation, "last micro-step", "gpu_matrix")
    return [begin for begin, _, _, name in gpu if name.endswith("backward")], ends


def test_stage_2_leaves_one_bucket_to_be_reduced():
    """All-reduced in 2 x 150 s where backward takes 12.

    Bucket n is reduced when layer n + 1's gradients are there, and backward waits for bucket n - 1 first
    (`average_tensor`): so the compute after the next does, from the fourth on.
    """
    begins, ends = reduced_slowly(2.0)
    assert [b - begins[0] for b in begins[:3]] == [0.0, 12.0, 24.0]
    assert begins[3:] == ends[:6] == [9 * 6 + 2 * 12 + 300.0 * (n + 1) for n in range(6)]


def test_stage_3_leaves_no_more_than_three_buckets_to_be_reduced(monkeypatch):
    """The thread waits for bucket n - 3 (`max_param_reduce_events`); here nothing has to be gathered."""
    kept = knobs(work(9, 12_000).model, plan(), None)._replace(persistence=1e9)
    monkeypatch.setattr(Facts, "knobs", kept)
    begins, ends = reduced_slowly(3.0)
    assert [b - begins[0] for b in begins[:5]] == pytest.approx([0, 12, 24, 36, 48])
    assert begins[5:] == pytest.approx(ends[:4])


def test_fsdp_gathers_a_group_when_the_one_two_before_it_begins():
    simulation = simulate(products_alone(), work(4), RUNTIMES["fsdp"], plan(activation_checkpointing=NONE))
    forward = [each for each in events(simulation, "first micro-step", "gather") if "forward" in each[3]]
    assert [(begins, ends) for begins, ends, *_ in forward] == [
        (0.0, 0.5),
        (0.5, 1.0),
        (1.0, 1.5),
        (1.5, 2.0),
    ]
