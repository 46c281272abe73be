"""accelerate: its config file, and what its plugin and `prepare` make of a DeepSpeed config.

`accelerate/utils/dataclasses.py:DeepSpeedPlugin` and `accelerate/accelerator.py:_prepare_deepspeed`, 1.15.
The Trainer passes through the same two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ziplan.files import Document, nearest
from ziplan.runtimes.deepspeed.reading import kinds
from ziplan.runtimes.deepspeed.reading.fill import Filler
from ziplan.runtimes.deepspeed.reading.huggingface import fill_hidden_size
from ziplan.runtimes.deepspeed.reading.kinds import AUTO, Kind, WrongValueError, unexpected
from ziplan.runtimes.deepspeed.reading.remarks import Notes

PRECISIONS = ("no", "fp16", "bf16", "fp8")
DEFAULT_STAGE = 2
"""Of the plugin, where neither its config nor a DeepSpeed config states one."""


@dataclass(frozen=True)
class Plugin:
    """The `deepspeed_config` section of accelerate's config, and its `mixed_precision`."""

    deepspeed_config_file: str | None = None
    zero_stage: int | None = None
    gradient_accumulation_steps: int | None = None
    gradient_clipping: float | None = None
    offload_optimizer_device: str | None = None
    offload_param_device: str | None = None
    offload_optimizer_nvme_path: str | None = None
    offload_param_nvme_path: str | None = None
    zero3_init_flag: bool | None = None
    zero3_save_16bit_model: bool | None = None
    mixed_precision: str | None = None


_KINDS: Mapping[str, Kind] = {
    "zero_stage": kinds.INT,
    "gradient_accumulation_steps": kinds.INT,
    "gradient_clipping": kinds.FLOAT,
    "zero3_init_flag": kinds.BOOL,
    "zero3_save_16bit_model": kinds.BOOL,
}
LAUNCHER_KEYS = (
    "deepspeed_multinode_launcher",
    "deepspeed_hostfile",
    "deepspeed_exclusion_filter",
    "deepspeed_inclusion_filter",
    "deepspeed_moe_layer_cls_names",
)
FILE_DECIDES = (
    *("gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device"),
    *("offload_param_device", "offload_param_nvme_path", "offload_optimizer_nvme_path"),
    *("zero3_save_16bit_model", "mixed_precision"),
)
"""Settings that accelerate refuses beside a DeepSpeed config file (`_deepspeed_config_checks`)."""


def plugin_of(document: Document, notes: Notes) -> Plugin:
    """The plugin's settings as an accelerate config states them."""
    section = document.data.get("deepspeed_config") or {}
    if not isinstance(section, dict):
        notes.refuse(("deepspeed_config",), unexpected("a mapping", section))
        section = {}
    given: dict[str, Any] = {}
    known = [field.name for field in fields(Plugin) if field.name != "mixed_precision"]
    for name, value in section.items():
        path = ("deepspeed_config", name)
        if name in known and value is not None:
            try:
                given[name] = _KINDS.get(name, kinds.TEXT).take(value)
            except WrongValueError as error:
                notes.refuse(path, error)
        elif name not in known and name not in LAUNCHER_KEYS:
            message = f"{name}: accelerate hands no such setting to DeepSpeed"
            notes.add("ignored", path, message, nearest(name, (*known, *LAUNCHER_KEYS)) or "leave it out")
    precision = document.data.get("mixed_precision")
    if precision is not None and str(precision).lower() not in PRECISIONS:
        notes.refuse(("mixed_precision",), unexpected(" or ".join(PRECISIONS), precision))
    elif precision is not None:
        given["mixed_precision"] = str(precision).lower()
    return Plugin(**given)


def refuse_beside_file(plugin: Plugin, notes: Notes) -> None:
    """accelerate raises where its config says what the DeepSpeed config file says."""
    for name in FILE_DECIDES:
        if getattr(plugin, name) is not None:
            path = (name,) if name == "mixed_precision" else ("deepspeed_config", name)
            message = f"{name}: accelerate refuses it beside deepspeed_config_file"
            notes.add("rejected", path, message, "leave it out, and say it in the DeepSpeed config")


def made_config(plugin: Plugin, notes: Notes) -> dict[str, Any]:
    """The DeepSpeed config that the plugin makes where there is no file."""
    return {
        "train_batch_size": AUTO,
        "train_micro_batch_size_per_gpu": AUTO,
        "gradient_accumulation_steps": plugin.gradient_accumulation_steps or AUTO,
        "zero_optimization": {
            "stage": DEFAULT_STAGE if plugin.zero_stage is None else plugin.zero_stage,
            "offload_optimizer": _device(plugin, "offload_optimizer", notes),
            "offload_param": _device(plugin, "offload_param", notes),
            "stage3_gather_16bit_weights_on_model_save": bool(plugin.zero3_save_16bit_model),
        },
        "gradient_clipping": AUTO if plugin.gradient_clipping is None else plugin.gradient_clipping,
    }


