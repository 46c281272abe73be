"""An optimizer on both sides of the host link: plan, config and ledger mean the same sub-groups."""

import json
from dataclasses import replace

import numpy as np
import pytest
from reading.asking import reading_of
from runtimes.toy import cluster, plan, toy, workload

from ziplan.estimate import estimate
from ziplan.laws.law import Derivation
from ziplan.plan import Placement
from ziplan.runtimes import deepspeed
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.reading import settled_plan
from ziplan.runtimes.deepspeed.shards import sub_groups
from ziplan.runtimes.deepspeed.twin_flow import host_shares, ratio_of, share_on_host, whole_groups
from ziplan.workload.load import load_model

MODEL, RANKS, SIZE = toy(24, 4096, 16384, 32000), 4.0, 1e8


def divided(share):
    both = {"hbm": 1 - share, "dram": share}
    return plan(
        dp_degree=RANKS,
        sub_group_params=SIZE,
        placement=Placement({"hbm": 1.0}, both, both, {"hbm": 1.0}),
    )


def on_host(ratio):
    """Elements that DeepSpeed puts on the host: `stage3.py:_create_fp32_partitions`, line by line."""
    groups = sub_groups(MODEL, RANKS, SIZE)
    return sum(size for i, size in enumerate(groups) if i >= int((1 - ratio) * len(groups)))


def lines(answer, tier):
    return {line.name: line.high for line in answer.ledger.lines if line.tier == tier}


@pytest.fixture(scope="module")
def settled():
    return deepspeed.settle(cluster(gpus=4, hbm="24 GB"), workload(MODEL), divided(0.5))


def test_the_emitted_ratio_puts_on_the_host_what_the_plan_says(settled, tmp_path):
    machine, work = cluster(gpus=4, hbm="24 GB"), workload(MODEL)
    text = deepspeed.emit(machine, work, settled)["ds_config.json"]
    share = settled.placement.optimizer["dram"]
    ratio = json.loads(text)["zero_optimization"]["offload_optimizer"]["ratio"]
    assert 0 < share < 1
    assert on_host(ratio) / sum(sub_groups(MODEL, RANKS, SIZE)) == pytest.approx(share, abs=1e-12)
    reading = reading_of(tmp_path, json.loads(text), ranks=4)
    assert settled_plan(reading, machine, work).plan.placement == settled.placement


def test_sub_groups_are_of_unlike_sizes_and_their_bytes_are_what_counts(settled):
    """By count the share is another one."""
    groups = sub_groups(MODEL, RANKS, SIZE)
    assert groups[-1] < min(groups[:-1])
    share = settled.placement.optimizer["dram"]
    assert min(abs(share - k / len(groups)) for k in range(len(groups) + 1)) > 1e-3
    answer = estimate(cluster(gpus=4, hbm="24 GB"), workload(MODEL), deepspeed, settled)
    padded = sum(groups) * RANKS / MODEL.params
    both = lines(answer, "hbm")["optimizer state"] * RANKS + lines(answer, "dram")["optimizer state"]
    assert both * padded == pytest.approx(8 * RANKS * sum(groups))
    assert lines(answer, "dram")["optimizer state"] == pytest.approx(8 * MODEL.params * share)


def test_the_least_on_the_host_that_fits_is_chosen(settled):
    machine, work = cluster(gpus=4, hbm="24 GB"), workload(MODEL)
    shares = host_shares(MODEL, RANKS, SIZE)
    one_less = divided(shares[shares.index(settled.placement.optimizer["dram"]) - 1])
    fits = estimate(machine, work, deepspeed, settled).memory["hbm"]
    beyond = estimate(machine, work, deepspeed, one_less).memory["hbm"]
    assert fits.high <= fits.available < beyond.high


def test_a_last_sub_group_of_next_to_nothing_is_not_planned_alone_on_the_host():
    """Only the final norm is left for it; a config may still say so."""
    model = load_model("gemma-2-9b")
    shares = host_shares(model, 1.0, SIZE)
    assert 0 < shares[1] < 1e-5
    chosen = replace(divided(0.5), dp_degree=1.0)
    settled = deepspeed.settle(cluster(gpus=1, hbm="900 GB"), workload(model), chosen)
    assert settled.placement.optimizer["dram"] == shares[2]
    facts = Facts(
        Derivation(record=False), cluster(gpus=1), workload(model), replace(divided(shares[1]), dp_degree=1.0)
    )
    assert facts.optimizer_on("dram") == shares[1]


def test_a_share_that_is_no_whole_number_of_sub_groups_is_counted_as_it_is_run():
    """A plan.yaml may have any; the ledger, and the config, hold the next whole ones."""
    asked, machine, work = divided(0.5), cluster(gpus=4), workload(MODEL)
    facts = Facts(Derivation(record=False), machine, work, asked)
    assert facts.optimizer_on("dram") > 0.5
    assert facts.optimizer_on("dram") + facts.optimizer_on("hbm") == 1
    config = json.loads(deepspeed.emit(machine, work, asked)["ds_config.json"])
    ratio = config["zero_optimization"]["offload_optimizer"]["ratio"]
    assert share_on_host(MODEL, RANKS, SIZE, ratio) == facts.optimizer_on("dram")


def test_every_number_of_sub_groups_survives_the_config():
    shares = host_shares(MODEL, RANKS, 1e7)
    assert len(shares) > 30
    for share in shares[1:]:
        assert share_on_host(MODEL, RANKS, 1e7, ratio_of(MODEL, RANKS, 1e7, share)) == share


def test_a_grid_has_the_shares_of_its_plans():
    sizes, asked = np.array([[1e7], [1e8]]), np.array([[0.01, 0.4, 0.93]])
    grid = whole_groups(MODEL, RANKS, sizes, asked)
    each = [[whole_groups(MODEL, RANKS, size, share) for share in asked[0]] for size in (1e7, 1e8)]
    assert grid.tolist() == each


def test_sub_groups_on_the_gpu_keep_their_gradients_there():
    """`initialize_optimizer_states` gives every sub-group its gradient where it is stepped, for good."""
    chosen = divided(host_shares(MODEL, RANKS, SIZE)[3])
    answer = estimate(cluster(gpus=4), workload(MODEL), deepspeed, chosen)
    gpu, share = lines(answer, "hbm"), chosen.placement.optimizer["hbm"]
    assert gpu["gradients of sub-groups on the GPU"] == pytest.approx(4 * MODEL.params / RANKS * share)
    assert gpu["gradient of one sub-group"] == 0
    # PyTorch's AdamW as it comes makes the square roots of a sub-group.
    largest = max(sub_groups(MODEL, RANKS, SIZE))
    assert gpu["temporary of the optimizer"] == 4 * largest
    whole = estimate(cluster(gpus=4), workload(MODEL), deepspeed, plan(dp_degree=RANKS))
    assert lines(whole, "hbm")["gradients of sub-groups on the GPU"] == 0
