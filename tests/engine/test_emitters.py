"""Emitted files, read by those who read them in a run: DeepSpeed, accelerate, transformers, torchrun."""

import inspect
import json
import os
import shlex
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from runtimes.drawn import machines, situations, workloads
from runtimes.toy import cluster, plan, workload

from ziplan.plan import Checkpointing, Plan
from ziplan.runtimes import deepspeed as emitter

# Importing DeepSpeed and transformers warns of their own deprecations.
pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PRECISIONS = ("bf16", "fp16", "fp32")
HOMES = {
    "on the GPU": {},
    "stage 2, optimizer on the host": {"zero_stage": 2.0, "optimizer": "dram"},
    "on the host": {"params": "dram", "optimizer": "dram"},
    "on NVMe": {"params": "nvme", "optimizer": "nvme"},
}


@st.composite
def plans(draw):
    """(machine, workload, settled plan) in every precision."""
    machine = draw(machines())
    work = replace(draw(workloads()), precision=draw(st.sampled_from(PRECISIONS)))
    fields = {"dp_degree": float(machine.gpu_count)}
    for axis in emitter.axes(machine, work, code_changes=True):
        fields |= draw(st.sampled_from(axis.choices))
    fields["micro_batch_size"] = float(draw(st.sampled_from([1, 2, 3, 16])))
    fields["accumulation_steps"] = float(draw(st.sampled_from([1, 2, 8])))
    return machine, work, emitter.settle(machine, work, Plan(**fields))


def emitted(trainer, precision="bf16", nodes=1, gpus=1, kind="adamw", training=(), **fields):
    """Files of a plan by hand, with settings of the optimizer that are nobody's defaults."""
    optimizer = {"learning_rate": 3e-4, "weight_decay": 0.1, "beta1": 0.85, "beta2": 0.95, "epsilon": 1e-7}
    work = workload(precision=precision, optimizer={**optimizer, "kind": kind}, **dict(training))
    fields = {"dp_degree": float(nodes * gpus), "micro_batch_size": 3.0, "accumulation_steps": 2.0, **fields}
    machine = cluster(nodes=nodes, gpus=gpus)
    return emitter.emit(machine, work, emitter.settle(machine, work, plan(**fields)), trainer=trainer)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, in an environment that launchers may change."""
    monkeypatch.chdir(tmp_path)
    with mock.patch.dict(os.environ):
        yield tmp_path


def write(folder, files):
    for name, text in files.items():
        (folder / name).write_text(text)


# DeepSpeed.


def known_keys():
    """Keys that DeepSpeed looks up in sections that it does not check itself, by section."""
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
    from deepspeed.runtime import constants
    from deepspeed.runtime.activation_checkpointing import config as checkpointing
    from deepspeed.runtime.swap_tensor import constants as swap
    from deepspeed.runtime.zero.config import ZERO_OPTIMIZATION

    adams = [set(inspect.signature(adam.__init__).parameters) for adam in (DeepSpeedCPUAdam, FusedAdam)]
    aio, kept = values(swap, "AIO_"), values(checkpointing, "ACT_CHKPT")
    return {
        "": values(constants) | {ZERO_OPTIMIZATION, swap.AIO, checkpointing.ACT_CHKPT},
        "optimizer": {constants.TYPE, constants.OPTIMIZER_PARAMS},
        "optimizer.params": adams[0] & adams[1],
        "aio": aio,
        "activation_checkpointing": kept,
        "data_types": {constants.GRAD_ACCUM_DTYPE},
    }


def values(module, prefix=""):
    named = {
        name: value for name, value in vars(module).items() if name.startswith(prefix) and name.isupper()
    }
    return {value for value in named.values() if isinstance(value, str) and value != "auto"}


def unknown_keys(document, known):
    sections = dict.fromkeys(known, document)
    for name in known:
        for part in filter(None, name.split(".")):
            sections[name] = sections[name].get(part, {})
    return {
        f"{name}.{key}" for name, section in sections.items() for key in section if key not in known[name]
    }


def parsed(document, world):
    """The config as DeepSpeed takes it on so many ranks; the document stays as it is."""
    from deepspeed.runtime import config

    ranks = SimpleNamespace(get_rank=lambda: 0, get_world_size=lambda *_: world)
    with mock.patch.object(config, "dist", ranks):
        return config.DeepSpeedConfig(json.loads(json.dumps(document)))


@settings(derandomize=True, max_examples=150, deadline=None)
@given(plans())
def test_deepspeed_takes_every_config(situation):
    machine, work, chosen = situation
    text = emitter.emit(machine, work, chosen)["ds_config.json"]
    document, world = json.loads(text), machine.gpu_count
    assert "auto" not in text
    assert unknown_keys(document, known_keys()) == set()
    config = parsed(document, world)
    assert config.world_size == world
    assert config.train_micro_batch_size_per_gpu == chosen.micro_batch_size
    assert config.gradient_accumulation_steps == chosen.accumulation_steps
    assert config.zero_config.stage == chosen.zero_stage
    assert config.bfloat16_config.enabled == (work.precision == "bf16")
    assert config.float16_config.enabled == (work.precision == "fp16")


def test_what_is_unknown_would_be_found():
    from deepspeed.runtime.config import DeepSpeedConfigError

    document = json.loads(emitted("none", params="nvme", optimizer="nvme")["ds_config.json"])
    for section in ("", "optimizer.params", "aio"):
        spoiled = json.loads(json.dumps(document))
        inner = spoiled
        for part in filter(None, section.split(".")):
            inner = inner[part]
        inner["thread_count"] = 2
        assert unknown_keys(spoiled, known_keys()) == {f"{section}.thread_count"}
    spoiled = {**document, "zero_optimization": {**document["zero_optimization"], "stage3_bucket": 1}}
    with pytest.raises((ValueError, DeepSpeedConfigError), match="stage3_bucket"):
        parsed(spoiled, 1)
    with pytest.raises(AssertionError, match="train_batch_size"):
        parsed(document, 2)


# accelerate.


def launched(folder, files):
    """What accelerate's launcher makes of the emitted line: its arguments, and its variables if they pass."""
    from accelerate.commands import launch
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    write(folder, files)
    (line,) = (x for x in files["launch_accelerate.sh"].splitlines() if x.startswith("accelerate launch"))
    for name, value in (("$NODE_RANK", "0"), ("$HEAD_NODE", "first")):
        line = line.replace(name, value)
    arguments = launch.launch_command_parser().parse_args(shlex.split(line)[2:])
    with mock.patch.object(launch, "deepspeed_launcher") as launcher:
        launch.launch_command(arguments)
    (made,) = launcher.call_args.args
    with mock.patch("accelerate.utils.launch.is_port_in_use", return_value=False):
        command, environment = prepare_deepspeed_cmd_env(made)
    assert command is None, "torch's launcher starts the ranks of a node"
    return made, environment


