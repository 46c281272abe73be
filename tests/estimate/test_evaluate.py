"""The step's arithmetic on a machine of round numbers, and what an estimate derives from it."""

from dataclasses import replace

import pytest
from runtimes.drawn import with_tier
from runtimes.toy import cluster, plan, toy, workload

from ziplan.estimate import estimate
from ziplan.estimate.residuals import RESIDUALS
from ziplan.hardware.cluster import Price
from ziplan.hardware.parts import Drive
from ziplan.plan import Checkpointing
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed.buckets import filled
from ziplan.runtimes.terms import GRADIENTS_DOWN, GRADIENTS_UP, TO_THE_OPTIMIZER

NONE, FULL = float(Checkpointing.NONE), float(Checkpointing.FULL)
MODEL = toy(12, hidden=4096, middle=16384, vocabulary=32000)
WORK = workload(MODEL, sequence_length=4096)
P, M, T = MODEL.params, MODEL.matmul_params, 4096
COMPUTED = 6 * M + 2 * MODEL.block_matmul_params
"""FLOPs per token with full checkpointing: layers run forward twice, the head once."""


def answer(machine, chosen, runtime="ideal", work=WORK):
    real = RUNTIMES[runtime]
    return estimate(machine, work, real, real.settle(machine, work, chosen))


def attention(tokens, passes=3):
    """4 FLOPs for each pair of tokens and unit of width, half of the square, per pass and layer."""
    return 4 * tokens * T * 4096 * 12 * 0.5 * passes


def test_a_step_of_the_ideal_runtime_by_hand():
    """One GPU, parameters and optimizer on DRAM: compute hides 4P of climbing; then 4e9 updates a second."""
    one = answer(cluster(), plan("dram", "dram", micro_batch_size=4.0, accumulation_steps=3.0))
    tokens = 4 * T
    compute = (COMPUTED * tokens + attention(tokens, 4)) / 100e12
    stream = 4 * P / 20e9
    assert stream < compute
    assert one.step_time == pytest.approx(3 * compute + P / 4e9)
    assert one.terms == pytest.approx({"compute": 3 * compute, "CPU optimizer": P / 4e9})
    assert one.busy["parameter stream"] == pytest.approx(3 * stream)
    assert one.traffic["dram"] == pytest.approx((3 * 4 * P, 3 * 2 * P))


def test_a_step_costs_what_its_nodes_cost_while_it_runs():
    machine = cluster(nodes=2, gpus=4)
    assert answer(machine, plan(dp_degree=8.0)).step_cost is None
    priced = answer(replace(machine, price=Price(36.0, "a contract", "2026-01-01")), plan(dp_degree=8.0))
    assert priced.step_cost == pytest.approx(2 * 36.0 / 3600 * priced.step_time)


def test_the_interval_is_no_narrower_than_what_assumed_rates_leave_open(monkeypatch):
    """3.33e9 updates a second are assumed, 1.82e9 to 10.4e9; the published range alone is narrower."""
    monkeypatch.setitem(RESIDUALS, "ideal", {"optimizer on the host": (12, 0.9, 1.2)})
    node = cluster().node
    cpu = node.cpu.model_copy(update={"adam_params_per_s": None})
    blind = with_tier(
        replace(cluster(), node=node.model_copy(update={"cpu": cpu})), "dram", read_bandwidth=None
    )
    one = answer(blind, plan("hbm", "dram"))
    update, rest = one.terms["CPU optimizer"], one.step_time - one.terms["CPU optimizer"]
    low, high = (rest + update * 3.33 / end for end in (10.4, 1.82))
    assert one.interval == pytest.approx((low / one.step_time, high / one.step_time))
    assert low < 0.87 * one.step_time, "else this proves nothing"
    assert "widened: assumed rates alone make it" in one.interval_source
    known = answer(cluster(), plan("hbm", "dram"))
    assert known.interval == pytest.approx((1 / 1.15, 1.2)), "nothing is assumed"
    assert "widened" not in known.interval_source
    assert known.interval_source.endswith("and at least a factor of 1.15 either way")
    assert answer(blind, plan()).interval == answer(cluster(), plan()).interval, "no CPU optimizer, no matter"


