"""Several models in one job, solved: placement, baseline, changes and what binds take all of them."""

from dataclasses import replace

import pytest

from ziplan.hardware.profiles import load_cluster
from ziplan.runtimes import RUNTIMES
from ziplan.solve import Problem, solve
from ziplan.workload.load import load_workload

SMALL = [("tiers.dram.capacity", "64 GB"), ("tiers.nvme.capacity", "100 GB")]
OTHERS = ("reference=llama-2-7b", "critic=llama-2-7b", "reward=llama-2-7b")


def solved(*others, machine="dgx-a100-40g", runtime="deepspeed", settings=(), **training):
    stated = {"sequence_length": 2048, "global_batch_size": 64, **training}
    cluster = load_cluster(machine, settings)
    workload = load_workload("llama-2-7b", stated, ("bf16",), others)
    return solve(Problem(cluster, workload, RUNTIMES[runtime]))


def test_what_one_model_fits_on_four_do_not():
    less = [("tiers.hbm.capacity", "36 GB")]
    alone, four = solved(settings=less), solved(*OTHERS, settings=less)
    assert alone.best.verdict == four.best.verdict == "fits"
    assert alone.do_not_offload
    assert not four.do_not_offload
    assert four.best.step_time > 2 * alone.best.step_time


@pytest.mark.parametrize("runtime", sorted(set(RUNTIMES) - {"megatron"}))
def test_more_models_take_longer_and_need_more(runtime):
    alone, two = solved(runtime=runtime), solved("reference=llama-2-7b", runtime=runtime)
    assert two.best.step_time > alone.best.step_time
    assert any(term.startswith("reference: ") for term in two.best.terms)
    assert sum(two.best.terms.values()) == pytest.approx(two.best.step_time)
    assert two.best.assumptions[-1].name == "time of rollouts"
    assert "time of rollouts" not in {each.name for each in alone.best.assumptions}


def test_the_baseline_counts_the_states_of_all():
    """16 bytes for each parameter that is trained, 2 for the others, none where they are on the host."""
    four = solved(*OTHERS, micro_batch_size=1)
    trained, value = four.best.workload.model.params, four.best.workload.companions[1].model.params
    states = 16 * (trained + value) + 2 * (trained + value)
    gpus = states / four.baseline.usable_bytes_per_gpu
    assert gpus <= four.baseline.gpus < gpus + 1
    workload = four.problem.workload
    away = tuple(replace(each, offload="cpu") for each in workload.companions if not each.trained)
    without = solve(replace(four.problem, workload=replace(workload, companions=away)))
    gpus = 16 * trained / without.baseline.usable_bytes_per_gpu
    assert gpus <= without.baseline.gpus < gpus + 1


def test_what_does_not_fit_names_the_companions_lines():
    small = solved(*OTHERS, machine="rtx-3090-x1", settings=SMALL)
    assert small.best.verdict == "does_not_fit"
    assert small.binding.kind == "capacity"
    lines = [line for line in small.best.ledger.lines if line.high > 0]
    where = {line.name.partition(": ")[0] for line in lines if line.tier == small.binding.where}
    assert "critic" in where
    assert {line.name.partition(": ")[0] for line in lines} >= {"reference", "critic", "reward"}
    assert small.changes
    assert all(change.effect.startswith("fits") for change in small.changes)


def test_the_ceiling_of_capacity_is_beside_the_other_models():
    alone, four = solved(), solved(*OTHERS)
    taken = [each.model for each in four.best.workload.companions]
    trained, frozen = taken[1].params, taken[0].params + taken[2].params
    ceilings = [each.best.limits.max_params_by_capacity for each in (alone, four)]
    assert ceilings[0] - ceilings[1] == pytest.approx(trained + frozen * 2 / 16)
    larger = solved("critic=llama-3.1-405b", machine="rtx-3090-x1", settings=SMALL)
    assert larger.best.limits.max_params_by_capacity == 0
