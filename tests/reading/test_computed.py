"""What the Trainer's arguments say of kernels, the loss, recomputation and the optimizer."""

import json
from dataclasses import fields, replace

import pytest
from reading.asking import asked, reading_of, told

from ziplan.cli.check_inputs import Asked, case_of
from ziplan.cli.inputs import Request
from ziplan.estimate import estimate
from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing, Plan
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed.reading.computed import OPTIM, kernels_and_loss
from ziplan.runtimes.deepspeed.reading.huggingface import ARGUMENTS, TrainerArguments
from ziplan.runtimes.deepspeed.reading.settle import settled_plan, stated_training
from ziplan.workload.load import load_workload

RANKS = 8
MACHINE = "dgx-a100-80g"
HEAD = "fused_linear_cross_entropy"


def workload(model="llama-3.1-8b", **settings):
    return load_workload(model, {"sequence_length": 1024, "precision": "bf16", **settings}, ("bf16",))


def zero(offload=None, stage=3, **more):
    section = {"stage": stage, **({"offload_optimizer": {"device": "cpu"}} if offload else {})}
    batch = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    return {**batch, "zero_optimization": section, "bf16": {"enabled": True}, **more}


def read(folder, arguments, model="llama-3.1-8b", **config):
    """(what is said of training, remarks by kind and path) of arguments with a DeepSpeed config in them."""
    whole = {"per_device_train_batch_size": 2, "bf16": True, "deepspeed": zero(**config), **arguments}
    reading = reading_of(folder, whole, "args.json", ranks=RANKS, hidden_size=4096)
    work = workload(model)
    settled = settled_plan(reading, load_cluster(MACHINE, []), work)
    assert settled.plan is not None, reading.remarks
    said = {(remark.kind, remark.path): remark for remark in settled.remarks}
    return stated_training(reading, work.model.family), said


@pytest.mark.parametrize("kernels", ["eager", "fused", "compiled"])
@pytest.mark.parametrize("loss", [None, "fused"])
@pytest.mark.parametrize(
    "model", ["llama-3.1-8b", "gemma-2-2b", "glm-4-32b-0414", "granite-3.1-8b", "gpt2-xl"]
)
def test_what_is_emitted_is_judged_as_it_was_planned(tmp_path, model, kernels, loss):
    cluster, runtime = load_cluster(MACHINE, []), RUNTIMES["deepspeed"]
    planned = workload(model, kernels=kernels, loss=loss, activation_checkpointing="full")
    plan = Plan(dp_degree=8.0, micro_batch_size=2.0, accumulation_steps=4.0)
    plan = replace(plan, activation_checkpointing=float(Checkpointing.FULL), sub_group_params=1e8)
    plan = runtime.settle(cluster, planned, plan)
    for name, text in runtime.emit(cluster, planned, plan, trainer="huggingface").items():
        (tmp_path / name).write_text(text)
    request = Request(model, MACHINE, training={"sequence_length": 1024})
    case = case_of(tmp_path / "trainer_args.json", Asked(request))
    asks = json.loads((tmp_path / "trainer_args.json").read_text())
    training = case.workload.training
    assert case.plan == plan
    # What Liger has no kernels for the script has to do, and the script is not read.
    by_liger = asks.get("use_liger_kernel")
    assert by_liger or kernels != "fused" or model == "gpt2-xl"
    if by_liger or kernels == "compiled" or (kernels == "eager" and loss is None):
        assert (training.kernels or "eager") == kernels
        assert training.loss == (loss if asks.get("liger_kernel_config", {}).get(HEAD) else None)
    if training.loss == loss and (training.kernels or "eager") == kernels:
        settings = {"kernels": kernels, "loss": loss}
        same = replace(case.workload, training=training.model_copy(update=settings))
        assert case.estimate.step_time == estimate(cluster, same, case.runtime, plan).step_time
    noted = {remark.path for remark in case.remarks if remark.kind != "derived"}
    assert not noted & set(ARGUMENTS)