def test_without_tiles_the_widest_operator_stands_in_memory_once():
    """w d^2 bytes of weights and b d of input and output fill the GPU; 16 tiles hold 2/16 of the weights."""
    one = answer(cluster(), plan())
    assert one.limits is not None
    capacity = one.cluster.node.tiers["hbm"].capacity
    for width, share in ((one.limits.max_d_model_untiled, 1), (one.limits.max_d_model_by_width, 2 / 16)):
        weights, features = 2 * 4 * width**2 * share, 2 * 5 * width * T
        assert weights + features == pytest.approx(capacity)


def test_a_step_that_its_stream_binds():
    one = answer(cluster(), plan("nvme", "hbm"))
    compute = (COMPUTED * T + attention(T, 4)) / 100e12
    stream = 4 * P / 5e9
    assert stream > compute
    assert one.terms["parameter stream"] == pytest.approx(stream)
    assert one.step_time == pytest.approx(stream + 2 * 12 * P / 2e12)


def test_tokens_and_rates_count_all_ranks():
    one = answer(cluster(nodes=2, gpus=4), plan(dp_degree=8.0, micro_batch_size=2.0, accumulation_steps=3.0))
    assert one.tokens_per_step == 8 * 2 * 3 * T
    assert one.model_flops == 6 * P * one.tokens_per_step
    assert one.tokens_per_s == pytest.approx(one.tokens_per_step / one.step_time)
    assert one.model_flops_per_s_per_gpu == pytest.approx(one.model_flops / one.step_time / 8)
    recomputed = answer(cluster(nodes=2, gpus=4), plan(dp_degree=8.0, activation_checkpointing=NONE))
    assert one.hardware_flops / 6 == pytest.approx(8 * (COMPUTED * T + attention(T, 4)))
    assert recomputed.hardware_flops == pytest.approx(8 * (6 * M * T + attention(T, 3)))


def test_ranks_split_what_they_share():
    """8 ranks on a node stripe the climb over 8 links, and the node's CPU updates everything."""
    one = answer(cluster(gpus=8), plan("dram", "dram", dp_degree=8.0))
    assert one.busy["parameter stream"] == pytest.approx(4 * P / 8 / 20e9)
    assert one.busy["CPU optimizer"] == pytest.approx(P / 4e9)
    two_nodes = answer(cluster(nodes=2, gpus=8), plan("dram", "dram", dp_degree=16.0))
    assert two_nodes.busy["CPU optimizer"] == pytest.approx(P / 2 / 4e9)


def test_deepspeed_swaps_in_turn_and_pipelined_beside_the_update():
    """Read 16, write 14 bytes, update: a sum without pipelining; with it, update and swaps run at once."""
    machine = cluster()
    chosen = {"activation_checkpointing": NONE}
    serial = answer(machine, plan("nvme", "nvme", **chosen), "deepspeed")
    beside = answer(machine, plan("nvme", "nvme", optimizer_buffer_count=12.0, **chosen), "deepspeed")
    # The update moves 28 bytes; unscaling gradients and casting what is updated 14 more.
    read, write, update = 16 * P / 5e9, 14 * P / 2e9, P / 4e9 * 42 / 28
    in_turn = sum(serial.terms[t] for t in ("optimizer read", "optimizer write", "CPU optimizer"))
    assert in_turn == pytest.approx(read + write + update, rel=1e-3)
    assert serial.step_time - beside.step_time == pytest.approx(update, rel=1e-3)
    assert "CPU optimizer" not in beside.terms


def test_deepspeed_on_nvme_reads_before_it_computes():
    """Without prefetch the step is a sum: read, copy, gather, compute."""
    twice = plan("nvme", "nvme", activation_checkpointing=NONE, accumulation_steps=2.0)
    one = answer(cluster(), twice, "deepspeed")
    assert one.terms["parameter read"] == pytest.approx(2 * 4 * P / 5e9, rel=1e-3)
    assert one.terms["parameter copy"] == pytest.approx(2 * 4 * P / 20e9, rel=1e-3)
    assert one.terms["compute"] > 0
    ahead = {"prefetch_depth": 1.0, "activation_checkpointing": NONE}
    hidden = answer(cluster(), plan("dram", "dram", micro_batch_size=8.0, **ahead), "deepspeed")
    # But for what the first module of a micro-step lacks, and what a module asks for too late.
    assert hidden.terms["parameter copy"] < 0.1 * hidden.busy["parameter copy"]