def plugin(environment):
    """accelerate's plugin as `Accelerator()` makes it under these variables."""
    from accelerate import DeepSpeedPlugin

    with mock.patch.dict(os.environ, environment):
        made = DeepSpeedPlugin()
        made.set_mixed_precision(environment.get("ACCELERATE_MIXED_PRECISION", "no"))
    return made


def check_plugin(made, document, world):
    """Nothing of the plan's config is changed, and DeepSpeed takes what accelerate adds to it."""
    config = made.deepspeed_config
    assert {key: config[key] for key in document} == document
    assert set(config) - set(document) <= {"steps_per_print", "fp16", "bf16"}
    assert made.zero_stage == document["zero_optimization"]["stage"]
    assert made.zero3_init_flag is (made.zero_stage == 3)
    assert made.gradient_accumulation_steps == document["gradient_accumulation_steps"]
    del config["steps_per_print"]  # infinite, which is accelerate's own
    again = parsed(config, world)
    assert again.bfloat16_config.enabled == ("bf16" in document)
    assert again.float16_config.enabled == ("fp16" in document)


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("nodes", [1, 2])
def test_accelerate_launches_the_plan(folder, nodes, precision, home):
    files = emitted("accelerate", precision, nodes, 8, **HOMES[home])
    arguments, environment = launched(folder, files)
    assert (arguments.num_machines, int(arguments.nproc_per_node)) == (nodes, 8)
    assert arguments.use_deepspeed
    assert environment["ACCELERATE_DEEPSPEED_CONFIG_FILE"] == "ds_config.json"
    check_plugin(plugin(environment), json.loads(files["ds_config.json"]), 8 * nodes)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_other_launchers_tell_accelerate_the_same(folder, precision):
    """The exports of launch.sh and launch_torchrun.sh."""
    files = emitted("accelerate", precision, 1, 8)
    write(folder, files)
    for name in ("launch.sh", "launch_torchrun.sh"):
        exports = [x for x in files[name].splitlines() if x.startswith("export ACCELERATE_")]
        environment = dict(line.removeprefix("export ").split("=", 1) for line in exports)
        assert environment["ACCELERATE_USE_DEEPSPEED"] == "true"
        check_plugin(plugin(environment), json.loads(files["ds_config.json"]), 8)


