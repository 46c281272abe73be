"""What holds of every step of every runtime, however it is played."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runtimes.drawn import situations, with_link
from runtimes.toy import cluster, plan, toy, workload

from ziplan.errors import BadInput
from ziplan.estimate import estimate
from ziplan.laws.law import Derivation
from ziplan.runtimes import RUNTIMES
from ziplan.simulate.sharing import alone
from ziplan.simulate.step import simulate

ROUNDING = 1e-6
few = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])


def played(situation, **more):
    runtime, machine, work, settled = situation
    return simulate(machine, work, runtime, settled, **more)


def by_link(moved):
    """(read, written) of each link, from the amounts of each resource."""
    links = {}
    for resource, amount in moved.items():
        if resource not in ("gpu", "cpu_optimizer"):
            name, _, direction = resource.partition(".")
            read, written = links.get(name, (0.0, 0.0))
            out = direction.endswith("write")
            links[name] = (read, written + amount) if out else (read + amount, written)
    return {name: row for name, row in links.items() if any(row)}


@few
@given(situations())
def test_bytes_and_flops_are_the_estimates(situation):
    """Every byte of every link, and every FLOP, is moved once, as often as the program says."""
    runtime, machine, work, settled = situation
    simulation = played(situation)
    program = runtime.program(Derivation(record=False), machine, work, settled)
    wanted = {}
    for segment in program:
        for demand in {id(d): d for chain in segment.chains for d in chain}.values():
            whole = float(segment.repeats * demand.amount)
            wanted[demand.resource] = wanted.get(demand.resource, 0.0) + whole
    moved = simulation.tally.moved
    for resource in {*wanted, *moved}:
        assert moved.get(resource, 0.0) == pytest.approx(wanted.get(resource, 0.0), rel=1e-9), resource
    traffic = estimate(machine, work, runtime, settled).traffic
    links = by_link(moved)
    for name, (read, written) in traffic.items():
        assert links.get(name, (0.0, 0.0)) == (
            pytest.approx(float(read), rel=1e-9),
            pytest.approx(float(written), rel=1e-9),
        )


@few
@given(situations())
def test_a_step_takes_as_long_as_its_busiest_link_and_no_longer_than_everything_in_turn(situation):
    simulation = played(situation)
    assert max(simulation.tally.busy.values()) <= simulation.makespan * (1 + ROUNDING)
    in_turn = 0.0
    for stage in simulation.stages:
        watched = stage.watched
        took = sum(
            task.work / alone(task.uses, watched.rates).rate
            for task in watched.tasks
            if task.uses and task.work
        )
        assert watched.played.span <= took * (1 + ROUNDING)
        in_turn += took / stage.rounds * stage.repeats
    assert simulation.makespan <= in_turn * (1 + ROUNDING)


@few
@given(situations())
def test_the_gpu_works_or_waits_for_something(situation):
    sums = played(situation).tally
    assert sums.computing + sums.stalled == pytest.approx(sums.span, rel=1e-6)
    assert all(cause for _, cause in sums.stalls)
    assert all(seconds >= -ROUNDING * sums.span for seconds in sums.stalls.values())


@few
@given(situations())
def test_buffers_that_run_out_are_never_overdrawn(situation):
    simulation = played(situation)
    for buffers in simulation.buffers:
        if not buffers.gauge:
            assert simulation.tally.high_water[buffers.name] <= buffers.capacity * (1 + ROUNDING)


@few
@given(situations(names=("deepspeed",)))
def test_deepspeed_gathers_no_more_than_its_ledger_says(situation):
    simulation = played(situation)
    (gathered,) = (b for b in simulation.buffers if b.name == "gathered parameters")
    assert simulation.tally.high_water[gathered.name] <= gathered.capacity * (1 + ROUNDING)
    for stage, levels in ((s, s.watched.levels) for s in simulation.stages):
        for each in levels:
            assert not each or each[-1][1] == pytest.approx(0.0, abs=1.0), f"{stage.name} gives all back"


@few
@given(situations(names=("ideal",)))
def test_the_ideal_step_uses_no_more_gpu_memory_than_its_ledger_says(situation):
    runtime, machine, work, settled = situation
    simulation = played(situation)
    (hbm,) = (buffers for buffers in simulation.buffers if buffers.gauge)
    book = runtime.ledger(Derivation(record=False), machine, work, settled)
    need = max(book.need("hbm", phase)[1] for phase in ("forward", "backward"))
    used = simulation.tally.high_water["hbm"] + hbm.held
    assert used <= need * (1 + ROUNDING)
    assert used >= 0.5 * need


@few
@given(situations(), st.sampled_from(["node", "gpu", "cpu", "drive", "host", "fabric", "network", "dram"]))
def test_nothing_slow_makes_a_step_faster(situation, part):
    if part == "drive" and situation[1].node.tier_of("nvme") is None:
        return
    before, after = played(situation).makespan, played(situation, slow={part: 0.5}).makespan
    assert before * (1 - 1e-3) <= after <= 2 * before * (1 + ROUNDING)


@few
@given(situations(names=("ideal",)))
def test_a_faster_host_link_never_slows_an_ideal_step(situation):
    runtime, machine, work, settled = situation
    faster = simulate(with_link(machine, "host", 2.0), work, runtime, settled)
    assert faster.makespan <= played(situation).makespan * (1 + 1e-3)


@pytest.mark.parametrize("name", RUNTIMES)
def test_the_same_step_is_played_the_same_way(name):
    homes = ("hbm", "hbm") if name == "fsdp" else ("nvme", "nvme")
    chosen = plan(*homes, dp_degree=4.0, accumulation_steps=3.0, param_buffer_count=8.0)
    run = cluster(gpus=4), workload(toy(4)), RUNTIMES[name], chosen
    first, second = simulate(*run), simulate(*run)
    assert [s.watched.played for s in first.stages] == [s.watched.played for s in second.stages]
    assert first.tally == second.tally


def test_a_rate_that_nobody_stated_leaves_the_step_unknown():
    machine = cluster()
    tiers = machine.node.tiers
    bare = tiers["nvme"].model_copy(update={"read_bandwidth": None})
    node = machine.node.model_copy(update={"tiers": {**tiers, "nvme": bare}})
    chosen = plan("hbm", "nvme")
    simulation = simulate(type(machine)(node, 1), workload(), RUNTIMES["deepspeed"], chosen)
    assert simulation.unknown == ("tiers.nvme.read_bandwidth",)
    assert math.isnan(simulation.makespan)
    on_gpu = simulate(type(machine)(node, 1), workload(), RUNTIMES["deepspeed"], plan())
    assert on_gpu.unknown == (), "what is not needed is not missed"


@pytest.mark.parametrize("name", ["deepspeed", "fsdp"])
def test_what_only_the_ideal_runtime_can_do_is_refused_elsewhere(name):
    with pytest.raises(BadInput, match="nothing to choose"):
        simulate(cluster(), workload(), RUNTIMES[name], plan(), owner_broadcast=True)