def test_gradients_reach_the_optimizer_beside_the_last_backward():
    """Long micro-steps hide the way to the host but for the last bucket's; of that to NVMe the copy is waited
    for, once a step."""
    long = {"activation_checkpointing": NONE, "micro_batch_size": 64.0, "accumulation_steps": 3.0}
    host = answer(cluster(), plan("hbm", "dram", **long), "deepspeed")
    assert host.busy["gradient copy to host"] == pytest.approx(3 * 2 * P / 20e9, rel=1e-3)
    assert host.busy["gradient copy to GPU"] == pytest.approx(3 * 2 * P / 20e9, rel=1e-3)
    assert host.busy["gradient copy to optimizer"] == pytest.approx(4 * P / 20e9, rel=1e-3)
    _, last = filled(MODEL, 32000.0 * 4096)
    for term in (GRADIENTS_DOWN, GRADIENTS_UP, TO_THE_OPTIMIZER):
        assert host.terms[term] == pytest.approx(last * host.busy[term], rel=1e-3)
    swapped = answer(cluster(), plan("hbm", "nvme", **long), "deepspeed")
    assert swapped.terms["gradient copy to optimizer"] == pytest.approx(4 * P / 20e9, rel=1e-3)
    assert swapped.busy["gradient write"] == pytest.approx(4 * P / 2e9, rel=1e-3)
    assert "gradient write" not in swapped.terms


def test_reserves_are_held_back():
    one = answer(cluster(gpus=4), plan(dp_degree=4.0))
    assert one.memory["hbm"].available == 80e9
    assert one.memory["dram"].available == pytest.approx(0.95 * 2e12)
    assert one.memory["nvme"].available == pytest.approx(0.95 * 30e12)


def test_verdicts_follow_the_range():
    chosen = plan("dram", "dram")
    need = answer(cluster(), chosen, "deepspeed").memory["dram"]
    assert need.low < need.high

    def verdict(available):
        return answer(cluster(dram=f"{available / 0.95 / 1e9:.6f} GB"), chosen, "deepspeed").verdict

    assert verdict(need.high * 1.001) == "fits"
    assert verdict((need.low + need.high) / 2) == "tight"
    assert verdict(need.low * 0.999) == "does_not_fit"


def test_drives_last_as_long_as_all_ranks_writes_let_them():
    """4 ranks share 2 drives of 1 PB endurance; each step writes 12 bytes per parameter and gradients."""
    drive = Drive.model_validate({"name": "Drive", "capacity": "15 TB", "endurance": "1 PB"})
    machine = with_tier(cluster(nodes=3, gpus=4), "nvme", drive=drive, drive_count=2)
    one = answer(machine, plan("hbm", "nvme", dp_degree=12.0, activation_checkpointing=NONE), "deepspeed")
    steps = one.drive_lifetime / one.step_time
    assert steps == pytest.approx(2 * 1e15 / (16 * P / 3), rel=1e-2)
    assert one.flash_writes * 4 == pytest.approx(16 * P / 3, rel=1e-2)


def test_the_articles_test_of_a_tier():
    """Intensity 2T against balance R/BW: 4,096 tokens offer 8,192; a 20 GB/s link asks 5,000."""
    one = answer(cluster(), plan("dram", "dram"))
    tier = one.tiers["dram"]
    assert tier.arithmetic_intensity == 2 * T
    assert tier.machine_balance == 100e12 / 20e9
    assert tier.required_tokens == 2500
    assert tier.hiding_margin == pytest.approx(2 * T / 5000)
    striped = answer(cluster(gpus=8), plan("dram", "dram", dp_degree=8.0)).tiers["dram"]
    assert striped.hiding_margin == pytest.approx(8 * 2 * T / 5000)
    assert striped.owner_fetch_time == pytest.approx(8 * striped.striped_fetch_time)


def test_nothing_is_recorded_of_a_grid():
    work, real = WORK, RUNTIMES["deepspeed"]
    bare = estimate(cluster(), work, real, real.settle(cluster(), work, plan()), record=False)
    assert not bare.derivation.steps
    assert not bare.terms
    assert all(line.step is None for line in bare.ledger.lines)