@pytest.mark.parametrize("kernels", ["eager", "compiled"])
def test_accelerate_compiles_layers_where_that_was_planned(folder, kernels):
    """Its own launcher reads no `dynamo_config` under DeepSpeed, and hands on the environment."""
    from accelerate.utils import TorchDynamoPlugin

    files = emitted("accelerate", training={"kernels": kernels})
    for name in ("launch.sh", "launch_torchrun.sh", "launch_accelerate.sh"):
        lines = [x for x in files[name].splitlines() if x.startswith("export ACCELERATE_")]
        exports = dict(line.removeprefix("export ").split("=", 1) for line in lines)
        with mock.patch.dict(os.environ, exports):
            environment = launched(folder, files)[1] if name == "launch_accelerate.sh" else exports
            with mock.patch.dict(os.environ, environment):
                made = TorchDynamoPlugin()
        wanted = ("INDUCTOR", True) if kernels == "compiled" else ("NO", False)
        assert (made.backend.value, made.use_regional_compilation) == wanted


@pytest.mark.parametrize("key", ["mixed_precision", "gradient_accumulation_steps", "zero_stage"])
def test_accelerate_refuses_what_is_said_twice(folder, key):
    """Why its config leaves these out."""
    files = emitted("accelerate")
    document = yaml.safe_load(files["accelerate_config.yaml"])
    section = document if key == "mixed_precision" else document["deepspeed_config"]
    section[key] = "bf16" if key == "mixed_precision" else 2
    _, environment = launched(folder, {**files, "accelerate_config.yaml": yaml.safe_dump(document)})
    with pytest.raises(ValueError, match="will be ignored"):
        plugin(environment)


# transformers.


@pytest.fixture
def trainer_arguments(folder, monkeypatch):
    """Reads emitted arguments as on so many ranks, with GPUs that have bf16."""
    from accelerate.state import AcceleratorState, PartialState
    from transformers import HfArgumentParser, TrainingArguments
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    def read(files, world):
        write(folder, files)
        monkeypatch.setattr("transformers.training_args.is_torch_bf16_gpu_available", lambda: True)
        # As if the ranks had met: their number is all that is read of them here.
        monkeypatch.setattr(TrainingArguments, "_setup_devices", "cpu")
        monkeypatch.setattr(TrainingArguments, "world_size", world)
        return HfArgumentParser(TrainingArguments).parse_json_file("trainer_args.json")[0]

    yield read
    unset_hf_deepspeed_config()
    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState._reset_state()


@pytest.mark.parametrize("checkpointing", [Checkpointing.NONE, Checkpointing.FULL])
@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_trainer_agrees_with_the_config(trainer_arguments, precision, home, checkpointing):
    files = emitted("huggingface", precision, 2, 8, activation_checkpointing=checkpointing, **HOMES[home])
    arguments = trainer_arguments(files, 16)
    document, config = json.loads(files["ds_config.json"]), arguments.hf_deepspeed_config
    assert "auto" not in files["trainer_args.json"]
    config.trainer_config_finalize(arguments, model=None, num_training_steps=100)
    assert config.mismatches == []
    assert str(config.dtype()) == {"bf16": "torch.bfloat16", "fp16": "torch.float16"}.get(
        precision, "torch.float32"
    )
    assert arguments.mixed_precision == ("no" if precision == "fp32" else precision)
    assert arguments.learning_rate == 3e-4
    recomputes = checkpointing == Checkpointing.FULL
    assert arguments.gradient_checkpointing is recomputes
    assert arguments.gradient_checkpointing_kwargs == ({"use_reentrant": False} if recomputes else None)
    arguments.deepspeed_plugin.set_mixed_precision(arguments.mixed_precision)
    check_plugin(arguments.deepspeed_plugin, document, 16)


@pytest.mark.parametrize(
    ("training", "backend", "liger"),
    [
        ({}, None, False),
        ({"kernels": "compiled"}, "inductor", False),
        ({"kernels": "fused", "loss": "fused"}, None, True),
        ({"kernels": "compiled", "loss": "fused"}, "inductor", True),
    ],
)
def test_the_trainer_takes_the_kernels(trainer_arguments, training, backend, liger, monkeypatch):
    monkeypatch.setattr("ziplan.runtimes.shared.said.OF_LIGER", {workload().model.family})
    arguments = trainer_arguments(emitted("huggingface", training=training), 1)
    assert arguments.torch_compile is (backend is not None)
    assert arguments.torch_compile_backend == backend  # what the Trainer has accelerate compile with
    assert arguments.use_liger_kernel is liger
    assert (arguments.liger_kernel_config is not None) == liger


@pytest.mark.parametrize("kind", ["lion", "sgd", "adafactor", "adamw_8bit"])
def test_the_trainer_and_accelerate_agree_on_other_optimizers(trainer_arguments, kind):
    files = emitted("huggingface", "bf16", 2, 8, kind)
    arguments, document = trainer_arguments(files, 16), json.loads(files["ds_config.json"])
    arguments.hf_deepspeed_config.trainer_config_finalize(arguments, model=None, num_training_steps=100)
    assert arguments.hf_deepspeed_config.mismatches == []
    assert (arguments.optim == "adamw_bnb_8bit") == ("optimizer" not in document) == (kind == "adamw_8bit")
    arguments.deepspeed_plugin.set_mixed_precision("bf16")
    check_plugin(arguments.deepspeed_plugin, document, 16)


