"""DeepSpeed's own classes asked about configs, in a process of their own: JSON in, JSON out.

Run as `python judge.py` with a list of questions on stdin: each names a function below and its arguments.
"""

import contextlib
import io
import json
import sys
import warnings


def deepspeed_config(config, ranks):
    """What `DeepSpeedConfig` makes of a mapping, or what it raises."""
    from deepspeed.runtime import config as module

    module.dist.get_rank = lambda: 0
    module.dist.get_world_size = lambda *_: ranks
    read = module.DeepSpeedConfig(config)
    zero, fp16, bf16 = read.zero_config, read.float16_config, read.bfloat16_config
    return {
        "batch": [
            read.train_batch_size,
            read.train_micro_batch_size_per_gpu,
            read.gradient_accumulation_steps,
        ],
        "zero": zero.model_dump(mode="json", by_alias=True),
        "fp16": fp16.model_dump(mode="json"),
        "bf16": bf16.model_dump(mode="json"),
        "aio": read.aio_config,
        "gradient_clipping": read.gradient_clipping,
        "grad_accum_dtype": read.grad_accum_dtype,
    }


def sections():
    """Every field of every pydantic section: spellings, default, bounds, annotation."""
    from importlib import import_module

    found = {}
    for path, (module, name) in CLASSES.items():
        model = getattr(import_module(f"deepspeed.{module}"), name)
        found[path] = {
            field: {
                "alias": info.alias,
                "default": _plain(info.get_default(call_default_factory=True)),
                "bounds": dict(_bound(mark) for mark in info.metadata),
                "annotation": str(info.annotation),
                "deprecated": (info.json_schema_extra or {}).get("new_param"),
            }
            for field, info in model.model_fields.items()
        }
    return found


CLASSES = {
    "zero_optimization": ("runtime.zero.config", "DeepSpeedZeroConfig"),
    "zero_optimization.offload_param": ("runtime.zero.offload_config", "DeepSpeedZeroOffloadParamConfig"),
    "zero_optimization.offload_optimizer": (
        "runtime.zero.offload_config",
        "DeepSpeedZeroOffloadOptimizerConfig",
    ),
    "zero_optimization.zenflow": ("runtime.zenflow.zenflow_config", "ZenFlowConfig"),
    "zero_optimization.leaf_module": ("runtime.zero.leaf_module_config", "DeepSpeedZeroLeafModuleConfig"),
    "fp16": ("runtime.precision_config", "DeepSpeedFP16Config"),
    "bf16": ("runtime.precision_config", "DeepSpeedBF16Config"),
    "bfloat16": ("runtime.precision_config", "DeepSpeedBF16Config"),
    "compile": ("compile.config", "CompileConfig"),
    "hybrid_engine": ("runtime.config", "HybridEngineConfig"),
    "comms_logger": ("comm.config", "CommsLoggerConfig"),
    "tensorboard": ("monitor.config", "TensorBoardConfig"),
    "csv_monitor": ("monitor.config", "CSVConfig"),
    "wandb": ("monitor.config", "WandbConfig"),
    "comet": ("monitor.config", "CometConfig"),
    "timers.throughput": ("utils.config", "DeepSpeedThroughputTimerConfig"),
    "weight_quantization": ("inference.config", "WeightQuantConfig"),
    "tensor_parallel": ("runtime.tensor_parallel.config", "TPTrainingConfig"),
    "tensor_parallel.tp": ("runtime.tensor_parallel.config", "TPConfig"),
}


def _bound(mark):
    return next((name, getattr(mark, name)) for name in ("gt", "ge", "lt", "le") if hasattr(mark, name))


def _plain(value):
    from enum import Enum

    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "model_dump"):
        return None
    return value if value is None or isinstance(value, bool | int | float | str | list | dict) else str(value)


class Asked(dict):
    """A mapping that notes what it is asked for, under its path."""

    asked = {}  # noqa: RUF012

    def __init__(self, path, **inside):
        super().__init__(inside)
        self.path = path

    def _note(self, key):
        self.asked.setdefault(self.path, set()).add(key)
        return key

    def get(self, key, default=None):
        return super().get(self._note(key), default)

    def __getitem__(self, key):
        return super().__getitem__(self._note(key))

    def __contains__(self, key):
        return super().__contains__(self._note(key))

    def keys(self):
        return KeysOf(self)

    def __copy__(self):
        return Asked(self.path, **self)


class KeysOf:
    """The keys of a mapping: asking whether one is there is a look-up too."""

    def __init__(self, mapping):
        self.mapping = mapping

    def __contains__(self, key):
        return key in self.mapping

    def __iter__(self):
        return dict.__iter__(self.mapping)


def lookups():
    """The keys that `DeepSpeedConfig` asks each mapping of the config for, that no class reads."""
    from deepspeed.runtime.config import DeepSpeedConfig

    names = ("aio", "activation_checkpointing", "data_types", "torch_autocast", "scheduler", "flops_profiler")
    inside = {name: Asked(name) for name in names}
    inside["scheduler"] = Asked("scheduler", type="WarmupLR")
    inside["optimizer"] = Asked("optimizer", type="Adam")
    writer, parallel = Asked("checkpoint.writer"), Asked("checkpoint.parallel_write")
    inside["checkpoint"] = Asked("checkpoint", writer=writer, parallel_write=parallel)
    DeepSpeedConfig(Asked("", train_batch_size=1, **inside))
    return {path: sorted(keys) for path, keys in Asked.asked.items()}


