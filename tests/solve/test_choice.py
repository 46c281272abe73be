"""Choices that a user can hold against what is listed beside them, on shipped machines."""

import math

import pytest
from solve.brute import one_by_one

from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing
from ziplan.report.lines import plain
from ziplan.report.text import Written, fit_text
from ziplan.runtimes import RUNTIMES
from ziplan.solve import Problem, solve
from ziplan.solve.enumerate import KNEE, WORTH_OFFLOADING
from ziplan.solve.search import WORTH_A_TRY, WORTH_THE_RISK
from ziplan.workload.load import load_workload

AT = {"sequence_length": 1024}


def answered(model, machine, settings=(), **training):
    cluster = load_cluster(machine, list(settings))
    work = load_workload(model, {**AT, **training}, cluster.node.gpu.peak_flops_per_s)
    return solve(Problem(cluster, work, RUNTIMES["deepspeed"]))


@pytest.mark.parametrize(
    ("model", "machine"), [("gemma-7b", "16x aws-p5e.48xlarge"), ("llama-3.1-8b", "dgx-a100-80g")]
)
def test_no_listed_plan_of_as_few_micro_steps_is_faster_than_ties_are(model, machine):
    answer = answered(model, machine)
    best = answer.best
    for other in answer.alternatives:
        if other.verdict == best.verdict and other.plan.accumulation_steps <= best.plan.accumulation_steps:
            assert best.time_per_token <= WORTH_OFFLOADING * other.time_per_token * (1 + 1e-9)


@pytest.mark.parametrize("model", ["gpt2-xl", "gemma-7b"])
def test_nothing_is_proposed_that_changes_nothing(model):
    """What lives in GPU memory gains nothing from more host memory or more drives."""
    answer = answered(model, "dgx-a100-80g")
    assert answer.do_not_offload
    assert not [change for change in answer.changes if change.path.startswith("tiers.")]


def test_the_time_of_plain_stage_3_is_unknown_where_the_gpu_s_rate_is():
    baseline = answered("llama-3.1-8b", "dgx-a100-80g", precision="fp32").baseline
    assert baseline.step_time is None or (math.isfinite(baseline.step_time) and baseline.step_time < 1e9)


def test_a_tier_that_can_only_be_tight_lets_no_other_overrun():
    best = answered("llama-3.1-8b", "dgx-a100-80g", [("memory_limit", "64 GB")], sequence_length=4096).best
    assert best.verdict == "tight"
    tight = [name for name, tier in best.memory.items() if tier.high > tier.available]
    assert len(tight) == 1


def test_a_quantity_of_a_file_is_read_once(tmp_path):
    model = tmp_path / "model.yaml"
    model.write_text(
        "model: llama-3.1-8b\ntraining: {sequence_length: 512, loading: {largest_file: 45 GB}}\n"
    )
    assert load_workload(str(model), {}).training.loading.largest_file == 45e9


def test_a_plan_that_surely_fits_leads_and_the_faster_one_that_may_is_told_of():
    """8 A100 40 GB train 13B within GPU memory for sure only by recomputing: the faster plan is named."""
    answer = answered("llama-2-13b", "dgx-a100-40g", sequence_length=4096)
    faster = answer.faster_if_it_fits
    assert (answer.best.verdict, faster.verdict) == ("fits", "tight")
    assert answer.best.time_per_token > WORTH_A_TRY * faster.time_per_token
    told = plain(fit_text(answer, Written(), 200))
    assert "if it fits" in told
    assert "nothing offloaded that surely fits is more than 2% faster" in told


def likely(estimate):
    return all((tier.low + tier.high) / 2 <= tier.available for tier in estimate.memory.values())


@pytest.mark.parametrize("global_batch_size", [None, 256])
def test_the_faster_plan_is_the_best_of_all_that_may_fit(global_batch_size):
    cluster = load_cluster("dgx-a100-40g")
    training = {"sequence_length": 4096, "micro_batch_size": 1}
    training |= {"global_batch_size": global_batch_size} if global_batch_size else {}
    work = load_workload("llama-2-13b", training, cluster.node.gpu.peak_flops_per_s)
    problem = Problem(cluster, work, RUNTIMES["deepspeed"], fixed={"zero_stage": 3.0, "prefetch_depth": 1.0})
    tight = [each for _, each in one_by_one(problem) if each.verdict == "tight" and likely(each)]
    least = min(each.time_per_token for each in tight)
    found = solve(problem).faster_if_it_fits.time_per_token
    assert found == pytest.approx(least) if global_batch_size else least <= found <= KNEE * least


