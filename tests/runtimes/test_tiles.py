"""Tiled linears under DeepSpeed: what is split, what is gathered all the same, what the config says."""

import re
from dataclasses import replace

import pytest
from runtimes.toy import cluster, plan, toy, workload

from ziplan.estimate import estimate
from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing, Placement
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.fetches import fetches
from ziplan.runtimes.deepspeed.hooks import module_visits
from ziplan.runtimes.deepspeed.knobs import knobs, policy
from ziplan.runtimes.deepspeed.stops import trace
from ziplan.runtimes.deepspeed.tiled import pieces, tiled
from ziplan.runtimes.runtime import COLLECTIVE
from ziplan.solve.problem import Problem
from ziplan.solve.search import best_plan
from ziplan.workload.families import activation_bytes
from ziplan.workload.load import load_model
from ziplan.workload.model import Model, Operator
from ziplan.workload.training import Training, Workload

DEEPSPEED = RUNTIMES["deepspeed"]
FULL = float(Checkpointing.FULL)
HOST = Placement({"dram": 1.0}, {"dram": 1.0}, {"dram": 1.0}, {"hbm": 1.0})


def shipped(name):
    model = load_model(name)
    return Workload(model, Training(sequence_length=512), "bf16", activation_bytes(model, "flash", "bf16"))


def asked(work, tiles=1.0, machine=None, **fields):
    """The estimate of stage 3 with all states on the host, its linears in so many tiles."""
    machine = machine or cluster(gpus=1)
    chosen = {"zero_stage": 3.0, "placement": HOST, "prefetch_depth": 1.0, "activation_checkpointing": FULL}
    settled = DEEPSPEED.settle(machine, work, plan(**{**chosen, "tile_count": tiles, **fields}))
    return estimate(machine, work, DEEPSPEED, settled)


def held(answer, name):
    return next(line.high for line in answer.ledger.lines if line.name == name)


def test_a_tile_is_live_alone():
    """8 tiles of 1,024 x 4,096; queries, keys and values as many as make none of theirs wider."""
    work = workload(toy())
    assert pieces(work.model, 8) == {"qkv": 6, "o": 2, "up": 8, "down": 8}
    widest = 1024 * 4096
    whole = held(asked(work, activation_checkpointing=0.0, prefetch_depth=0.0), "gathered parameters")
    tiles = held(asked(work, 8.0), "gathered parameters")
    persistent = 2 * (4 * 2 + 2) * 1024
    assert whole == pytest.approx(2 * widest + persistent)
    # Then the tables of 2,048 x 1,024 are what is largest: nothing splits them.
    assert tiles == pytest.approx(2 * 2048 * 1024 + persistent)


def test_tiles_hold_the_same_parameters():
    model = load_model("deepseek-v2-lite")
    split = tiled(model, 4)
    assert split.params == model.params
    assert sum(size * count for size, count, _ in split.tensors) == model.params
    assert tiled(model, 1) == model


def test_rows_that_tiles_do_not_divide_make_the_first_of_them_wider():
    """10 rows in 4 tiles are 3, 3, 2 and 2 (`partition_uniform`)."""
    wide = Operator("wide", "linear", 8, 10, count=2)
    model = Model("odd", "gpt2", 2, 8, 8, 1, 1, 8, (wide,))
    (section,) = tiled(model, 4).sections
    assert [tile.out_features for tile in section.layers[0]] == [3, 3, 2, 2]
    assert section.repeat == 2


def test_stacked_experts_are_no_linears():
    """A stack of DeepSeek-V3's 256 experts is 256 x 7,168 x 6,144 elements, tiles or not."""
    for tiles in (1.0, 16.0):
        gathered = held(asked(shipped("deepseek-v3"), tiles), "gathered parameters")
        assert gathered >= 2 * 256 * 7168 * 3 * 2048
    machine = cluster(gpus=1, hbm="24 GB", dram="40 TB", nvme=None)
    problem = Problem(machine, shipped("deepseek-v3"), DEEPSPEED, allow_tiling=True)
    assert best_plan(problem).verdict == "does_not_fit"