@pytest.mark.parametrize("kind", ["adamw", "lion", "sgd", "adafactor", "adamw_8bit"])
@pytest.mark.parametrize("master", ["fp32", "bf16"])
def test_deepspeed_takes_every_optimizer_and_precision_of_its_state(kind, master):
    if master == "bf16" and kind != "adamw":
        return
    work = workload(precision="bf16", master_precision=master, optimizer={"kind": kind})
    chosen = emitter.settle(cluster(gpus=2), work, plan(dp_degree=2.0))
    document = json.loads(emitter.emit(cluster(gpus=2), work, chosen)["ds_config.json"])
    assert unknown_keys(document, known_keys()) == set()
    config = parsed(document, 2)
    assert config.zero_allow_untested_optimizer == (kind not in ("adamw", "lion"))
    assert config.bfloat16_config.bf16_master_weights_and_grads == (master == "bf16")
    assert config.bfloat16_config.bf16_optimizer_states == (master == "bf16")


SPOILED = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 1,
    "max_grad_norm": 0.5,
    "learning_rate": 1e-5,
    "adam_beta1": 0.9,
    "adam_epsilon": 1e-8,
    "weight_decay": 0.0,
    "bf16": False,
}


@pytest.mark.parametrize("key", SPOILED)
def test_the_trainers_check_sees_each_of_them(trainer_arguments, key):
    files = emitted("huggingface", "bf16", 2, 8)
    spoiled = {**json.loads(files["trainer_args.json"]), key: SPOILED[key]}
    arguments = trainer_arguments({**files, "trainer_args.json": json.dumps(spoiled)}, 16)
    with pytest.raises(ValueError, match=key[:10]):
        arguments.hf_deepspeed_config.trainer_config_finalize(arguments, None, 100)


def test_the_trainers_check_sees_another_number_of_ranks(trainer_arguments):
    arguments = trainer_arguments(emitted("huggingface", "bf16", 2, 8), 8)
    with pytest.raises(ValueError, match="train_batch_size"):
        arguments.hf_deepspeed_config.trainer_config_finalize(arguments, None, 100)


# Launchers.


def command(text, program):
    (line,) = (x for x in text.splitlines() if x.startswith(f"{program} "))
    return shlex.split(line.replace("$HEAD_NODE", "first"))[1:]


@settings(derandomize=True, max_examples=40, deadline=None)
@given(situations(("deepspeed",)), st.sampled_from(["none", "accelerate"]))
def test_launchers_parse_their_lines(situation, trainer):
    from deepspeed.launcher.runner import parse_args
    from torch.distributed.run import get_args_parser

    _, machine, work, chosen = situation
    files = emitter.emit(machine, work, chosen, trainer=trainer)
    own = parse_args(command(files["launch.sh"], "deepspeed"))
    assert own.num_gpus * max(1, own.num_nodes) == machine.gpu_count
    assert own.user_script == "train.py"
    assert own.user_args == (
        [] if trainer != "none" else ["--deepspeed", "--deepspeed_config", "ds_config.json"]
    )
    if trainer == "none":
        return
    torch = get_args_parser().parse_args(command(files["launch_torchrun.sh"], "torchrun"))
    assert int(torch.nproc_per_node) * int(torch.nnodes.split(":")[-1]) == machine.gpu_count
    assert torch.training_script == "train.py"


def test_deepspeeds_launcher_exports_no_allocator_settings_by_itself():
    """Why there is a `.deepspeed_env`, which it reads."""
    from deepspeed.launcher import multinode_runner, runner

    files = emitted("none", nodes=2, gpus=8, optimizer="dram")
    assert not any("PYTORCH_ALLOC_CONF".startswith(name) for name in [*runner.EXPORT_ENVS, "NCCL"])
    assert runner.DEEPSPEED_ENVIRONMENT_NAME in files
    made = multinode_runner.PDSHRunner(parsed_line(files), "")
    for line in files[runner.DEEPSPEED_ENVIRONMENT_NAME].splitlines(keepends=True):
        made.add_export(*line.split("=", maxsplit=1))
    value = "expandable_segments:True,pinned_max_round_threshold_mb:1"
    assert made.exports["PYTORCH_ALLOC_CONF"] == value


def parsed_line(files):
    from deepspeed.launcher.runner import parse_args

    return parse_args(command(files["launch.sh"], "deepspeed"))