def test_no_faster_plan_is_told_of_where_little_is_gained_by_being_tight_on_more_tiers():
    """8B has 64 GB of DRAM to load from whatever the plan; one that may lack GPU memory too gains 4 %."""
    answer = answered("llama-3.1-8b", "dgx-a100-80g", [("memory_limit", "64 GB")], sequence_length=4096)
    assert answer.best.verdict == "tight"
    assert answer.faster_if_it_fits is None


def test_a_plan_more_likely_not_to_fit_is_told_of_where_it_is_twice_as_fast():
    """8B on one card and 44 GB: nothing likely reads its parameters from anywhere but the drive."""
    settings = [("tiers.dram.capacity", "44 GB")]
    answer = answered(
        "llama-3.1-8b", "rtx-4090-desktop", settings, sequence_length=2048, global_batch_size=256
    )
    faster = answer.faster_if_it_fits
    assert answer.best.likely_fits
    assert faster.verdict == "tight"
    assert not faster.likely_fits
    assert answer.best.time_per_token > WORTH_THE_RISK * faster.time_per_token
    assert "if it fits (less likely than not)" in plain(fit_text(answer, Written(), 200))


@pytest.mark.parametrize(
    ("model", "verdict", "said"),
    [
        ("llama-3.1-405b", "does_not_fit", "nothing fits"),
        ("gpt2-xl", "fits", "the fewest accumulation steps within"),
    ],
)
def test_a_batch_of_a_plan_that_does_not_fit_is_not_said_to_be_fast(model, verdict, said):
    answer = answered(model, "rtx-4090-desktop")
    assert answer.best.verdict == verdict
    (note,) = [note for note in answer.notes if "chosen by the solver" in note]
    assert said in note


def test_other_placements_that_surely_fit_come_before_those_that_may_each_fastest_first():
    """On one card some placements of 7B are tight on one tier, some on two: time alone orders them."""
    answer = answered("qwen2.5-7b", "rtx-4090-desktop", sequence_length=4096)
    order = [(other.verdict != "fits", other.time_per_token) for other in answer.alternatives]
    assert len(order) > 1
    assert order == sorted(order)


def test_what_is_nearest_to_fitting_lacks_least_on_every_tier_not_on_the_worst_alone():
    """405B on one card lacks host memory most, whatever the plan: recomputing still spares GPU memory."""
    best = answered("llama-3.1-405b", "rtx-4090-desktop", sequence_length=4096).best
    assert best.plan.activation_checkpointing == Checkpointing.FULL
    assert best.memory["hbm"].low < 1.5 * best.memory["hbm"].available


def test_of_plans_that_surely_lack_the_same_the_one_that_may_lack_least_is_nearest():
    """8B on one card under FSDP2 surely lacks host memory; GPU memory may lack if nothing is recomputed."""
    cluster = load_cluster("rtx-4090-desktop")
    work = load_workload("llama-3.1-8b", {"sequence_length": 4096}, cluster.node.gpu.peak_flops_per_s)
    best = solve(Problem(cluster, work, RUNTIMES["fsdp"])).best
    assert best.verdict == "does_not_fit"
    assert best.memory["hbm"].high <= best.memory["hbm"].available


def test_fewer_gpus_are_told_beside_those_of_the_cluster():
    cluster = load_cluster("4x dgx-a100-80g")
    work = load_workload("llama-3.1-8b", AT, cluster.node.gpu.peak_flops_per_s)
    answer = solve(Problem(cluster, work, RUNTIMES["deepspeed"], objective="gpus"))
    assert answer.best.gpus < 8
    assert answer.gpus_there == 32
    assert f"({answer.best.gpus:g} of 32 GPUs)" in plain(fit_text(answer, Written(), 200))


def test_a_tight_plan_is_not_left_for_a_far_slower_one_that_is_tight_on_fewer_tiers():
    """Mixtral on eight RTX 3090: with 10 % more DRAM a slow plan lacks room on the GPU alone."""
    few, more = (
        answered("mixtral-8x7b", "rtx-3090-x8", settings, sequence_length=2048).best
        for settings in ((), (("tiers.dram.capacity", "302365697638 B"),))
    )
    assert few.verdict == more.verdict == "tight"
    assert more.time_per_token <= few.time_per_token


@pytest.mark.parametrize(
    ("model", "machine"), [("mixtral-8x7b", "rtx-3090-x8"), ("qwen2.5-7b", "rtx-4090-x2")]
)
def test_of_plans_that_may_fit_one_that_is_likely_to_leads(model, machine):
    cluster = load_cluster(machine)
    work = load_workload(model, {"sequence_length": 4096, "global_batch_size": 64}, ("bf16",))
    problem = Problem(cluster, work, RUNTIMES["deepspeed"])
    tight = [each for _, each in one_by_one(problem) if each.verdict == "tight"]
    best = solve(problem).best
    if best.verdict == "tight":
        assert likely(best) == any(likely(each) for each in tight)
