"""The article's tests and ceilings where the article has no example: experts, and GPUs that stay idle."""

import pytest
from runtimes.toy import cluster, plan, toy, workload

from ziplan.estimate import estimate
from ziplan.plan import Checkpointing, Placement
from ziplan.runtimes import RUNTIMES
from ziplan.workload.families import activation_bytes
from ziplan.workload.load import load_model, load_workload
from ziplan.workload.training import Training, Workload

FULL = float(Checkpointing.FULL)
HOST = Placement({"dram": 1.0}, {"dram": 1.0}, {"dram": 1.0}, {"hbm": 1.0})


def asked(work, gpus=1, **fields):
    chosen = {"zero_stage": 3.0, "placement": HOST, "activation_checkpointing": FULL, **fields}
    return estimate(cluster(gpus=gpus), work, RUNTIMES["deepspeed"], plan(**chosen))


def test_experts_are_streamed_whole_and_computed_with_in_part():
    """Mixtral's layers: 2 of 8 experts for a token. 100 TFLOP/s over 20 GB/s is 5,000 FLOPs a byte, a token
    gives 2 of them where all is active."""
    model = load_model("mixtral-8x7b")
    work = Workload(model, Training(sequence_length=4096), "bf16", activation_bytes(model, "flash", "bf16"))
    attention = 2 * 4096**2 + 2 * 4096 * 1024
    expert = 3 * 4096 * 14336
    others = 4096 * 8 + 2 * 4096
    share = (attention + others + 2 * expert) / (attention + others + 8 * expert)
    test = asked(work).tiers["dram"]
    assert test.required_tokens == pytest.approx(2500 / share)
    assert test.hiding_margin == pytest.approx(4096 * share / 2500)
    # The same as a layer's time in all sweeps, 4 times forward's, over both climbs of its bytes.
    forward = 2 * (attention + others + 2 * expert) * 4096 / 100e12
    assert test.hiding_margin == pytest.approx(4 * forward / (2 * test.owner_fetch_time), rel=1e-6)


@pytest.mark.parametrize(("checkpointing", "flops"), [(FULL, 6), (0.0, 4)])
def test_nobody_computes_gradients_of_frozen_weights(checkpointing, flops):
    """Adapters of rank 8: 6 or 4 FLOPs for a parameter and token, where all trained are 8 or 6."""
    adapters = {"lora_rank": 8, "targets": ["all-linear"]}
    work = load_workload("llama-3.1-8b", {"sequence_length": 2048, "trainable": adapters}, ("bf16",))
    test = asked(work, activation_checkpointing=checkpointing).tiers["dram"]
    assert test.required_tokens == pytest.approx(100e12 / 20e9 * 4 / flops, rel=0.01)


def test_a_dense_model_is_as_the_article_has_it():
    assert asked(workload(toy())).tiers["dram"].required_tokens == pytest.approx(2500)


def test_the_ceiling_of_compute_is_that_of_the_gpus_that_work():
    """A year of 6 x 20 P FLOPs for each of P parameters, as training time has it."""
    some, all_of_them = asked(workload(toy()), 8, dp_degree=2.0), asked(workload(toy()), 8, dp_degree=8.0)
    for answer, gpus in ((some, 2), (all_of_them, 8)):
        expected = (365.25 * 86400 * gpus * 100e12 / 120) ** 0.5
        assert answer.limits.max_params_by_compute == pytest.approx(expected)
