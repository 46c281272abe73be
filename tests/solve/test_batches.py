"""Batch arithmetic: every legal split, the nearest legal values where there is none, the cap in tokens."""

import pytest
from runtimes.toy import cluster, toy, workload

from ziplan.errors import BadInput
from ziplan.solve.batches import MOST_TOKENS_PER_STEP, batch_axis


def pairs(ranks=4, model=None, hbm="80 GB", **training):
    axis = batch_axis(cluster(gpus=ranks, hbm=hbm), workload(model, **training), ranks)
    return [(int(c["micro_batch_size"]), int(c["accumulation_steps"])) for c in axis.choices]


def refusal(**training):
    with pytest.raises(BadInput) as caught:
        pairs(**training)
    (problem,) = caught.value.problems
    assert problem.code == "ZP020"
    return problem.message, problem.help


def test_every_divisor_of_a_ranks_batch():
    assert pairs(global_batch_size=48) == [(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)]
    assert pairs(global_batch_size=4) == [(1, 1)]


def test_what_is_asked_beside_the_batch_is_kept():
    assert pairs(global_batch_size=48, micro_batch_size=3) == [(3, 4)]
    assert pairs(global_batch_size=48, accumulation_steps=2) == [(6, 2)]
    assert pairs(micro_batch_size=5, accumulation_steps=7) == [(5, 7)]
    assert {micro for micro, _ in pairs(micro_batch_size=5)} == {5}
    assert {steps for _, steps in pairs(accumulation_steps=7)} == {7}


def test_a_batch_that_does_not_split_names_its_neighbours():
    assert refusal(global_batch_size=30) == (
        "global_batch_size 30 cannot be split over 4 ranks",
        "use 28 or 32",
    )
    assert refusal(global_batch_size=3) == ("global_batch_size 3 cannot be split over 4 ranks", "use 4")


def test_large_numbers_can_be_read_and_the_values_to_use_can_be_typed():
    message, remedy = refusal(global_batch_size=1_000_001)
    assert message == "global_batch_size 1,000,001 cannot be split over 4 ranks"
    assert remedy == "use 1000000 or 1000004"


def test_a_micro_batch_that_does_not_divide_names_its_neighbours():
    message, remedy = refusal(global_batch_size=48, micro_batch_size=5)
    assert "micro_batch_size 5" in message
    assert remedy == "use micro_batch_size 4 or 6"
    assert refusal(global_batch_size=48, accumulation_steps=40)[1] == "use accumulation_steps 12"


def test_three_that_disagree():
    _, remedy = refusal(global_batch_size=48, micro_batch_size=3, accumulation_steps=2)
    assert remedy == "3 x 2 x 4 = 24; leave one of the three out"
    assert pairs(global_batch_size=48, micro_batch_size=3, accumulation_steps=4) == [(3, 4)]


@pytest.mark.parametrize("length", [128, 4096, 131072])
@pytest.mark.parametrize("ranks", [1, 8, 64])
def test_a_free_batch_stays_within_the_most_tokens(length, ranks):
    found = pairs(ranks, sequence_length=length)
    assert all(micro * steps * length * ranks <= MOST_TOKENS_PER_STEP for micro, steps in found) or found == [
        (1, 1)
    ]
    assert found[0] == (1, 1)
    assert len(set(found)) == len(found)


def test_a_free_batch_is_one_sequence_where_even_that_is_too_much():
    assert pairs(64, sequence_length=131072) == [(1, 1)]
    assert pairs(64, sequence_length=131072, micro_batch_size=2) == [(2, 1)]


def test_micro_batches_whose_logits_exceed_the_gpu_are_left_out():
    """6 bytes x 128,000 entries x 4,096 tokens are 3.1 GB a sequence: 7 of them in 24 GB."""
    model = toy(vocabulary=128_000)
    found = pairs(1, model, "24 GB", sequence_length=4096, global_batch_size=16)
    assert found == [(1, 16), (2, 8), (4, 4)]
    assert pairs(1, model, "1 GB", sequence_length=4096, global_batch_size=2) == [(1, 2)]