@pytest.mark.parametrize(
    ("arguments", "kernels", "loss", "remark"),
    [
        ({}, None, None, None),
        ({"torch_compile": True}, "compiled", None, None),
        ({"torch_compile_mode": "default"}, "compiled", None, None),
        ({"torch_compile_mode": "max-autotune"}, "compiled", None, ("not_planned", "torch_compile_mode")),
        ({"torch_compile_backend": "aot_eager"}, None, None, ("not_planned", "torch_compile_backend")),
        ({"use_liger_kernel": True}, "fused", "fused", None),
        ({"use_liger_kernel": True, "torch_compile": True}, "compiled", "fused", None),
        ({"use_liger_kernel": True, "liger_kernel_config": {HEAD: False}}, "fused", None, None),
        (
            {"use_liger_kernel": True, "liger_kernel_config": {"rope": False, "geglu": False}},
            "eager",
            "fused",
            ("not_planned", "liger_kernel_config"),
        ),
        (
            {
                "use_liger_kernel": True,
                "liger_kernel_config": {"rope": False, "rms_norm": False, "swiglu": False},
            },
            "eager",
            "fused",
            None,
        ),
        (
            {"use_liger_kernel": True, "liger_kernel_config": {"cross_entropy": True, HEAD: False}},
            "fused",
            None,
            ("not_planned", "liger_kernel_config"),
        ),
        (
            {"use_liger_kernel": True, "liger_kernel_config": {"cross_entropy": True}},
            "fused",
            "fused",
            ("rejected", "liger_kernel_config"),
        ),
        ({"liger_kernel_config": {"rope": False}}, None, None, None),
    ],
)
def test_kernels_and_the_loss(tmp_path, arguments, kernels, loss, remark):
    said, remarks = read(tmp_path, arguments)
    assert (said.get("kernels"), said.get("loss")) == (kernels, loss)
    assert list(remarks) == ([remark] if remark else [])
    for found in remarks.values():
        assert found.file.endswith("args.json")
        assert found.line > 1


def test_liger_leaves_other_families_as_they_are(tmp_path):
    said, remarks = read(tmp_path, {"use_liger_kernel": True}, "gpt2-xl")
    assert "kernels" not in said
    assert "loss" not in said
    assert list(remarks) == [("ignored", "use_liger_kernel")]
    said, remarks = read(tmp_path, {"use_liger_kernel": True}, "granite-3.1-8b")
    assert said["kernels"] == "fused"
    assert "loss" not in said
    assert list(remarks) == [("not_planned", "use_liger_kernel")]


@pytest.mark.parametrize(
    ("arguments", "mode", "remark"),
    [
        ({"activation_checkpointing": True}, "full", None),
        ({"activation_checkpointing": False, "gradient_checkpointing": True}, "none", None),
        ({"gradient_checkpointing": True}, "full", None),
        (
            {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"every_n_layers": 1}},
            "full",
            None,
        ),
        (
            {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": '{"use_reentrant": true}'},
            "full",
            ("not_planned", "gradient_checkpointing_kwargs"),
        ),
        (
            {"activation_checkpointing": True, "activation_checkpointing_kwargs": {"every_n_layers": 2}},
            "full",
            ("not_planned", "activation_checkpointing_kwargs"),
        ),
        (
            {"activation_checkpointing": True, "activation_checkpointing_kwargs": {"offload": True}},
            "full",
            ("not_planned", "activation_checkpointing_kwargs"),
        ),
        ({"activation_checkpointing_kwargs": {"offload": True}}, "none", None),
    ],
)
def test_recomputation_under_both_names(tmp_path, arguments, mode, remark):
    said, remarks = read(tmp_path, arguments)
    assert said["activation_checkpointing"] == mode
    assert list(remarks) == ([remark] if remark else [])


ADAMW = {"optimizer": {"type": "AdamW", "params": {"lr": 5e-5}}}