def converted(annotation, values):
    """What a pydantic field of an annotation makes of each value; null where it is refused."""
    import typing
    from pathlib import Path

    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.runtime.zero.offload_config import OffloadDeviceEnum
    from pydantic import create_model

    names = {"ZeroStageEnum": ZeroStageEnum, "OffloadDeviceEnum": OffloadDeviceEnum, "Path": Path}
    kind = eval(annotation, {**vars(typing), **names})
    model = create_model("Model", value=(kind, ...))
    found = []
    for value in values:
        try:
            taken = model(value=value).value
            found.append([getattr(taken, "value", str(taken) if isinstance(taken, Path) else taken)])
        except ValueError:
            found.append(None)
    return found


def trainer(config, arguments, ranks, hidden_size):
    """The config that the Hugging Face Trainer and accelerate hand to DeepSpeed."""
    from types import SimpleNamespace

    from accelerate.utils import DeepSpeedPlugin, DummyOptim
    from transformers import TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    defaults = {field: TrainingArguments.__dataclass_fields__[field].default for field in ARGUMENTS}
    args = SimpleNamespace(**{**defaults, **arguments}, world_size=ranks)
    args.get_warmup_steps = lambda steps: TrainingArguments.get_warmup_steps(args, steps)
    read = HfTrainerDeepSpeedConfig(config)
    read.trainer_config_process(args)
    plugin = DeepSpeedPlugin(hf_ds_config=read)
    plugin.set_mixed_precision("bf16" if args.bf16 else "fp16" if args.fp16 else "no")
    model = _model(hidden_size)
    read.trainer_config_finalize(args, model, args.max_steps)
    optimizer = [DummyOptim([])] if "optimizer" in read.config else []
    return _prepared(plugin, ranks, args.gradient_accumulation_steps, model, *optimizer)


ARGUMENTS = (
    *("per_device_train_batch_size", "gradient_accumulation_steps", "max_grad_norm", "learning_rate"),
    *("adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay", "bf16", "fp16", "bf16_full_eval"),
    *("fp16_full_eval", "max_steps", "warmup_steps", "save_on_each_node"),
)


def defaults(names):
    """Defaults of the Trainer's arguments; those that it does not have are left out."""
    from transformers import TrainingArguments

    has = TrainingArguments.__dataclass_fields__
    return {name: getattr(has[name].default, "value", has[name].default) for name in names if name in has}


def optimizers():
    """Names that the Trainer's `optim` takes."""
    from transformers.training_args import OptimizerNames

    return [each.value for each in OptimizerNames]


def accelerate(config, plugin, precision, ranks, hidden_size, batch_size, steps):
    """The config that accelerate hands to DeepSpeed for a script with a data loader of its own."""
    from accelerate.utils import DeepSpeedPlugin, DummyOptim, DummyScheduler
    from torch.utils.data import DataLoader

    made = DeepSpeedPlugin(hf_ds_config=config, **plugin)
    made.set_mixed_precision(precision)
    objects = [DataLoader(list(range(8)), batch_size=batch_size)]
    optimizer = DummyOptim([], lr=1e-3, weight_decay=0.1)
    objects += [optimizer] if "optimizer" in (config or {}) else []
    schedule = DummyScheduler(optimizer, total_num_steps=100, warmup_num_steps=10)
    objects += [schedule] if "scheduler" in (config or {}) else []
    return _prepared(made, ranks, steps, _model(hidden_size), *objects)


def plugin(arguments, precision):
    """The config that accelerate's plugin makes without a DeepSpeed config."""
    from accelerate.utils import DeepSpeedPlugin

    made = DeepSpeedPlugin(**arguments)
    made.set_mixed_precision(precision)
    config = dict(made.deepspeed_config)
    config.pop("steps_per_print", None)
    return config


def handed_on(path):
    """What `accelerate launch` hands its processes of a config of its own."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    arguments = launch_command_parser().parse_args(["--config_file", path, "train.py"])
    arguments, _, _ = _validate_launch_command(arguments)
    arguments.deepspeed_fields_from_accelerate_config = ""
    _, environment = prepare_deepspeed_cmd_env(arguments)
    return {name: value for name, value in environment.items() if name.startswith("ACCELERATE_")}


def _model(hidden_size):
    from types import SimpleNamespace

    import torch

    model = torch.nn.Linear(1, 1)
    model.config = SimpleNamespace(hidden_size=hidden_size)
    return model


class _Captured(Exception):
    """What accelerate was about to start DeepSpeed with."""


def _prepared(plugin, ranks, steps, *objects):
    """`Accelerator._prepare_deepspeed`, up to the call of DeepSpeed."""
    from types import SimpleNamespace

    import deepspeed
    from accelerate import Accelerator, PartialState

    PartialState(cpu=True)

    def capture(**arguments):
        raise _Captured(arguments["config_params"])

    deepspeed.initialize = capture
    self = SimpleNamespace(
        fp8_backend=None,
        deepspeed_plugin=plugin,
        parallelism_config=None,
        split_batches=False,
        num_processes=ranks,
        gradient_accumulation_steps=steps,
        device=SimpleNamespace(type="cuda"),
        _prepare_one=lambda thing, first_pass: thing,
    )
    try:
        Accelerator._prepare_deepspeed(self, *objects)
    except _Captured as found:
        (config,) = found.args
        config.pop("steps_per_print", None)
        return config
    raise AssertionError("DeepSpeed was not started")


def answer(question):
    """The answer, or the exception's name and message."""
    name, *arguments = question
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return {"answer": globals()[name](*arguments)}
    except Exception as error:  # noqa: BLE001
        return {"error": type(error).__name__, "message": str(error)[:2000]}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    import logging

    logging.disable(logging.CRITICAL)
    questions = json.load(sys.stdin)
    json.dump([answer(question) for question in questions], sys.stdout)
