"""What holds of every runtime, whatever the machine, the model and the plan."""

import math
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtimes.drawn import situations, with_link, with_tier

from ziplan.estimate import estimate
from ziplan.estimate.evaluate import _demand_time
from ziplan.estimate.rates import Rates
from ziplan.hardware.rates import MATRIX_OVER_SUSTAINED
from ziplan.laws.law import Derivation
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.runtime import PHASES

drawn = settings(derandomize=True, max_examples=120, deadline=None)
BIT = 1 + 1e-9


def evaluated(situation, record=False):
    runtime, machine, work, plan = situation
    return estimate(machine, work, runtime, plan, record=record)


def busy_by_resource(situation):
    """Seconds that each resource works in a step."""
    runtime, machine, work, plan = situation
    silent = Derivation(record=False)
    rates = Rates(silent, machine, work.precision, runtime, plan.dp_degree)
    seconds = {}
    for segment in runtime.program(silent, machine, work, plan):
        demands = {id(demand): demand for chain in segment.chains for demand in chain}
        for demand in demands.values():
            spent = segment.repeats * _demand_time(silent, rates, demand)
            seconds[demand.resource] = seconds.get(demand.resource, 0.0) + spent
    return seconds


@drawn
@given(situations())
def test_every_line_is_a_range_of_bytes(situation):
    answer = evaluated(situation)
    for line in answer.ledger.lines:
        assert 0 <= line.low <= line.high < math.inf, line
        assert set(line.phases) <= set(PHASES)
        assert line.tier in answer.memory
    assert answer.may_fit or not answer.fits


@drawn
@given(situations(), st.floats(1, 100), st.data())
def test_more_capacity_never_turns_a_fit_into_a_misfit(situation, factor, data):
    runtime, machine, work, plan = situation
    name = data.draw(st.sampled_from(list(machine.node.tiers)))
    roomier = with_tier(machine, name, capacity=factor * machine.node.tiers[name].capacity)
    order = ("fits", "tight", "does_not_fit")
    before, after = (estimate(m, work, runtime, plan, record=False).verdict for m in (machine, roomier))
    assert order.index(after) <= order.index(before)


@drawn
@given(situations(), st.floats(0.01, 100), st.data())
def test_bytes_and_work_depend_on_no_bandwidth_and_on_no_room_of_a_node(situation, factor, data):
    runtime, machine, work, plan = situation
    name = data.draw(st.sampled_from([n for n, tier in machine.node.tiers.items() if tier.scope == "node"]))
    tier = machine.node.tiers[name]
    update = {
        field: factor * getattr(tier, field)
        for field in ("capacity", "read_bandwidth", "write_bandwidth")
        if getattr(tier, field) is not None
    }
    other = with_tier(machine, name, **update)
    for link in machine.node.links:
        other = with_link(other, link, factor)
    silent = Derivation(record=False)
    for tell in (runtime.settle, *(partial(told, silent) for told in (runtime.ledger, runtime.program))):
        before, after = (tell(m, work, plan) for m in (machine, other))
        assert getattr(after, "lines", after) == getattr(before, "lines", before)


@drawn
@given(situations(), st.floats(1, 100), st.data())
def test_more_bandwidth_never_slows_a_plan(situation, factor, data):
    runtime, machine, work, plan = situation
    slow = evaluated(situation).step_time
    link = data.draw(st.sampled_from(list(machine.node.links)))
    assert estimate(with_link(machine, link, factor), work, runtime, plan, False).step_time <= slow * BIT
    name = data.draw(st.sampled_from(list(machine.node.tiers)))
    tier, update = machine.node.tiers[name], {}
    for field in ("read_bandwidth", "write_bandwidth"):
        if getattr(tier, field) is not None:
            update[field] = factor * getattr(tier, field)
    faster = with_tier(machine, name, **update)
    assert estimate(faster, work, runtime, plan, False).step_time <= slow * BIT


@drawn
@given(situations())
def test_a_step_takes_between_its_busiest_resource_and_all_of_them_in_turn(situation):
    seconds = busy_by_resource(situation)
    step = evaluated(situation).step_time
    assert max(seconds.values()) <= step * BIT
    assert step <= sum(seconds.values()) * BIT


@drawn
@given(situations())
def test_exposed_terms_add_up_to_the_step(situation):
    answer = evaluated(situation, record=True)
    assert sum(answer.terms.values()) == pytest.approx(answer.step_time, rel=1e-12)
    assert sum(answer.busy.values()) == pytest.approx(sum(busy_by_resource(situation).values()), rel=1e-12)
    for term, seconds in answer.terms.items():
        assert 0 < seconds <= answer.busy[term] * BIT


