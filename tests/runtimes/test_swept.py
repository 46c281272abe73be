"""Passes over gradients and states in the GPU's memory: how many bytes, by stage, release and config."""

from dataclasses import replace

import pytest
from runtimes.toy import cluster, plan, workload

from ziplan.estimate import estimate
from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing
from ziplan.runtimes.deepspeed.buckets import filled, order
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.released import Released
from ziplan.runtimes.deepspeed.swept import beside_the_update, swept_each_time, swept_once
from ziplan.runtimes.deepspeed.traits import traits_of
from ziplan.runtimes.shared.compute import SWEEP, forward_share, matrix_flops

WORK = workload()
P = WORK.model.params
RANKS = 8.0


def facts(stage, version="0.19.8", steps=1.0, home="hbm", **options):
    placed = plan("hbm", home, dp_degree=RANKS, zero_stage=float(stage), accumulation_steps=steps)
    return Facts(
        Derivation(record=False), cluster(gpus=8), WORK, placed, traits=traits_of(version), **options
    )


def own(f):
    """Elements of tensors that the rank with the most owns a part of."""
    return f.reached("rank", False)


def test_all_gradients_pass_into_a_bucket_are_averaged_and_flattened():
    """12 B each; a rank's own come back from what was flattened, and are kept whole by tensor."""
    f = facts(2)
    assert swept_each_time(f).amount == pytest.approx(12 * P + 4 * P / RANKS + 4 * own(f))
    f = facts(3)
    assert swept_each_time(f).amount == pytest.approx(12 * P + 4 * P / RANKS)


def test_stages_below_2_do_so_once():
    for stage, bytes_per_param in ((0, 12), (1, 12 + 4 / RANKS)):
        f = facts(stage)
        kept = 4 * own(f) if stage else 0
        assert swept_each_time(f).amount == 0
        assert swept_once(f, 1.0).amount == pytest.approx(bytes_per_param * P + kept)
        # What autograd adds to: two are read, one is written, in three of four micro-steps.
        assert swept_each_time(facts(stage, steps=4.0)).amount == pytest.approx(0.75 * 6 * P)


def test_before_0_12_4_nothing_is_flattened():
    f = facts(2, "0.12.3")
    assert swept_each_time(f).amount == pytest.approx(8 * P + 4 * own(f))


@pytest.mark.parametrize(("version", "checked"), [("0.12.3", 10), ("0.18.2", 36), ("0.19.8", 4)])
def test_a_step_flattens_casts_measures_scales_and_casts_back(version, checked):
    """Of bf16 gradients and fp32 states: 4, 6, 18, 8 and 6 B; a release looks for overflows in its way."""
    assert beside_the_update(facts(1, version)) == 42 + checked
    assert beside_the_update(facts(3, version)) == 42
    assert beside_the_update(facts(0, version)) == 6 + 12 + checked + 8 + 6


def test_pytorch_alone_has_ddps_buckets_and_clips_what_it_steps():
    """Of bf16: 4 B into a bucket and 4 B out of it, once a step; 2 B measured and 4 B scaled."""
    f = facts(1, "PyTorch", steps=4.0)
    assert (swept_once(f, 1.0).amount, beside_the_update(f)) == (8 * P, 6)
    assert swept_each_time(f).amount == pytest.approx(0.75 * 6 * P)
    alone = replace(f, plan=replace(f.plan, dp_degree=1.0))
    assert swept_once(alone, 1.0).amount == 0
    settings = WORK.training.model_copy(update={"gradient_clipping": False})
    assert beside_the_update(replace(f, workload=replace(WORK, training=settings))) == 0


def test_what_the_host_updates_is_measured_and_cast_on_the_gpu():
    """Once a step, with the last of its micro-steps; gradients of earlier ones come up to be added to."""
    for steps, added in ((1.0, 0.0), (4.0, 0.75)):
        f = facts(2, home="dram", steps=steps)
        each = 12 * P + 4 * P / RANKS + added * 6 * own(f)
        assert swept_each_time(f).amount == pytest.approx(each)
        assert swept_once(f, 1.0).amount == pytest.approx((18 + 4 + 6) * P / RANKS)
    f = facts(3, home="dram", steps=4.0)
    assert swept_each_time(f).amount == pytest.approx(12 * P + (4 + 0.75 * 6) * P / RANKS)
    assert swept_once(f, 1.0).amount == pytest.approx((18 + 6) * P / RANKS)


def test_what_twin_flow_leaves_on_the_gpu_is_measured_and_cast_once():
    """With all gradients (18 and 6 B), copied to its place (8); then unscaled (8) and cast back (6)."""
    both = {"hbm": 0.5, "dram": 0.5}
    f = facts(3)
    homes = replace(f.plan.placement, grads=both, optimizer=both)
    f = replace(f, plan=replace(f.plan, placement=homes, sub_group_params=1e4))
    here = f.optimizer_on("hbm")
    assert 0.3 < here < 0.7
    assert beside_the_update(f) == 8 + 6
    assert swept_once(f, 1.0).amount == pytest.approx((18 + 6 + 8 * here) * P / RANKS)
    assert swept_each_time(f).amount == pytest.approx(swept_each_time(facts(3)).amount)


def test_buckets_fill_up_from_the_last_tensor_on():
    sizes = list(reversed([n for n, count, _ in WORK.model.tensors for _ in range(count)]))
    assert filled(WORK.model, float(sum(sizes))) == (1.0, 1.0)
    first, last = filled(WORK.model, sum(sizes) / 3)
    assert 0.2 < first <= 1 / 3
    assert 0 < last < 1 / 2


def test_nothing_is_reduced_before_the_first_bucket_is_full_nor_hidden_in_the_last():
    f = facts(2)
    ends = filled(WORK.model, f.knobs.reduce_bucket)
    assert tuple(order(f)) == tuple(order(facts(3))) == ends
    for stage in (2, 3):
        assert tuple(order(facts(stage, overlap_comm=False))) == ends
    assert tuple(order(facts(1, overlap_comm=False))) == (0, 0)


def test_the_last_bucket_is_waited_for():
    """Whatever runs beside backward, what is in the last bucket comes when both have ended."""
    runtime, placed = Released("0.19.8"), plan("hbm", "hbm", dp_degree=RANKS, zero_stage=2.0)
    answer = estimate(cluster(gpus=8), WORK, runtime, placed)
    last = [segment for segment in answer.segments if segment.name == "micro-step"][-1]
    gather = [
        {id(d): d.amount for d in chain if (d.term, d.resource) == ("gradient reduce", "gather")}
        for chain in last.chains
    ]
    f = facts(2)
    once = 2 * 2 * P * (RANKS - 1) / RANKS
    sums = sorted(sum(chain.values()) for chain in gather)
    # What the GPU computes, behind either of what forward is; Python; what is loaded; others reduce beside.
    assert sums == pytest.approx([once * order(f).in_the_last] * 4 + [once] * 3)


@pytest.mark.parametrize("mode", list(Checkpointing))
def test_forward_s_share_is_that_of_its_flops(mode):
    """Recomputation ends before the last matrix of a layer, which nothing needs again."""
    f = facts(2)
    f = replace(f, plan=replace(f.plan, activation_checkpointing=float(mode)))
    assert forward_share(f) == pytest.approx(SWEEP * f.tokens * WORK.model.matmul_params / matrix_flops(f))
