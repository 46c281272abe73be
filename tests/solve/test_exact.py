"""The solver's pick is the one that trying every plan finds, with the same numbers."""

from dataclasses import replace

import numpy as np
import pytest
from runtimes.drawn import with_link, with_tier
from runtimes.toy import cluster, toy, workload
from solve import brute

from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.runtime import PHASES
from ziplan.solve import Problem, grid, solve
from ziplan.solve import enumerate as search
from ziplan.solve.enumerate import best_by_placement, best_elsewhere, least_capacity, search_grid, surveyed

MIDDLING = toy(12, hidden=4096, middle=16384, vocabulary=32000)
LARGE = toy(48, hidden=8192, middle=32768, vocabulary=32000)


def problem(name) -> Problem:
    runtime = RUNTIMES[name.split()[0]]
    machine, model, training, more = PROBLEMS[name]
    return Problem(machine(), workload(model, **training), runtime, **more)


BATCH = {"sequence_length": 2048, "global_batch_size": 32}
FREE = {"sequence_length": 131072}
PROBLEMS = {
    "deepspeed batch": (lambda: cluster(gpus=4, hbm="40 GB", dram="200 GB"), MIDDLING, BATCH, {}),
    "deepspeed free": (lambda: cluster(gpus=8), MIDDLING, FREE, {}),
    "deepspeed large": (lambda: cluster(gpus=8, dram="1 TB"), LARGE, BATCH, {}),
    "deepspeed nodes": (lambda: cluster(nodes=2, gpus=4, nvme=None), LARGE, BATCH, {}),
    "deepspeed wear": (lambda: cluster(gpus=8, dram="400 GB"), LARGE, BATCH, {"objective": "wear"}),
    "deepspeed nothing": (lambda: cluster(gpus=2, hbm="8 GB", dram="64 GB"), LARGE, BATCH, {}),
    "deepspeed one": (
        lambda: cluster(hbm="24 GB", dram="64 GB"),
        MIDDLING,
        {"sequence_length": 512, "global_batch_size": 8},
        {},
    ),
    "ideal batch": (lambda: cluster(gpus=4, hbm="40 GB", dram="200 GB"), LARGE, BATCH, {}),
    "ideal free": (lambda: cluster(gpus=8), MIDDLING, FREE, {}),
    "megatron batch": (lambda: cluster(gpus=8), MIDDLING, BATCH, {}),
    "megatron nothing": (lambda: cluster(nodes=2, gpus=8, hbm="24 GB"), LARGE, BATCH, {}),
    "ideal nothing": (lambda: cluster(gpus=2, hbm="8 GB", dram="8 GB", nvme="1 TB"), LARGE, BATCH, {}),
}


@pytest.fixture(scope="module", params=PROBLEMS)
def tried(request):
    """A problem and all its plans, tried one by one."""
    asked = problem(request.param)
    return asked, list(brute.one_by_one(asked))


def test_the_pick_is_the_best_of_all_plans(tried):
    asked, plans = tried
    expected = brute.best_of_each_placement(asked, plans)
    found = best_by_placement(asked, search_grid(asked))
    assert [(c.rank, c.cost, c.place) for c in found] == expected


def test_the_answer_is_that_plan(tried):
    asked, plans = tried
    rank, _, place = brute.best_of_each_placement(asked, plans)[0]
    if rank == brute.LACKS:
        pytest.skip("the answer may ask for a change of the model instead")
    best, one = solve(asked).best, dict(plans)[place]
    assert best.plan == one.plan
    assert (best.step_time, best.memory, best.flash_writes) == (one.step_time, one.memory, one.flash_writes)


def test_every_number_of_the_grid_is_the_number_of_its_plan(tried):
    asked, plans = tried
    whole = search_grid(asked)
    answer = search._estimates(asked, whole, [range(n) for n in whole.shape])

    def spread(values):
        return np.broadcast_to(values, whole.shape)

    for name in ("step_time", "tokens_per_step", "model_flops", "hardware_flops", "flash_writes", "overflow"):
        expected = np.array([getattr(one, name) for _, one in plans]).reshape(whole.shape)
        np.testing.assert_array_equal(spread(getattr(answer, name)), expected, err_msg=name)
    for tier, memory in answer.memory.items():
        for phase in PHASES:
            for end in (0, 1):
                expected = np.array([one.memory[tier].phases[phase][end] for _, one in plans])
                np.testing.assert_array_equal(
                    spread(memory.phases[phase][end]), expected.reshape(whole.shape)
                )
    verdicts = np.array([one.verdict == "fits" for _, one in plans]).reshape(whole.shape)
    np.testing.assert_array_equal(spread(answer.fits), verdicts)


@pytest.mark.parametrize("size", [5, 150])
def test_chunks_change_nothing(tried, size, monkeypatch):
    asked = tried[0]
    whole = best_by_placement(asked, search_grid(asked))
    monkeypatch.setattr(grid, "CHUNK", size)
    assert best_by_placement(asked, search_grid(asked)) == whole


def test_chunks_cover_the_grid_once(tried, monkeypatch):
    whole = search_grid(tried[0])
    monkeypatch.setattr(grid, "CHUNK", 50)
    seen = np.zeros(whole.shape, dtype=int)
    for chunk in whole.chunks():
        assert np.prod([len(piece) for piece in chunk]) <= 50
        seen[tuple(slice(piece.start, piece.stop) for piece in chunk)] += 1
    assert (seen == 1).all()


def test_least_capacity_is_the_least_of_all_plans(tried):
    asked, plans = tried
    for name, tier in asked.cluster.node.tiers.items():
        if tier.scope == "gpu":
            continue
        needs = [
            answer.memory[name].high * tier.capacity / answer.memory[name].available
            for _, answer in plans
            if all(m.high <= m.available for other, m in answer.memory.items() if other != name)
        ]
        found = least_capacity(asked, surveyed(asked), name)
        assert found == pytest.approx(min(needs, default=float("inf")), rel=1e-12)


@pytest.mark.parametrize("steps", [None, 1.0, 4.0])
def test_what_is_kept_of_a_search_answers_for_another_machine(tried, steps):
    """Searched again from nothing, on a machine with more of one thing, the best plan is the same."""
    asked = tried[0]
    kept = surveyed(asked, asked.allow_tiling)
    assert kept.estimate is not None
    machine = asked.cluster
    others = [with_link(machine, name, 2.0) for name in machine.node.links]
    for name, tier in machine.node.tiers.items():
        if tier.scope == "node":
            others.append(with_tier(machine, name, capacity=3 * tier.capacity))
            others.append(with_tier(machine, name, read_bandwidth=7 * (tier.read_bandwidth or 1e9)))
    for other in others:
        moved = replace(asked, cluster=other)
        rank, seconds = best_elsewhere(moved, kept, steps)
        expected = best_elsewhere(moved, kept._replace(estimate=None), steps)
        assert rank == expected[0]
        assert seconds == expected[1] or rank == search.DOES_NOT_FIT


@pytest.mark.parametrize("free", [True, False])
def test_a_cost_that_nobody_knows_never_picks_a_plan_that_does_not_fit(free):
    """Where every plan that fits takes an unknown time, one of them is picked all the same."""
    rank = np.array([search.DOES_NOT_FIT, search.DOES_NOT_FIT, 0, 0], dtype=np.int8)
    cost = np.array([0.1, 0.2, np.inf, np.inf])
    picked = search._best(rank, cost, np.array([1.0, 1.0, 4.0, 2.0]), np.inf if free else None)
    assert (picked.rank, picked.place) == (0, (3 if free else 2,))
