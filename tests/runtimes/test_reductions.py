"""How gradients are reduced by stage, by release and by what a config says, and what buckets that takes."""

import json
from math import ceil

import pytest
from runtimes.toy import cluster, plan, workload

from ziplan.cli.check_inputs import Asked, case_of
from ziplan.cli.inputs import Request
from ziplan.estimate import estimate
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed.released import Released
from ziplan.runtimes.deepspeed.releases import VERSION
from ziplan.runtimes.terms import GRADIENT_COPIES

WORK = workload()
P = WORK.model.params
RANKS = 8
RING = 2 * P * (RANKS - 1) / RANKS
"""Bytes of one way around the ring of every 16-bit gradient."""


def told(stage, home="hbm", runtime=None, steps=1.0):
    chosen = plan("hbm", home, dp_degree=float(RANKS), zero_stage=float(stage), accumulation_steps=steps)
    runtime, machine = runtime or RUNTIMES["deepspeed"], cluster(gpus=RANKS)
    return estimate(machine, WORK, runtime, runtime.settle(machine, WORK, chosen))


def reduced(answer):
    """Bytes that a rank exchanges to reduce gradients in a step."""
    demands = (
        (segment.repeats, demand)
        for segment in answer.segments
        for demand in {id(d): d for chain in segment.chains for d in chain}.values()
    )
    return sum(repeats * d.amount for repeats, d in demands if d[:2] == ("gradient reduce", "gather"))


@pytest.mark.parametrize(("stage", "passes"), [(0, 2), (1, 2), (2, 2), (3, 1)])
def test_stages_below_3_all_reduce(stage, passes):
    """`stage_1_and_2.py:allreduce_and_scatter` calls `dist.all_reduce`, `stage3.py` scatters."""
    assert reduced(told(stage)) == pytest.approx(passes * RING, rel=1e-3)


def test_stages_2_and_3_reduce_each_time_and_the_others_once():
    assert [reduced(told(stage, steps=4.0)) / reduced(told(stage)) for stage in (0, 1, 2, 3)] == [1, 1, 4, 4]


def test_stage_0_has_buckets_of_its_own():
    """`engine.py:allreduce_gradients` takes MEMORY_OPT_ALLREDUCE_SIZE, not `reduce_bucket_size`."""
    for stage, size in ((0, 5e8), (1, 1e6)):
        runtime = Released(VERSION, zero={"reduce_bucket_size": 1e6})
        rounds = {
            id(d): d for s in told(stage, runtime=runtime).segments for c in s.chains for d in c
        }.values()
        passes = sum(d.amount for d in rounds if d[:2] == ("gradient reduce", "collective"))
        assert passes == 2 * ceil(P / size)


def test_releases_before_0_12_4_reduced_to_the_owner():
    for stage in (1, 2):
        assert reduced(told(stage, runtime=Released("0.12.3"))) == pytest.approx(RING, rel=1e-3)
        assert reduced(told(stage, runtime=Released("0.12.4"))) == pytest.approx(2 * RING, rel=1e-3)


@pytest.mark.parametrize(
    ("stage", "overlaps", "beside"), [(0, True, False), (1, True, True), (1, False, False)]
)
def test_stage_1_reduces_beside_its_last_backward_where_that_overlaps(stage, overlaps, beside):
    """Its hooks run with `overlap_comm` only (`stage_1_and_2.py:process_gradients`), stage 0 has none."""
    for home in ("hbm", "dram")[: stage + 1]:
        answer = told(stage, home, Released("0.19.8", overlap_comm=overlaps))
        named = {
            segment.name
            for segment in answer.segments
            for chain in segment.chains
            for demand in chain
            if demand.term in ("gradient reduce", *GRADIENT_COPIES) and demand.amount > 0
        }
        assert named == {"micro-step" if beside else "gradients out"}


def buckets(answer):
    (line,) = (one for one in answer.ledger.lines if one.name == "reduce buckets" and one.high)
    return line.low, line.high


def test_below_stage_3_there_are_two_buckets_and_a_copy():
    """`setup_buckets` makes a second one for `overlap_comm`; an all-reduce flattens what it sends."""
    one = 2 * 10e6
    assert buckets(told(1)) == buckets(told(2)) == (2 * one, 3 * one)
    assert buckets(told(3)) == (one, 2 * one)
    assert buckets(told(2, runtime=Released("0.19.8", overlap_comm=False))) == (one, 2 * one)
    assert buckets(told(2, runtime=Released("0.12.3"))) == (2 * one, 2 * one)


def of_config(folder, zero):
    path = folder / "ds_config.json"
    batch = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}
    path.write_text(json.dumps({**batch, "zero_optimization": zero}))
    asked = Request("llama-2-7b", "dgx-a100-80g", training={"sequence_length": 2048})
    return reduced(case_of(path, Asked(asked)).estimate)


@pytest.mark.parametrize("stage", [1, 2])
def test_a_config_that_reduces_to_the_owner_sends_half(tmp_path, stage):
    plain = of_config(tmp_path, {"stage": stage})
    owner = of_config(tmp_path, {"stage": stage, "use_multi_rank_bucket_allreduce": False})
    everyone = of_config(
        tmp_path, {"stage": stage, "use_multi_rank_bucket_allreduce": False, "reduce_scatter": False}
    )
    assert plain == everyone == 2 * owner > 0


def test_stage_3_without_reduce_scatter_sends_twice_as_much(tmp_path):
    assert of_config(tmp_path, {"stage": 3, "reduce_scatter": False}) == 2 * of_config(tmp_path, {"stage": 3})


def test_pytorch_alone_reduces_beside_backward_in_buckets_of_25_mib():
    """DeepSpeed's stage 0 does when backward has ended; what is in the last bucket is waited for."""

    def ways(version, *segments):
        answer = told(0, runtime=Released(version))
        found = {id(d): d for s in answer.segments if s.name in segments for c in s.chains for d in c}
        return sum(d.amount for d in found.values() if d[:2] == ("gradient reduce", "collective"))

    assert (ways("0.19.8", "micro-step"), ways("0.19.8", "gradients out")) == (0, 2)
    assert (ways("PyTorch", "micro-step"), ways("PyTorch", "gradients out")) == (
        2 * ceil(2 * P / (25 << 20)),
        0,
    )
