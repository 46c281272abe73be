"""Optimizers and the precision of their state in every runtime: bytes by hand, refusals, files."""

import json

import pytest
from runtimes.toy import cluster, plan, toy, workload

from ziplan.errors import BadInput, CannotEmit
from ziplan.estimate import estimate
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed.optimizers import OPTIMIZERS
from ziplan.runtimes.runtime import COLLECTIVE

RANKS = 4
MODEL = toy(4)
P = MODEL.params


def training(kind="adamw", **more):
    return workload(MODEL, optimizer={"kind": kind, "weight_decay": 0.1}, **more)


def answered(name, work, params="hbm", optimizer="hbm", **fields):
    runtime, machine = RUNTIMES[name], cluster(gpus=RANKS)
    chosen = plan(params, optimizer, dp_degree=float(RANKS), **fields)
    return estimate(machine, work, runtime, runtime.settle(machine, work, chosen))


def held(answer, tier, *names):
    return sum(line.high for line in answer.ledger.lines if line.tier == tier and line.name in names)


def moved(answer, term):
    demands = {id(d): d for segment in answer.segments for chain in segment.chains for d in chain}
    return sum(d.amount for d in demands.values() if d.term == term and d.resource != COLLECTIVE)


@pytest.mark.parametrize(
    ("kind", "state", "update"),
    [
        ("adamw", 8, 4 + 2 * 12),
        ("lion", 4, 4 + 2 * 8),
        ("sgd", 0, 4 + 2 * 4),
        ("adafactor", 4, 4 + 2 * 8),
        ("adamw_8bit", 2 + 2 * 4 / 256, 4 + 2 * (4 + 2 + 2 * 4 / 256)),
    ],
)
def test_deepspeed_on_the_gpu_keeps_and_moves_what_each_needs(kind, state, update):
    """The moments of flat shards: nothing is factored."""
    answer = answered("deepspeed", training(kind), zero_stage=3.0)
    assert held(answer, "hbm", "optimizer state") == pytest.approx(state * P / RANKS)
    assert held(answer, "hbm", "master weights") == 4 * P / RANKS
    assert moved(answer, "GPU optimizer") == pytest.approx(update * P / RANKS)


def test_lion_on_the_host_has_a_moment_that_it_never_uses():
    answer = answered("deepspeed", training("lion"), "dram", "dram")
    assert held(answer, "dram", "optimizer state") == 8 * P
    # Beside its own 20 bytes: 8 to unscale the gradient in place, 6 to cast what is updated.
    assert moved(answer, "CPU optimizer") == pytest.approx(P * (20 + 14) / 28)
    swapped = answered("deepspeed", training("lion"), "hbm", "nvme")
    assert moved(swapped, "optimizer write") == 12 * P / RANKS


def test_states_in_bf16_take_half_on_either_side():
    work = training(precision="bf16", master_precision="bf16")
    on_gpu = answered("deepspeed", work)
    assert held(on_gpu, "hbm", "master weights", "optimizer state") == 6 * P / RANKS
    assert held(on_gpu, "hbm", "gradient of one sub-group") == 2 * P / RANKS
    on_host = answered("deepspeed", work, "dram", "dram")
    assert held(on_host, "dram", "master weights", "optimizer state") == 6 * P
    assert held(on_host, "dram", "fp32 gradients") == 2 * P
    # The kernel is no faster, it computes in fp32; the passes beside it move half as much.
    assert moved(on_host, "CPU optimizer") == pytest.approx(P * (28 + 4 + 4) / 28)


def test_fp32_has_master_weights_of_its_own_but_at_stage_0():
    work = training(precision="fp32")
    for stage, bytes_per_param in ((0.0, 0), (1.0, 4 / RANKS), (3.0, 4 / RANKS)):
        answer = answered("deepspeed", work, zero_stage=stage)
        assert held(answer, "hbm", "master weights") == bytes_per_param * P


@pytest.mark.parametrize(("kind", "state", "update"), [("adamw", 8, 28), ("sgd", 0, 12 + 12)])
def test_fsdp_keeps_and_moves_what_each_needs(kind, state, update):
    answer = answered("fsdp", training(kind))
    assert held(answer, "hbm", "optimizer state") == state * P / RANKS
    assert moved(answer, "GPU optimizer") == update * P / RANKS
    on_host = moved(answered("fsdp", training(kind), "dram", "dram"), "CPU optimizer")
    assert on_host == pytest.approx(P * (update + 8) / 28), "gradients are clipped in place"


def test_ideal_factors_what_can_be_factored():
    states = {kind: held(answered("ideal", training(kind)), "hbm", "optimizer state") for kind in OPTIMIZERS}
    assert states["adamw"] * RANKS == pytest.approx(12 * P)
    assert states["lion"] * RANKS == pytest.approx(8 * P)
    assert 4 * P < states["adafactor"] * RANKS < 4.1 * P


REFUSED = [
    ({"optimizer": {"kind": "adamw_8bit"}}, ("hbm", "dram"), {}, "adamw_8bit cannot be offloaded"),
    ({"optimizer": {"kind": "adafactor"}}, ("hbm", "nvme"), {}, "adafactor cannot be offloaded"),
    ({"optimizer": {"kind": "sgd"}}, ("hbm", "hbm"), {"zero_stage": 0.0}, "from zero_stage 1 on"),
    (
        {"master_precision": "bf16", "precision": "fp16"},
        ("hbm", "hbm"),
        {},
        "need training in bf16, not fp16",
    ),
    ({"master_precision": "bf16"}, ("hbm", "nvme"), {}, "cannot be swapped to NVMe"),
    ({"master_precision": "bf16"}, ("hbm", "hbm"), {"zero_stage": 0.0}, "need zero_stage 1 or higher"),
    ({"master_precision": "bf16", "optimizer": {"kind": "lion"}}, ("hbm", "hbm"), {}, "with adamw, not lion"),
]