def state_bytes(situation, names):
    """Bytes of a state over all instances of all tiers."""
    _, machine, _, plan = situation
    counts = {
        name: plan.dp_degree if tier.scope == "gpu" else machine.nodes
        for name, tier in machine.node.tiers.items()
    }
    lines = evaluated(situation).ledger.lines
    return sum(line.high * counts[line.tier] for line in lines if line.name in names)


@drawn
@given(situations(("ideal",)))
def test_the_article_holds_16_bytes_per_parameter(situation):
    params = situation[2].model.params
    assert state_bytes(situation, {"parameters"}) == pytest.approx(2 * params)
    assert state_bytes(situation, {"gradients"}) == pytest.approx(2 * params)
    assert state_bytes(situation, {"optimizer state"}) == pytest.approx(12 * params)


@drawn
@given(situations(("deepspeed",)))
def test_deepspeed_holds_each_state_once(situation):
    """Stage 3 pads shards to whole elements; below it the states are whole on each rank."""
    _, _, work, plan = situation
    params, element = work.model.params, 4 if work.precision == "fp32" else 2
    copies = plan.dp_degree if plan.zero_stage < 1 else 1
    unwrapped = element == 4 and plan.zero_stage < 1
    moments_and_master = 8 if unwrapped else 12
    names = {"optimizer state", "master weights", "pinned master weights", "optimizer files"}
    states = state_bytes(situation, names)
    assert states == pytest.approx(copies * moments_and_master * params, rel=1e-3)
    copies = plan.dp_degree if plan.zero_stage < 3 else 1
    kept = state_bytes(situation, {"parameters", "parameter files", "parameters that cannot swap"})
    assert kept == pytest.approx(copies * element * params, rel=1e-3)


@drawn
@given(situations(("deepspeed",)))
def test_gradients_have_one_accumulation_buffer(situation):
    """On the GPU, or pinned on the host once the optimizer leaves it (stages 1 and 2: if accumulated)."""
    _, _, work, plan = situation
    params, element = work.model.params, 4 if work.precision == "fp32" else 2
    held = state_bytes(situation, {"gradients", "gradient shard", "gradient accumulation buffer"})
    if plan.zero_stage >= 3:
        assert held == pytest.approx(element * params, rel=1e-3)
    elif plan.zero_stage < 1 or (plan.zero_stage < 2 and plan.accumulation_steps > 1):
        assert held >= plan.dp_degree * element * params * (1 - 1e-9)
    elif plan.placement.optimizer.get("hbm", 0.0) == 1:
        assert held >= element * params * (1 - 1e-9)


@drawn
@given(situations())
def test_settling_twice_changes_nothing(situation):
    runtime, machine, work, plan = situation
    again = runtime.settle(machine, work, plan)
    assert again.placement.optimizer == pytest.approx(plan.placement.optimizer)
    assert (again.param_buffer_count, again.optimizer_buffer_count, again.prefetch_depth) == (
        plan.param_buffer_count,
        plan.optimizer_buffer_count,
        plan.prefetch_depth,
    )


@drawn
@given(situations(("deepspeed",)))
def test_what_settles_can_run(situation):
    runtime, machine, work, plan = situation
    assert runtime.refusals(machine, work, plan) == []


@drawn
@given(situations())
def test_accumulating_amortises_the_optimizer_and_nothing_else(situation):
    """What a runtime adds up where the optimizer lives, it says in a term of its own."""
    runtime, machine, work, plan = situation
    one, two = (
        estimate(machine, work, runtime, replace(plan, accumulation_steps=float(n)), True) for n in (1, 2)
    )
    program = runtime.program(Derivation(record=False), machine, work, plan)
    repeated = [segment.name for segment in program if segment.repeats != 1 and not segment.idle]
    assert repeated in ([], ["micro-step"])
    added = two.terms.get("gradient accumulation", 0.0)
    assert one.step_time <= two.step_time <= (2 * one.step_time + added) * BIT


@drawn
@given(situations(("deepspeed",)))
def test_nothing_but_shortcuts_beats_perfect_overlap(situation):
    """The article's runtime on the same plan, where both do the same work.

    It counts 6 or 8 FLOPs for every parameter, looked up or multiplied, fetches twice whatever is
    still live, and writes gradients to the optimizer's home in each micro-step; where DeepSpeed
    does less of these the two do not compare. It computes everything at the rate of whole steps, which
    products with matrices alone exceed.
    """
    _, machine, work, plan = situation
    homes = plan.placement
    if plan.zero_stage < 3 or homes.params.get("hbm", 0) < 1 or homes.optimizer.get("nvme", 0) > 0:
        return
    real = evaluated(situation)
    ideal = estimate(machine, work, RUNTIMES["ideal"], plan, record=False)
    more_work = max(1.0, ideal.hardware_flops / real.hardware_flops)
    assert ideal.step_time <= real.step_time * more_work * MATRIX_OVER_SUSTAINED * BIT
