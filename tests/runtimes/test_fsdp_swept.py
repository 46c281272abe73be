"""FSDP's passes through the GPU's memory, by hand; the engine tests count them in torch."""

from collections import Counter

import pytest
from runtimes.toy import cluster, plan, toy, workload

from ziplan.estimate import estimate
from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.fsdp.facts import Facts
from ziplan.runtimes.fsdp.released import FSDP1, Released
from ziplan.runtimes.fsdp.swept import clipped, summed
from ziplan.runtimes.terms import GRADIENT_PASSES, PACKED, SUMMED, UNPACKED, UPDATE_PASSES
from ziplan.workload.load import load_workload

RANKS = 8.0
MODEL = toy(4)
P = MODEL.params
ROOT = 2 * 2048 * 1024 + 2 * 1024
LAYERS = P - ROOT
GATHERED = P + LAYERS
"""Elements of two gathers: the root stays, layers are gathered again in backward."""


def passes(ranks=RANKS, flat=False, home="hbm", steps=1.0, **training):
    work, machine = workload(MODEL, **training), cluster(gpus=int(ranks))
    runtime = Released(FSDP1) if flat else RUNTIMES["fsdp"]
    fields = {"dp_degree": ranks, "accumulation_steps": steps, "activation_checkpointing": Checkpointing.NONE}
    found = estimate(machine, work, runtime, runtime.settle(machine, work, plan(home, home, **fields)))
    amounts = Counter()
    for segment in found.segments:
        for demand in {id(each): each for chain in segment.chains for each in chain}.values():
            amounts[demand.term] += segment.repeats * demand.amount
    return [amounts[term] for term in (PACKED, UNPACKED, GRADIENT_PASSES, SUMMED, UPDATE_PASSES)]


@pytest.mark.parametrize("home", ["hbm", "dram"])
def test_tensors_are_copied_together_to_be_gathered_and_apart_again(home):
    """Of its own a rank casts 6 B and copies 4, of all it copies 4 B out and 4 B of gradients in."""
    packed, apart, into, sums, clips = passes(home=home)
    assert packed == pytest.approx(10 * GATHERED / RANKS)
    assert (apart, into) == pytest.approx((4 * GATHERED, 4 * P))
    assert sums == pytest.approx(6 * P / RANKS)
    # Gradients on the host are clipped there.
    assert clips == pytest.approx(12 * P / RANKS if home == "hbm" else 0)


def test_what_computes_as_it_is_kept_is_not_cast():
    packed, _, _, sums, clips = passes(master_precision="bf16")
    assert (packed, sums) == pytest.approx((4 * GATHERED / RANKS, 0))
    assert clips == pytest.approx(6 * P / RANKS)


def test_a_flat_tensor_pads_no_rows():
    """Eight experts over 32 ranks: each tensor of all of them has four times its elements in FSDP2."""
    work, machine = load_workload("mixtral-8x7b", {"sequence_length": 512}, ("bf16",)), cluster(gpus=32)
    chosen = plan("hbm", "hbm", dp_degree=32.0)
    held = []
    for runtime in (RUNTIMES["fsdp"], Released(FSDP1)):
        book = runtime.ledger(Derivation(record=False), machine, work, runtime.settle(machine, work, chosen))
        held.append(next(line.low for line in book.lines if (line.tier, line.name) == ("hbm", "parameters")))
    assert held[1] == pytest.approx(4 * work.model.params / 32)
    assert held[0] > 3 * held[1]


def test_one_flat_tensor_needs_no_copies_and_divides_its_gradients():
    packed, apart, into, sums, _ = passes(flat=True)
    assert packed == pytest.approx(6 * GATHERED / RANKS)
    assert (apart, into) == pytest.approx((0, 4 * P))
    assert sums == pytest.approx(4 * P + (4 + 6) * P / RANKS)


def test_two_ranks_divide_once_and_one_rank_copies():
    assert passes(2.0, flat=True)[3] == pytest.approx(4 * P + 6 * P / 2)
    packed, apart, into, sums, _ = passes(1.0)
    assert (packed, apart, into, sums) == pytest.approx((10 * GATHERED, 0, 4 * P, 10 * P))


def test_gradients_are_added_on_the_gpu_in_every_micro_step_but_the_first():
    assert passes(steps=4.0)[3] == pytest.approx((4 * 6 + 3 * 12) * P / RANKS)
    assert passes(steps=4.0, home="dram")[3] == pytest.approx(4 * 6 * P / RANKS)


def test_fp16_is_divided_twice_and_unscaled():
    work = workload(MODEL, precision="fp16")
    f = Facts(Derivation(record=False), cluster(gpus=8), work, plan(dp_degree=RANKS))
    assert summed(f, "gradients", P).amount == pytest.approx(4 * P + (4 + 6) * P / RANKS)
    assert clipped(f).amount == pytest.approx(20 * P / RANKS)


def test_gradients_that_are_not_clipped_are_not_measured():
    assert passes(gradient_clipping=False)[4] == 0


def test_there_is_no_other_fsdp():
    with pytest.raises(ValueError, match="FSDP1 is"):
        Released("0.9.2")
