"""Links of a machine, what crosses them at once, and one slow part of one node."""

import pytest
from simulate.two import events, machine, plan, work

from ziplan.laws.contention import contended_fetch_time
from ziplan.runtimes import RUNTIMES
from ziplan.simulate.links import Machine, slowable
from ziplan.simulate.step import simulate

LAYER_SLICE = 2e6


def links(path):
    return [name for name, _ in path.uses]


def ideal(cluster, chosen=None, **more):
    return simulate(cluster, work(8), RUNTIMES["ideal"], chosen or plan("nvme", "hbm"), **more)


def rooted(**more):
    """Drives and the exchange between GPUs below one root complex of 8 MB/s, 4 MB/s for each rank."""
    box = machine()
    nvme = box.node.tiers["nvme"].model_copy(update={"via": ("root",)})
    root = box.node.links["host"].model_copy(update={"bandwidth": 8e6, "shared_by": 2})
    update = {
        "tiers": {**box.node.tiers, "nvme": nvme},
        "links": {**box.node.links, "root": root},
        **more,
    }
    return type(box)(box.node.model_copy(update=update), 1)


def test_every_link_of_a_path_is_crossed_at_once():
    node = Machine(machine(), "bf16", 6e9, 2.0)
    assert links(node.path("nvme.swap_read")) == ["nvme", "swap software"]
    assert links(node.path("nvme.read")) == ["nvme", "host to GPU"]
    assert links(node.path("dram.write")) == ["host from GPU"]
    assert links(node.path("gather")) == ["fabric"]
    assert links(Machine(machine(nodes=4), "bf16", None, 8.0).path("gather")) == ["fabric", "net"]
    assert links(Machine(machine(fabric=None), "bf16", None, 2.0).path("gather")) == [
        "host to GPU",
        "host from GPU",
    ]


def test_dram_is_crossed_by_all_that_passes_through_it():
    box = machine()
    dram = box.node.tiers["dram"].model_copy(update={"read_bandwidth": 100e6})
    node = box.node.model_copy(update={"tiers": {**box.node.tiers, "dram": dram}})
    paths = Machine(type(box)(node, 1), "bf16", None, 2.0)
    assert dict(paths.path("nvme.swap_read").uses)["dram"] == 2 / 100e6
    assert dict(paths.path("nvme.read").uses)["dram"] == 4 / 100e6, "written, and read again"
    assert dict(paths.path("dram.read").uses)["dram"] == 2 / 100e6
    # A node's parameter moves 28 bytes, 14 of them for each of two ranks, each with half the memory.
    adam = paths.path("cpu_optimizer")
    assert adam.scale == 14.0
    assert dict(adam.uses)["dram"] == 2 / 100e6


def test_flash_and_gather_below_one_root_complex_slow_each_other():
    """As the article warns: the slice's read and the gather that it feeds share the port."""
    apart, together = ideal(rooted()), ideal(rooted(fabric="root"))
    fetch = contended_fetch_time(read_bytes=LAYER_SLICE, allgather_bytes=LAYER_SLICE, root_bandwidth=4e6)
    assert events(apart, "micro-step", "gather", "nvme.read")[0][:2] == (0.0, 0.5)
    for event in events(together, "micro-step", "gather", "nvme.read")[:2]:
        assert event[:2] == (0.0, fetch)
    assert together.makespan > apart.makespan
    assert "root to GPU" in together.tally.stalls_by_cause


def test_one_slow_drive_of_one_node_slows_the_slices_of_all():
    """Each of four ranks has a slice of 1e6 bytes, 0.25 s; at an eighth of the rate 2 s.

    Drives read in order, so layer n of forward is there at 2 (n + 1): the last one computes from 16 to
    17. Its buffer for backward was free at 15 and the drive at 16, so backward begins at 18, and each
    of its 3 s hides a fetch.
    """
    cluster, chosen = machine(nodes=2), plan("nvme", "hbm", dp_degree=4.0)
    before = ideal(cluster, chosen)
    slow = ideal(cluster, chosen, slow={"drive": 0.125})
    # Here the gather is what fills: 3e6 bytes at 4 MB/s.
    assert before.stages[0].tally.span == pytest.approx(0.75 + 8 + 7 * 3 + 2)
    assert slow.tally.busy["nvme"] == pytest.approx(8 * slow.tally.busy["other ranks' nvme"])
    assert slow.tally.stalls_by_cause.keys() == {"nvme"}
    assert slow.stages[0].tally.span == pytest.approx(18 + 7 * 3 + 2)


def test_a_slow_node_that_only_computes_takes_as_much_longer():
    cluster = machine(nodes=2)
    chosen = plan("hbm", "hbm", dp_degree=4.0)
    before, after = ideal(cluster, chosen), ideal(cluster, chosen, slow={"node": 0.5})
    assert after.makespan == pytest.approx(2 * before.makespan, rel=0.02)
    assert after.tally.busy["gpu"] == pytest.approx(2 * after.tally.busy["other ranks' gpu"])


@pytest.mark.parametrize(("stated", "factor"), [(None, 0.5), (4e9, 1.0)])
def test_an_update_that_memory_limits_is_as_slow_as_memory(stated, factor):
    box = machine()
    dram = box.node.tiers["dram"].model_copy(update={"read_bandwidth": 100e9})
    cpu = box.node.cpu.model_copy(update={"adam_params_per_s": stated, "cores": None})
    node = box.node.model_copy(update={"tiers": {**box.node.tiers, "dram": dram}, "cpu": cpu})
    made = [Machine(type(box)(node, 1), "bf16", None, 2.0, slow) for slow in ({}, {"dram": 0.5})]
    rates = []
    for each in made:
        (processors, *_) = links(each.path("cpu_optimizer"))
        rates.append(each.capacities[processors])
    assert rates[1] == pytest.approx(factor * rates[0])


def test_a_slow_drive_costs_nothing_where_no_drive_is_used():
    before, after = (ideal(machine(nodes=2), plan(dp_degree=4.0), slow=s) for s in ({}, {"drive": 0.1}))
    assert after.makespan == pytest.approx(before.makespan, rel=1e-9)


def test_an_owner_on_the_slow_node_is_waited_for_when_its_turn_comes():
    cluster, chosen = machine(nodes=2), plan("nvme", "hbm", dp_degree=4.0, prefetch_depth=3.0)
    simulation = ideal(cluster, chosen, slow={"drive": 0.5}, owner_broadcast=True)
    reads = {who: e - b for b, e, _, who in events(simulation, "micro-step", "nvme.read")}
    assert reads["layer 0 forward"] == pytest.approx(2.0), "4e6 bytes at half of 4 MB/s"
    assert reads["layer 2 forward"] == pytest.approx(1.0), "the third rank is on the other node"


def test_what_can_be_slow_has_a_name():
    assert slowable(machine()) == [
        "node",
        "drive",
        "gpu",
        "cpu",
        "hbm",
        "dram",
        "nvme",
        "host",
        "fabric",
        "net",
    ]