def _device(plugin: Plugin, name: str, notes: Notes) -> dict[str, Any]:
    """`launch.py:prepare_deepspeed_cmd_env` hands the device on, and not the path."""
    device = str(getattr(plugin, f"{name}_device") or "none").lower()
    if getattr(plugin, f"{name}_nvme_path") is not None:
        path = ("deepspeed_config", f"{name}_nvme_path")
        message = f'{path[1]}: `accelerate launch` does not hand it on; the path becomes "none"'
        notes.add(
            "ignored", path, message, "write a DeepSpeed config file, and name it in deepspeed_config_file"
        )
    return {"device": device, "nvme_path": "none" if device == "nvme" else None}


def fill_in_plugin(filler: Filler, plugin: Plugin) -> None:
    """`DeepSpeedPlugin.__post_init__` with a config."""
    if "gradient_accumulation_steps" not in filler.data:
        filler.set("gradient_accumulation_steps", 1)
        message = "gradient_accumulation_steps: accelerate takes 1 where the DeepSpeed config has none"
        filler.notes.add("derived", ("gradient_accumulation_steps",), message)
    if "zero_optimization" not in filler.data:
        message = "zero_optimization: accelerate refuses a DeepSpeed config without it"
        filler.notes.add("rejected", (), message, "add the section")
    zero, source = "zero_optimization", "accelerate"
    stage = DEFAULT_STAGE if plugin.zero_stage is None else plugin.zero_stage
    filler.fill(f"{zero}.stage", stage, "accelerate's zero_stage")
    for name in ("offload_optimizer", "offload_param"):
        filler.fill(f"{zero}.{name}.device", getattr(plugin, f"{name}_device") or "none", source)
        filler.fill(f"{zero}.{name}.nvme_path", getattr(plugin, f"{name}_nvme_path") or "none", source)
    for key, value in (
        ("gradient_accumulation_steps", plugin.gradient_accumulation_steps),
        ("gradient_clipping", plugin.gradient_clipping),
    ):
        if value is not None:
            filler.fill(key, value, f"accelerate's {key}")
    saves = bool(plugin.zero3_save_16bit_model)
    filler.fill(
        f"{zero}.stage3_gather_16bit_weights_on_model_save", saves, "accelerate's zero3_save_16bit_model"
    )


def fill_precision(filler: Filler, precision: str) -> None:
    """`DeepSpeedPlugin.set_mixed_precision`."""
    wanted = {"fp16": precision == "fp16", "bf16": precision in ("bf16", "fp8")}
    source = f"mixed_precision {precision}"
    for name, enabled in wanted.items():
        if enabled and name not in filler.data:
            added = {"enabled": True, **({"auto_cast": True} if name == "fp16" else {})}
            filler.set(name, added)
            filler.notes.add("derived", (name,), f"{name}: enabled by accelerate, from {source}")
    if precision != "no":
        other = "bf16" if precision == "fp16" else "fp16"
        if str(filler.get(f"{other}.enabled", False)).lower() == "true":
            message = (
                f"{other}: enabled here, and accelerate's mixed_precision is {precision}: it refuses both"
            )
            filler.notes.add("rejected", (other, "enabled"), message, 'write "auto" here')
    for name, enabled in wanted.items():
        if name not in filler.data:
            filler.set(name, {"enabled": False})
        filler.fill(f"{name}.enabled", enabled, source)


def prepare(
    filler: Filler, ranks: int, micro_batch_size: int | None, accumulation_steps: int, hidden_size: int | None
) -> None:
    """`Accelerator._prepare_deepspeed`: the data loader's batch, the model's width, what is still `auto`."""
    micro, steps = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
    if (steps,) not in filler.open:
        filler.fill(steps, accumulation_steps, "accelerate's gradient_accumulation_steps")
    if (micro,) not in filler.open:
        if micro_batch_size is None:
            filler.unknown(micro, "the data loader's batch size")
        else:
            filler.fill(micro, micro_batch_size, "the data loader's batch size")
    counts = (filler.get(micro), filler.get(steps))
    if all(isinstance(count, int | float) for count in counts):
        product = f"{counts[0]} x {counts[1]} x {ranks} ranks"
        filler.fill("train_batch_size", counts[0] * counts[1] * ranks, product)
    elif (micro,) in filler.open or (steps,) in filler.open:
        filler.unknown("train_batch_size", "batch size", decides=False)
    filler.fill("gradient_clipping", 1.0, "accelerate's default")
    gathers = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
    filler.fill(gathers, False, "accelerate's default")
    fill_hidden_size(filler, hidden_size, stage3_only=False)
    for path in list(filler.leftover()):
        message = f"{path[-1]}: accelerate finds no value for auto here, and raises"
        filler.notes.add("rejected", path, message, "write the value that is meant", "start")


SCRIPT_DECIDES = (
    *("optimizer.params.lr", "optimizer.params.weight_decay"),
    *("scheduler.params.warmup_min_lr", "scheduler.params.warmup_max_lr"),
    *("scheduler.params.warmup_num_steps", "scheduler.params.total_num_steps"),
)
"""What a script's DummyOptim and DummyScheduler state."""