@pytest.mark.parametrize(("settings", "homes", "fields", "said"), REFUSED)
def test_deepspeed_refuses_what_it_would_not_run(settings, homes, fields, said):
    runtime, machine, work = RUNTIMES["deepspeed"], cluster(gpus=RANKS), workload(MODEL, **settings)
    chosen = runtime.settle(machine, work, plan(*homes, dp_degree=float(RANKS), **fields))
    assert any(said in reason for reason in runtime.refusals(machine, work, chosen))
    with pytest.raises(CannotEmit, match=said):
        runtime.emit(machine, work, chosen)


def homes_searched(kind):
    placement, *_ = RUNTIMES["deepspeed"].axes(cluster(gpus=RANKS), training(kind))
    return {(choice["zero_stage"], *choice["placement"].optimizer) for choice in placement.choices}


def test_only_what_an_optimizer_can_do_is_searched():
    assert homes_searched("adamw_8bit") == {(1.0, "hbm"), (2.0, "hbm"), (3.0, "hbm")}
    assert tuple(sorted({home[-1] for home in homes_searched("lion")} - {"hbm"})) == ("dram", "nvme")
    assert not any(len(home) == 3 for home in homes_searched("lion"))
    assert any(len(home) == 3 for home in homes_searched("adamw"))


@pytest.mark.parametrize(
    ("runtime", "settings", "said"),
    [
        ("deepspeed", {"master_precision": "bf16", "precision": "fp16"}, "need training in bf16"),
        ("fsdp", {"optimizer": {"kind": "lion"}}, "PyTorch has no Lion"),
        ("fsdp", {"master_precision": "bf16", "precision": "fp16"}, "kept in bf16 and computed with in fp16"),
    ],
)
def test_what_no_plan_can_do_is_refused_before_the_search(runtime, settings, said):
    with pytest.raises(BadInput, match=said):
        RUNTIMES[runtime].axes(cluster(gpus=RANKS), workload(MODEL, **settings))


CONFIGS = {
    "adamw": {
        "type": "AdamW",
        "params": {"lr": 1e-5, "weight_decay": 0.1, "betas": [0.9, 0.999], "eps": 1e-8},
    },
    "lion": {"type": "Lion", "params": {"lr": 1e-5, "weight_decay": 0.1, "betas": [0.9, 0.999]}},
    "sgd": {"type": "SGD", "params": {"lr": 1e-5, "weight_decay": 0.1}},
    "adafactor": {"type": "Adafactor", "params": {"lr": 1e-5, "weight_decay": 0.1}},
    "adamw_8bit": None,
}


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("trainer", ["none", "huggingface", "accelerate"])
def test_files_name_the_optimizer(kind, trainer):
    runtime, machine, work = RUNTIMES["deepspeed"], cluster(gpus=RANKS), training(kind)
    chosen = runtime.settle(machine, work, plan(dp_degree=float(RANKS)))
    files = runtime.emit(machine, work, chosen, trainer=trainer)
    config = json.loads(files["ds_config.json"])
    assert config.get("optimizer") == CONFIGS[kind]
    assert config.get("zero_allow_untested_optimizer", False) == (kind not in ("adamw", "lion"))
    made = "bitsandbytes.optim.AdamW8bit" in files["launch.sh"]
    assert made == (kind == "adamw_8bit" and trainer != "huggingface")
    if trainer == "huggingface":
        optim = json.loads(files["trainer_args.json"]).get("optim")
        assert optim == ("adamw_bnb_8bit" if kind == "adamw_8bit" else None)


@pytest.mark.parametrize(("kind", "made"), [("adamw", "torch.optim.AdamW"), ("sgd", "torch.optim.SGD")])
def test_fsdp_setup_makes_the_optimizer(kind, made):
    runtime, machine, work = RUNTIMES["fsdp"], cluster(gpus=RANKS), training(kind)
    text = runtime.emit(machine, work, runtime.settle(machine, work, plan(dp_degree=4.0)))["fsdp_setup.py"]
    compile(text, "fsdp_setup.py", "exec")
    assert f"return {made}(trained, lr=1e-05, " in text
    assert ("weight_decay=0.1, fused=True)" in text) == (kind == "adamw")


def test_fsdp_without_a_fused_kernel_copies_gradients_for_weight_decay():
    """torch has a fused SGD, but not of sharded tensors."""
    decayed = answered("fsdp", training("sgd"))
    assert held(decayed, "hbm", "gradients with weight decay") == 4 * P / RANKS
    plain = answered("fsdp", workload(MODEL, optimizer={"kind": "sgd"}))
    assert held(plain, "hbm", "gradients with weight decay") == 0
    assert moved(plain, "GPU optimizer") == 12 * P / RANKS


def test_master_weights_in_bf16_are_asked_for_in_the_config():
    runtime, machine = RUNTIMES["deepspeed"], cluster(gpus=RANKS)
    for master in ("fp32", "bf16"):
        work = training(precision="bf16", master_precision=master)
        files = runtime.emit(machine, work, runtime.settle(machine, work, plan(dp_degree=4.0)))
        section = json.loads(files["ds_config.json"])["bf16"]
        keys = {"bf16_master_weights_and_grads", "bf16_optimizer_states"}
        assert {key for key in section if section[key]} - {"enabled"} == (keys if master == "bf16" else set())
