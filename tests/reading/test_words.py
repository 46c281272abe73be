"""Arguments of the Trainer that nothing takes, and values that are none."""

import ast
import inspect
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from reading.asking import reading_of

from ziplan.runtimes.deepspeed.reading import checks
from ziplan.runtimes.deepspeed.reading.computed import OPTIM, compiles
from ziplan.runtimes.deepspeed.reading.walk import SECTIONS
from ziplan.runtimes.deepspeed.reading.words import BACKENDS, MODES, OF_CHECKPOINT, OPTIMIZERS

ZERO = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "zero_optimization": {"stage": 3},
}
WHOLE = {"per_device_train_batch_size": 2, "deepspeed": ZERO}


def read(folder, text, name="args.json"):
    return reading_of(folder, text, name, ranks=8, hidden_size=4096)


@pytest.mark.parametrize(
    ("arguments", "kind", "path", "said"),
    [
        ({"optim": "nonsense"}, "rejected", "optim", "none that there is"),
        ({"optim": ""}, "rejected", "optim", "''"),
        ({"optim": "adamw_tork"}, "rejected", "optim", "adamw_tork"),
        ({"torch_compile_backend": ""}, "rejected", "torch_compile_backend", "''"),
        ({"torch_compile_mode": "fast"}, "rejected", "torch_compile_mode", "fast"),
        ({"torch_compiled": True}, "ignored", "torch_compiled", "no such argument"),
        ({"gradient_accumulation_step": 4}, "ignored", "gradient_accumulation_step", "no such argument"),
        (
            {"use_liger_kernel": True, "liger_kernel_config": {"ropes": False}},
            "ignored",
            "liger_kernel_config.ropes",
            "no such kernel",
        ),
        (
            {"use_liger_kernel": True, "liger_kernel_config": {"rope": "false"}},
            "ignored",
            "liger_kernel_config.rope",
            "takes as on",
        ),
        (
            {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_rentrant": False}},
            "ignored",
            "gradient_checkpointing_kwargs.use_rentrant",
            "hands it on",
        ),
        (
            {
                "activation_checkpointing": True,
                "activation_checkpointing_kwargs": {"use_reentrant": True, "every": 2},
            },
            "rejected",
            "activation_checkpointing_kwargs.every",
            "raises",
        ),
        ({"per_device_train_batch_size": 0}, "rejected", "per_device_train_batch_size", "at least 1, not 0"),
        (
            {"gradient_accumulation_steps": -2},
            "rejected",
            "gradient_accumulation_steps",
            "at least 1, not -2",
        ),
        ({"dataloader_num_workers": -2}, "rejected", "dataloader_num_workers", "at least 0, not -2"),
        ({"learning_rate": float("nan"), "seed": 1}, "rejected", "learning_rate", "a number, not NaN"),
    ],
)
def test_what_nothing_takes_is_told(tmp_path, arguments, kind, path, said):
    reading = read(tmp_path, {**WHOLE, **arguments})
    remarks = [remark for remark in reading.remarks if remark.kind != "derived"]
    assert [(remark.kind, remark.path) for remark in remarks] == [(kind, path)]
    assert said in remarks[0].message
    assert remarks[0].fix
    assert remarks[0].line > 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"torch_compile": None, "bf16": None, "use_liger_kernel": None},
        {"torch_compile_backend": "Inductor", "torch_compile_mode": "max-autotune"},
        {"optim": "paged_lion_8bit"},
        {"use_liger_kernel": False, "liger_kernel_config": {"ropes": False}},
        {"gradient_checkpointing_kwargs": {"use_rentrant": False}},
        {"model_name_or_path": "here", "max_seq_length": 512, "enable_liger_kernel": True},
    ],
)
def test_what_the_trainer_takes_and_what_is_the_scripts_own_is_not(tmp_path, arguments):
    reading = read(tmp_path, {**WHOLE, **arguments})
    assert {remark.kind for remark in reading.remarks} <= {"derived"}


def test_kwargs_as_a_text_are_taken_as_the_trainer_takes_them(tmp_path):
    kwargs = '{"use_reentrant": "False", "every_n_layers": "2"}'
    reading = read(tmp_path, {**WHOLE, "gradient_checkpointing_kwargs": kwargs})
    assert reading.arguments.checkpointing_kwargs == {"use_reentrant": False, "every_n_layers": 2}


def test_what_is_planned_and_what_is_said_of_compilation_agree(tmp_path):
    for backend, compiled in (("inductor", True), ("eager", False), ("no", False)):
        reading = read(tmp_path, {**WHOLE, "torch_compile_backend": backend})
        assert compiles(reading.arguments) == compiled


def test_every_wrong_value_has_a_fix(tmp_path):
    """Of every key of every section, and of all that is looked up at the top."""
    for section in SECTIONS.values():
        for key in section.keys:
            for value in ("?", -7.5, [None], {"?": None}, None):
                config = {"train_batch_size": 8}
                inner = config
                for name in section.path.split(".") if section.path else []:
                    inner = inner.setdefault(name, {})
                inner[key.name] = value
                _all_have_fixes(reading_of(tmp_path, config, ranks=8, trainer="none"), config)
    for name in checks.CHECKS:
        for value in ("?", -7.5, [None], {"?": None}):
            config = {"train_batch_size": 8, name: value}
            _all_have_fixes(reading_of(tmp_path, config, ranks=8, trainer="none"), config)


def _all_have_fixes(reading, config):
    for remark in reading.remarks:
        assert remark.kind != "rejected" or remark.fix, (remark.message, json.dumps(config))


def _source(module, path):
    folder = Path(find_spec(module).origin).parent
    return ast.parse((folder / path).read_text())


def _class(tree, name):
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def _values(members):
    return {node.value.value for node in members if isinstance(node, ast.Assign)}


@pytest.mark.engine
def test_the_words_are_those_of_the_real_classes(tmp_path):
    arguments = _source("transformers", "training_args.py")
    assert _values(_class(arguments, "OptimizerNames").body) <= OPTIMIZERS
    assert set(OPTIM) <= OPTIMIZERS
    backends = _class(_source("accelerate", "utils/dataclasses.py"), "DynamoBackend")
    assert {value.lower() for value in _values(backends.body)} <= set(BACKENDS)
    fields = [
        node.target.id for node in _class(arguments, "TrainingArguments").body if hasattr(node, "target")
    ]
    assert len(fields) > 100
    reading = read(tmp_path, {**dict.fromkeys(fields), **WHOLE})
    assert "ignored" not in {remark.kind for remark in reading.remarks}


@pytest.mark.engine
def test_the_words_of_pytorch_are_its_own():
    from torch._inductor import list_mode_options
    from torch.utils.checkpoint import checkpoint

    assert set(list_mode_options()) <= set(MODES)
    named = [
        name
        for name, each in inspect.signature(checkpoint).parameters.items()
        if each.kind == each.KEYWORD_ONLY
    ]
    assert set(named) <= set(OF_CHECKPOINT)
