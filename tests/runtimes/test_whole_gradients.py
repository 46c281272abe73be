"""Gradients that ranks below stage 3 add up on the host: whole tensors, of which they own a part each."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtimes.toy import cluster, plan, toy, workload

from ziplan.cli.check_inputs import Asked, case_of
from ziplan.cli.inputs import Request
from ziplan.estimate import estimate
from ziplan.laws.law import power_of_two
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed.host import WHOLE_GRADIENTS
from ziplan.runtimes.deepspeed.released import Released
from ziplan.runtimes.deepspeed.releases import VERSION
from ziplan.runtimes.deepspeed.shards import reached, reached_by_rank
from ziplan.runtimes.terms import GRADIENT_COPIES

MODEL = toy(5)
DEEPSPEED = RUNTIMES["deepspeed"]


def tensors(model):
    """Elements of each tensor, as forward comes to them."""
    return [
        elements
        for section in model.sections
        for layer in section.layers * section.repeat
        for operator in layer
        for elements in operator.tensors
    ]


def owned(sizes, ranks):
    """For each rank the tensors that it owns an element of, found element by element of the boundaries."""
    partition = 2 * -(-sum(sizes) // (2 * ranks))
    found, begin = [[] for _ in range(ranks)], 0
    for size in sizes:
        for rank in range(ranks):
            if min(begin + size, (rank + 1) * partition) > max(begin, rank * partition):
                found[rank].append(size)
        begin += size
    return found


@settings(derandomize=True, max_examples=40, deadline=None)
@given(ranks=st.integers(1, 70), per_node=st.integers(1, 9), dealt_out=st.booleans())
def test_ranks_hold_what_their_partitions_reach_into(ranks, per_node, dealt_out):
    sizes = tensors(MODEL)
    if dealt_out:
        sizes = [size for first in range(ranks) for size in sizes[first::ranks]]
    expected = owned(sizes, ranks)
    whole, rounded = reached_by_rank(MODEL, float(ranks), dealt_out)
    assert list(whole) == [sum(each) for each in expected]
    assert list(rounded) == [sum(power_of_two(size) for size in each) for each in expected]
    found = reached(MODEL, float(ranks), float(per_node), dealt_out)
    nodes = [whole[first : first + per_node].sum() for first in range(0, ranks, per_node)]
    assert (found.rank, found.node) == (whole.max(), max(nodes))
    assert found.mean * ranks == pytest.approx(whole.sum())
    assert MODEL.params <= whole.sum() <= found.rounded * len(nodes)


def test_one_rank_owns_every_tensor_once():
    found = reached(MODEL, 1.0, 1.0, False)
    assert found.mean == found.rank == found.node == MODEL.params


def answered(runtime=DEEPSPEED, stage=2, ranks=6, steps=3, work=None, gpus=4, home="dram"):
    machine, work = cluster(nodes=-(-ranks // gpus), gpus=gpus), work or workload(MODEL)
    fields = {"dp_degree": float(ranks), "zero_stage": float(stage), "accumulation_steps": float(steps)}
    return estimate(machine, work, runtime, runtime.settle(machine, work, plan("hbm", home, **fields)))


def held(answer):
    lines = [line for line in answer.ledger.lines if line.name == WHOLE_GRADIENTS]
    return sum(line.low for line in lines), sum(line.high for line in lines)


def test_the_host_has_them_of_the_node_with_the_most():
    found = reached(MODEL, 6.0, 4.0, True)
    assert held(answered()) == (2 * found.node, 2 * found.node)
    in_fp32 = answered(work=workload(MODEL, precision="fp32", pinned_rounding=True))
    assert held(in_fp32) == (4 * found.node, 4 * found.rounded)
    assert found.rounded > found.node


def test_only_stage_2_with_several_micro_steps_has_them():
    assert held(answered(steps=1)) == (0, 0)
    assert held(answered(stage=1)) == (0, 0)
    assert held(answered(stage=3)) == (0, 0)
    assert held(answered(home="hbm")) == (0, 0)


def test_master_weights_in_16_bit_have_gradients_added_up_in_place():
    assert held(answered(work=workload(MODEL, precision="bf16", master_precision="bf16"))) == (0, 0)


def copied(answer, way):
    """Bytes of a rank and step between GPU and host."""
    total = 0.0
    for segment in answer.segments:
        once = {id(demand): demand for chain in segment.chains for demand in chain}
        copies = [d for d in once.values() if d.term in GRADIENT_COPIES and f"dram.{way}" in d.resource]
        total += segment.repeats * sum(copy.amount for copy in copies)
    return total


def test_each_micro_step_copies_them_down_and_all_but_the_first_back():
    whole, own = 2 * reached(MODEL, 6.0, 4.0, True).rank, 4 * MODEL.params / 6
    assert copied(answered(), "write") == pytest.approx(3 * whole + own)
    assert copied(answered(), "read") == pytest.approx(2 * whole)
    assert copied(answered(steps=1), "write") == pytest.approx(own)
    assert copied(answered(steps=1), "read") == 0


def test_what_is_added_up_in_place_is_a_ranks_own():
    answer = answered(work=workload(MODEL, precision="bf16", master_precision="bf16"))
    own = 2 * MODEL.params / 6
    assert copied(answer, "write") == pytest.approx((3 + 1) * own)
    assert copied(answer, "read") == pytest.approx(2 * own)


def test_releases_differ_in_stage_1_and_in_the_last_micro_step():
    first, last = Released("0.18.9"), Released("0.19.0")
    assert held(answered(first, stage=1))[0] == 2 * reached(MODEL, 6.0, 4.0, False).node
    assert held(answered(last, stage=1)) == held(answered(Released(VERSION), stage=1)) == (0, 0)

    def down(version, stage):
        return copied(answered(Released(version), stage=stage, ranks=1), "write")

    whole, own = 2 * MODEL.params, 4 * MODEL.params
    assert down("0.15.1", 2) == pytest.approx(2 * whole + own)
    assert down("0.15.2", 2) == pytest.approx(3 * whole + own)
    assert [down(version, 1) - own for version in ("0.15.1", "0.15.2", "0.19.0")] == pytest.approx(
        [0, whole, 0]
    )


def on_gpu(answer):
    """Bytes of gradients on a GPU: (low, high) of backward, then of the step and of the next forward."""
    lines = {line.name: line for line in answer.ledger.lines if line.tier == "hbm"}
    backward = lines["gradients"]
    others = [lines[name].high for name in ("gradients at the step", "gradients of earlier micro-steps")]
    return [backward.low, backward.high, *others]


EVERY, OWNED, BUCKET = 2 * MODEL.params, 2 * reached(MODEL, 6.0, 4.0, False).rank, 2 * 10e6
"""A bucket has been let go when a rank begins to copy what it owns out of it."""


def test_stage_2_has_what_it_owns_once_for_the_first_micro_step_and_once_for_another():
    assert on_gpu(answered(home="hbm", steps=1)) == [OWNED, OWNED, OWNED, 0]
    assert on_gpu(answered(home="hbm")) == [2 * OWNED, 2 * OWNED, OWNED, OWNED]
    assert on_gpu(answered()) == [0, 0, 0, 0]


def test_stage_1_has_all_gradients_only_where_it_adds_them_up():
    assert on_gpu(answered(home="hbm", steps=1, stage=1)) == [OWNED, OWNED, OWNED, 0]
    more = OWNED - BUCKET
    assert on_gpu(answered(home="hbm", stage=1)) == [EVERY, EVERY + more, OWNED, EVERY]
    assert on_gpu(answered(steps=1, stage=1)) == [0, 0, 0, 0]
    assert on_gpu(answered(stage=1)) == [EVERY, EVERY, 0, EVERY]
    waits = Released(VERSION, overlap_comm=False)
    assert on_gpu(answered(waits, home="hbm", steps=1, stage=1)) == [EVERY, EVERY + more, OWNED, 0]


def test_stage_0_has_all_of_them_always():
    assert on_gpu(answered(home="hbm", stage=0)) == [EVERY, EVERY, EVERY, EVERY]
    assert on_gpu(answered(home="hbm", stage=0, steps=1)) == [EVERY, EVERY, EVERY, 0]


def test_a_tensor_comes_back_from_the_host_to_a_buffer_on_the_gpu():
    def staged(**fields):
        return sum(line.high for line in answered(**fields).ledger.lines if line.name == "gradient staging")

    largest = max(tensors(MODEL))
    # As much on the GPU as is pinned on the host, for each of four ranks.
    assert staged() == staged(stage=1, steps=1) == (1 + 4) * 2 * largest
    assert staged(home="hbm") == staged(stage=3) == 0


def test_gradients_added_up_in_fp32_stay_in_a_partition_on_the_gpu(tmp_path):
    def told(data_types):
        zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}, "overlap_comm": True}
        batch = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4}
        path = tmp_path / "ds_config.json"
        types = {"bf16": {"enabled": True}, **data_types}
        path.write_text(json.dumps({**batch, **types, "zero_optimization": zero}))
        asked = Request("llama-3.2-1b", "dgx-a100-80g", training={"sequence_length": 512})
        return case_of(path, Asked(asked))

    wide = told({"data_types": {"grad_accum_dtype": "fp32"}})
    partition = 4 * wide.workload.model.params / 8
    assert on_gpu(wide.estimate) == [partition] * 4
    assert held(wide.estimate) == (0, 0)
    assert copied(wide.estimate, "read") == 0
    narrow = told({})
    assert on_gpu(narrow.estimate) == [0] * 4
    assert held(narrow.estimate)[0] > 0