def test_a_table_of_tokens_is_gathered_whole():
    """Llama 3.1 405B: 128,256 x 16,384 elements, where its widest linear has 16,384 x 53,248."""
    gathered = held(asked(shipped("llama-3.1-405b"), 16.0), "gathered parameters")
    assert gathered == pytest.approx(2 * 128256 * 16384, rel=0.01)


def test_nothing_is_kept_or_read_ahead_beside_tiles():
    """Layers kept for their backward would keep their tiles, so they are fetched once more."""
    work = workload(toy(layers=8))
    whole, tiles = asked(work), asked(work, 4.0)
    assert tiles.plan.prefetch_depth == 0
    assert tiles.traffic["dram"][0] > 1.2 * whole.traffic["dram"][0]
    assert tiles.busy["Python hooks"] > 1.5 * whole.busy["Python hooks"]


def test_what_is_told_to_split_is_what_was_split():
    work, machine = shipped("llama-3.1-8b"), cluster(gpus=1, hbm="80 GB")
    settled = asked(work, 4.0, machine).plan
    files = DEEPSPEED.emit(machine, work, replace(settled, tile_count=4))
    told = dict(re.findall(r"- `(\S+)`: `out_splits=(\d+), in_splits=1`", files["tiling.md"]))
    assert {name: int(count) for name, count in told.items()} == pieces(work.model, 4)
    assert '"stage3_prefetch_bucket_size": 0' in files["ds_config.json"]
    assert '"stage3_max_reuse_distance": 0' in files["ds_config.json"]


def amount(answer, term, resource):
    """What one micro-step, the last one, has of a term on a resource."""
    (segment,) = [each for each in answer.segments if each.name == "micro-step" and each.repeats == 1]
    once = {id(demand): demand for chain in segment.chains for demand in chain}.values()
    return sum(demand.amount for demand in once if (demand.term, demand.resource) == (term, resource))


def test_all_that_is_fetched_is_fetched_by_tiles():
    """Calls, elements, views and visits are those of the model that has the tiles, whoever asks."""
    model, mode = toy(), int(FULL)
    work, machine = workload(model), cluster(gpus=2)
    settled = asked(work, 8.0, machine, dp_degree=2.0).plan
    answer = estimate(machine, work, DEEPSPEED, settled)
    split = tiled(model, 8)
    limits = policy(model, settled, knobs(model, settled, None))
    found = fetches(split, mode, False, limits)
    assert found.calls > 1.5 * fetches(model, mode, False, limits).calls
    assert amount(answer, "gather", COLLECTIVE) == found.calls
    assert amount(answer, "parameter copy", "dram.read") == 2 * found.elements / 2
    facts = Facts(Derivation(record=False), machine, work, settled)
    micro = trace(facts, 1e12)
    assert len(micro.stops) == sum(module_visits(facts))
    assert sum(len(stop.fetches) for stop in micro.stops) == found.calls
    assert sum(len(stop.gradients) for stop in micro.stops) == sum(count for _, count, _ in split.tensors)
    assert sum(stop.flops for stop in micro.stops) == pytest.approx(1e12)


def test_tiles_are_swapped_by_themselves():
    """Shards of a tile of 300 x 1,000 are below the 1 MiB that swaps, those of the whole matrix are not."""
    wide = Operator("wide", "linear", 1000, 6000, count=2)
    narrow = Operator("narrow", "linear", 1000, 300, count=2)
    model = Model("wide", "gpt2", 2, 1000, 1000, 8, 8, 125, (wide, narrow))
    work, machine = workload(model), cluster(gpus=1)
    on_nvme = Placement({"nvme": 1.0}, {"nvme": 1.0}, {"nvme": 1.0}, {"hbm": 1.0})
    whole, tiles = (
        amount(asked(work, count, machine, placement=on_nvme), "parameter read", "nvme.swap_read")
        for count in (1.0, 20.0)
    )
    assert whole > 0
    assert tiles == 0
