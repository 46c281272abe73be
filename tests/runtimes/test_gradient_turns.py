"""Gradients on their way to the host below stage 3: one rank at a time, unless tensors are dealt out."""

import json

import pytest
from runtimes.toy import cluster, plan, workload

from ziplan.estimate import estimate
from ziplan.hardware.profiles import load_cluster
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed.released import Released
from ziplan.runtimes.terms import GRADIENT_COPIES, OTHERS_GRADIENTS
from ziplan.workload.config import model_of

PAPER = Released("0.3.13", overlap_comm=False)
"""ZeRO-Offload as the ZeRO-Infinity paper measured it, with the defaults of its time."""

EIGHT_BILLION = {
    "model_type": "gpt2",
    "n_embd": 8192,
    "n_layer": 10,
    "n_head": 16,
    "n_positions": 1024,
    "vocab_size": 50257,
    "activation_function": "gelu",
}


def backward(gpus):
    """Seconds of backward (three of four parts of the computation) and of what holds it up, stage 2."""
    machine = load_cluster("dgx-2", [("nodes", str(gpus // 16))])
    model = model_of("8b", EIGHT_BILLION, lambda *_: None)
    work = workload(model, sequence_length=1024, precision="fp16", attention="eager")
    chosen = plan("hbm", "dram", dp_degree=float(gpus), zero_stage=2.0, micro_batch_size=2.0)
    terms = estimate(machine, work, PAPER, PAPER.settle(machine, work, chosen)).terms
    held = sum(terms.get(name, 0.0) for name in ("gradient reduce", *GRADIENT_COPIES, OTHERS_GRADIENTS))
    return 0.75 * (terms["compute"] + terms["GPU memory"]) + held, held


@pytest.mark.parametrize(("gpus", "measured"), [(16, 4.65), (32, 4.6), (64, 4.5)])
def test_backward_of_zero_offload_takes_as_long_on_any_number_of_gpus(gpus, measured):
    """arXiv:2104.07857 figure 6c, read off: limited by one PCIe link however many there are."""
    time, held = backward(gpus)
    assert time == pytest.approx(measured, rel=0.15)
    assert held > 0.5 * time


WORK = workload()


def told(runtime, dp=8, stage=2, steps=1, home="dram"):
    chosen = plan("hbm", home, dp_degree=float(dp), zero_stage=float(stage), accumulation_steps=float(steps))
    machine = cluster(gpus=dp)
    return estimate(machine, WORK, runtime, runtime.settle(machine, WORK, chosen))


def copies(answer):
    """Seconds of copies, a rank's own and those it waits for."""
    own = sum(answer.busy.get(term, 0.0) for term in GRADIENT_COPIES)
    return own, answer.busy.get(OTHERS_GRADIENTS, 0.0)


def test_the_others_take_what_is_left_of_the_model():
    own, awaited = copies(told(PAPER))
    assert awaited == pytest.approx(7 * own, rel=1e-9)
    assert copies(told(PAPER, dp=1))[1] == 0


def test_traffic_is_a_ranks_own():
    assert told(PAPER).traffic["dram"] == told(Released("0.4.3", overlap_comm=False)).traffic["dram"]


@pytest.mark.parametrize(
    "runtime",
    [RUNTIMES["deepspeed"], Released("0.4.0"), Released("0.4.3")],
    ids=["emitted", "0.4.0", "0.4.3"],
)
def test_tensors_that_are_dealt_out_are_copied_at_once(runtime):
    assert copies(told(runtime))[1] == 0


@pytest.mark.parametrize("version", ["0.3.16", "0.4.4", "0.19.8"])
def test_releases_copy_in_turn_unless_a_config_asks(version):
    assert copies(told(Released(version)))[1] > 0


@pytest.mark.parametrize(("stage", "home"), [(3, "dram"), (2, "hbm"), (0, "hbm")])
def test_only_below_stage_3_and_only_to_the_host(stage, home):
    assert copies(told(PAPER, stage=stage, home=home))[1] == 0


def test_what_is_emitted_deals_them_out():
    for stage, home, emitted in ((2, "dram", True), (1, "dram", True), (2, "hbm", None), (3, "dram", None)):
        answer = told(RUNTIMES["deepspeed"], stage=stage, home=home)
        files = RUNTIMES["deepspeed"].emit(answer.cluster, WORK, answer.plan)
        zero = json.loads(files["ds_config.json"])["zero_optimization"]
        assert zero.get("round_robin_gradients") is emitted
