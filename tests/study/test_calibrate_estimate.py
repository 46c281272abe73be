"""What a calibration changes in an estimate: how much is hidden, how fast one process swaps, the interval."""

from dataclasses import replace

import pytest

from ziplan.estimate import estimate
from ziplan.estimate.evaluate import in_turn, step_parts
from ziplan.estimate.fidelity import NARROWEST, NVME, PARAMS_ON_HOST, kind_of
from ziplan.hardware.cluster import Calibrated
from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes import RUNTIMES
from ziplan.simulate.step import simulate
from ziplan.workload.load import load_workload

RUNTIME = RUNTIMES["deepspeed"]


@pytest.fixture(scope="module")
def workload():
    return load_workload("llama-3.1-8b", {"sequence_length": 2048}, ("bf16",))


def plan(cluster, workload, params, optimizer):
    placement = Placement(params={params: 1.0}, grads={optimizer: 1.0}, optimizer={optimizer: 1.0})
    asked = Plan(
        dp_degree=float(cluster.gpu_count),
        zero_stage=3.0,
        placement=placement,
        micro_batch_size=1.0,
        accumulation_steps=2.0,
        activation_checkpointing=float(Checkpointing.FULL),
    )
    return RUNTIME.settle(cluster, workload, asked)


def calibrated(cluster, **values):
    return replace(cluster, calibrated=Calibrated("calibration.yaml", "deepspeed", **values))


def step(cluster, workload, chosen):
    return estimate(cluster, workload, RUNTIME, chosen)


@pytest.mark.parametrize("overlap", [1.0, 0.6, 0.0])
def test_what_is_not_hidden_is_added_to_the_longest(workload, overlap):
    cluster = load_cluster("rtx-4090-desktop")
    chosen = plan(cluster, workload, "dram", "dram")
    hidden = step(cluster, workload, chosen)
    exposed = step(calibrated(cluster, overlap=overlap), workload, chosen)
    by_hand = 0.0
    for segment, seconds in step_parts(hidden, RUNTIME):
        resources = {demand.resource for demand in in_turn(segment)}
        rates = {r: exposed_rate(hidden, r) for r in resources}
        serial = segment.repeats * sum(d.amount / rates[d.resource] for d in in_turn(segment))
        works = "gpu_matrix" in resources
        by_hand += seconds + (1 - overlap) * (serial - seconds) * works
    assert exposed.step_time == pytest.approx(by_hand)
    assert sum(exposed.terms.values()) == pytest.approx(exposed.step_time)
    assert (exposed.step_time > hidden.step_time) == (overlap < 1)


def exposed_rate(answer, resource):
    from ziplan.estimate.rates import Rates
    from ziplan.laws.law import Derivation

    ranks = float(answer.plan.dp_degree)
    return Rates(Derivation(record=False), answer.cluster, "bf16", RUNTIME, ranks).of(resource)


def test_an_overlap_of_another_runtime_changes_nothing(workload):
    cluster = load_cluster("rtx-4090-desktop")
    chosen = plan(cluster, workload, "dram", "dram")
    other = replace(cluster, calibrated=Calibrated("x", "fsdp", overlap=0.0))
    assert step(other, workload, chosen).step_time == step(cluster, workload, chosen).step_time


def test_a_machines_swap_limit_takes_the_place_of_the_runtimes(workload):
    cluster = load_cluster("rtx-4090-desktop", [("swap_limit", "1 GB/s")])
    usual = load_cluster("rtx-4090-desktop")
    chosen = plan(cluster, workload, "nvme", "nvme")
    slow, fast = step(cluster, workload, chosen), step(usual, workload, chosen)
    moved = slow.traffic["nvme"]
    assert slow.terms["optimizer read"] > fast.terms["optimizer read"]
    swapped = sum(
        slow.terms.get(name, 0.0) for name in ("optimizer read", "optimizer write", "parameter read")
    )
    assert swapped == pytest.approx((moved[0] + moved[1] - 4.0 * workload.model.params) / 1e9, rel=0.02)
    assert (
        simulate(cluster, workload, RUNTIME, chosen).makespan
        > simulate(usual, workload, RUNTIME, chosen).makespan
    )


STATED = [("gpu.sustained_flops_per_s.bf16", "100 TFLOP/s"), ("cpu.adam_params_per_s", "1 Gparam/s")]
"""What would be assumed, and widen the interval by itself."""


def test_the_interval_is_that_of_the_calibrations_runs(workload):
    cluster = load_cluster("rtx-4090-desktop", STATED)
    chosen = plan(cluster, workload, "dram", "dram")
    assert kind_of(cluster, chosen) == PARAMS_ON_HOST
    several = step(calibrated(cluster, residuals={PARAMS_ON_HOST: (3, 0.7, 1.3)}), workload, chosen)
    assert several.interval == (0.7, 1.3)
    assert "calibration.yaml" in several.interval_source
    near = step(calibrated(cluster, residuals={PARAMS_ON_HOST: (3, 0.99, 1.01)}), workload, chosen)
    assert near.interval == (1 / NARROWEST, NARROWEST)
    other = step(calibrated(cluster, residuals={NVME: (3, 0.7, 1.3)}), workload, chosen)
    assert other.interval_source == step(cluster, workload, chosen).interval_source


def test_one_run_says_nothing_of_how_far_apart_two_lie(workload):
    cluster = load_cluster("rtx-4090-desktop", STATED)
    chosen = plan(cluster, workload, "dram", "dram")
    published = step(cluster, workload, chosen).published
    low, high = step(
        calibrated(cluster, residuals={PARAMS_ON_HOST: (1, 1.0, 1.0)}), workload, chosen
    ).interval
    apart = max(published[1], NARROWEST) / min(published[0], 1 / NARROWEST)
    assert high / low == pytest.approx(apart, rel=0.2)
    assert low < 1 < high


def test_the_overlap_is_said_among_what_is_not_measured_here(workload):
    cluster = load_cluster("rtx-4090-desktop")
    chosen = plan(cluster, workload, "dram", "dram")
    said = {each.name: each for each in step(calibrated(cluster, overlap=0.4), workload, chosen).assumptions}
    assert (said["overlap"].value, said["overlap"].kind) == (0.4, "calibrated")
    assert said["overlap"].source == "calibrated from calibration.yaml, runs on one node"
    whole = step(calibrated(cluster, overlap=1.0), workload, chosen).assumptions
    assert "overlap" not in {each.name for each in whole}