@pytest.mark.parametrize(
    ("optim", "config", "optimizer", "remark"),
    [
        ("adamw_torch", {}, {"kind": "adamw", "fused": False}, None),
        ("adamw_torch_fused", {}, {"kind": "adamw", "fused": True}, None),
        ("adamw_bnb_8bit", {}, {"kind": "adamw_8bit"}, None),
        ("adafactor", {}, {"kind": "adafactor"}, None),
        ("paged_adamw_8bit", {}, {"kind": "adamw_8bit"}, "not_planned"),
        ("galore_adamw", {}, None, "not_planned"),
        ("adamw_torch", {"offload": True}, {"kind": "adamw"}, None),
        ("lion_32bit", {"offload": True}, {"kind": "lion"}, None),
        ("adamw_bnb_8bit", {"offload": True}, {"kind": "adamw"}, "ignored"),
        ("adamw_torch", ADAMW, {"kind": "adamw", "learning_rate": 5e-5}, None),
        ("sgd", ADAMW, {"kind": "adamw", "learning_rate": 5e-5}, "ignored"),
        (None, {}, None, None),
    ],
)
def test_the_optimizer_is_the_configs_else_what_the_trainer_makes(tmp_path, optim, config, optimizer, remark):
    said, remarks = read(tmp_path, {"optim": optim} if optim else {}, **config)
    assert said.get("optimizer") == optimizer
    assert list(remarks) == ([(remark, "optim")] if remark else [])


@pytest.mark.parametrize(
    ("arguments", "stage", "remark"),
    [
        ({"auto_find_batch_size": True}, 3, ("rejected", "auto_find_batch_size")),
        ({"auto_find_batch_size": True}, 2, ("not_planned", "auto_find_batch_size")),
        ({"torch_empty_cache_steps": 4}, 3, ("not_planned", "torch_empty_cache_steps")),
        ({"label_smoothing_factor": 0.1}, 3, ("not_planned", "label_smoothing_factor")),
        ({"full_determinism": True}, 3, ("not_planned", "full_determinism")),
        ({"tf32": True}, 3, None),
        ({"tf32": False, "torch_empty_cache_steps": None, "label_smoothing_factor": 0}, 3, None),
    ],
)
def test_what_changes_memory_or_time_and_is_not_planned_is_said(tmp_path, arguments, stage, remark):
    assert list(read(tmp_path, arguments, stage=stage)[1]) == ([remark] if remark else [])


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("use_liger_kernel", "maybe", "true or false"),
        ("liger_kernel_config", [1], "a mapping"),
        ("torch_compile_backend", 3, "text"),
        ("gradient_checkpointing_kwargs", "{1", "not JSON"),
        ("torch_empty_cache_steps", "often", "a whole number"),
    ],
)
def test_wrong_values_are_rejected_where_they_stand(tmp_path, name, value, expected):
    whole = {"per_device_train_batch_size": 2, "deepspeed": zero(), name: value}
    reading = reading_of(tmp_path, whole, "args.json", ranks=RANKS, hidden_size=4096)
    assert expected in told(reading, "rejected")[name]


def test_a_command_line_says_the_same(tmp_path):
    (tmp_path / "ds_config.json").write_text(json.dumps(zero()))
    command = "\n".join(
        (
            "deepspeed --num_gpus 8 train.py --deepspeed ds_config.json --bf16 --use_liger_kernel true \\",
            "  --per_device_train_batch_size 2 --gradient_checkpointing true \\",
            "  --gradient_checkpointing_kwargs '{\"every_n_layers\": 2}' --optim adamw_torch",
        )
    )
    reading = reading_of(tmp_path, command, "run.sh", ranks=RANKS, hidden_size=4096)
    said = stated_training(reading, "llama")
    assert (said["kernels"], said["loss"], said["activation_checkpointing"]) == ("fused", "fused", "full")
    assert said["optimizer"] == {"kind": "adamw", "fused": False}
    remarks = settled_plan(reading, load_cluster(MACHINE, []), workload()).remarks
    assert [(each.path, each.line) for each in remarks] == [("gradient_checkpointing_kwargs", 3)]


def test_kernels_of_no_family_are_none():
    assert kernels_and_loss(TrainerArguments(use_liger_kernel=True), "") == {}


@pytest.mark.engine
def test_the_trainer_has_these_arguments_with_these_defaults():
    (answer,) = asked(["defaults", [name for name in ARGUMENTS if name != "deepspeed"]])
    theirs = answer["answer"]
    for field in fields(TrainerArguments):
        if field.name in theirs:
            assert theirs[field.name] == field.default, field.name
    assert set(theirs) == set(ARGUMENTS) - {"deepspeed"}


@pytest.mark.engine
def test_the_trainer_knows_the_optimizers():
    """All but those of releases before 5."""
    (answer,) = asked(["optimizers"])
    assert set(OPTIM) - set(answer["answer"]) == {"adamw_hf", "adamw_apex_fused"}
