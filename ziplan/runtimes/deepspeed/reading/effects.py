"""What of an accepted config changes nothing, and what fails later than at reading.

Fatal combinations that depend on sizes are not told here: they need the model and the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ziplan.files.document import Path
from ziplan.runtimes.deepspeed.reading.kinds import AUTO, Kind, WrongValueError, unexpected
from ziplan.runtimes.deepspeed.reading.loose_tables import LOOSE_SECTIONS
from ziplan.runtimes.deepspeed.reading.raw import Read
from ziplan.runtimes.deepspeed.reading.remarks import Notes
from ziplan.runtimes.deepspeed.reading.walk import SECTIONS, Values

ZERO = "zero_optimization"
NVME_ONLY = {
    "offload_param": ("nvme_path", "buffer_count", "buffer_size", "max_in_cpu"),
    "offload_optimizer": ("nvme_path", "buffer_count", "pipeline_read", "pipeline_write", "fast_init"),
}
"""Keys of the swappers (`runtime/swap_tensor`), which exist on NVMe alone."""

SWAPS_FROM = 3
"""Stages 1 and 2 have no swapper: `stage_1_and_2.py` asks whether there is a device, not which."""

_ADAM_ARGUMENTS = ("lr", "eps", "weight_decay")


def tell_effects(data: Mapping[str, Any], read: Read, notes: Notes, trainer: bool) -> None:
    """Note keys without effect, and values that something other than the config's reader refuses."""
    zero = read.values[ZERO]
    _by_stage(zero, read.stated, notes)
    if zero["stage"] > 0:
        _offload(zero, read.stated, notes)
    _optimizer_device(zero, notes)
    _aio(data, zero, notes)
    _checkpointing(data, trainer, notes)
    _used_later(data, read.values, notes)


def _differs(section: str, name: str, values: Values) -> bool:
    """Whether a key says something else than its default."""
    return bool(values[name] != SECTIONS[section].names[name].default)


def _by_stage(zero: Values, stated: Iterable[Path], notes: Notes) -> None:
    """Keys of other stages; one that says its default, or offloads to nowhere, is not worth a word."""
    names = SECTIONS[ZERO].names
    for path in sorted(p for p in stated if p[0] == ZERO and len(p) == 2):
        key = names[str(path[1])]
        value = zero[key.name]
        idle = isinstance(value, dict) and value.get("device") == "none"
        if zero["stage"] in key.stages or key.instead or idle or not _differs(ZERO, key.name, zero):
            continue
        if key.name in ("overlap_comm", "compute_grad_norm"):
            continue
        stages = " and ".join(map(str, key.stages)) if len(key.stages) < 3 else "1 to 3"
        noun = "stage" if len(key.stages) == 1 else "stages"
        message = f"{path[1]}: is for {noun} {stages}, so it does nothing in stage {zero['stage']}"
        notes.add("ignored", path, message, "leave it out, or change the stage")


def _offload(zero: Values, stated: Iterable[Path], notes: Notes) -> None:
    """Keys of a device other than the one chosen."""
    for name, swapper_keys in NVME_ONLY.items():
        section = zero[name]
        if not section or (name == "offload_param" and zero["stage"] < SWAPS_FROM):
            continue
        at, device = (ZERO, name), section["device"]
        swaps = device == "nvme" and zero["stage"] >= SWAPS_FROM
        if device == "nvme" and not swaps:
            message = f"device: nvme is for stage 3; in stage {zero['stage']} the optimizer goes to the CPU"
            notes.add("ignored", (*at, "device"), message, 'write "cpu", or use stage 3')
        for key in SECTIONS[f"{ZERO}.{name}"].keys:
            unused = key.name in swapper_keys and not swaps
            unused = unused or (device == "none" and key.name != "device")
            if unused and (*at, key.name) in stated and _differs(f"{ZERO}.{name}", key.name, section):
                where = "nothing is offloaded" if device == "none" else "nothing is on NVMe"
                notes.add(
                    "ignored", (*at, key.name), f"{key.name}: {where}, so it does nothing", "leave it out"
                )
        if swaps and section.get("ratio", 1.0) < 1:
            message = "ratio: sub-groups on NVMe all swap, so the share that it leaves on the GPU is none"
            notes.add("ignored", (*at, "ratio"), message, 'leave it out, or use "cpu"')


def _optimizer_device(zero: Values, notes: Notes) -> None:
    """`engine.py:zero_use_cpu_optimizer` does not ask for the stage; CPU Adam refuses tensors on a GPU."""
    optimizer = zero["offload_optimizer"]
    if zero["stage"] == 0 and optimizer and optimizer["device"] != "none":
        notes.add(
            "rejected",
            (ZERO, "offload_optimizer"),
            "offload_optimizer: stage 0 takes the CPU's optimizer, and leaves it tensors of the GPU",
            "use stage 1 or higher, or leave it out",
            "training",
        )
    if zero["legacy_stage1"] and zero["stage"] > 0:
        notes.add(
            "rejected",
            (ZERO, "legacy_stage1"),
            "legacy_stage1: is gone from DeepSpeed",
            "leave it out",
            "start",
        )


def _aio(data: Mapping[str, Any], zero: Values, notes: Notes) -> None:
    devices = (zero[name]["device"] for name in NVME_ONLY if zero[name])
    if data.get("aio") and not ("nvme" in devices and zero["stage"] >= SWAPS_FROM):
        notes.add("ignored", ("aio",), "aio: nothing is on NVMe, so nothing is read with it", "leave it out")


def _checkpointing(data: Mapping[str, Any], trainer: bool, notes: Notes) -> None:
    """`activation_checkpointing/checkpointing.py:configure` reads it, when a script calls that."""
    if not data.get("activation_checkpointing"):
        return
    who = (
        "the trainer recomputes with PyTorch's function"
        if trainer
        else "a script must call deepspeed.checkpointing"
    )
    message = f"activation_checkpointing: the engine does not read it; {who}"
    fix = (
        "set gradient_checkpointing in the trainer's arguments"
        if trainer
        else "call deepspeed.checkpointing.configure"
    )
    notes.add("ignored", ("activation_checkpointing",), message, fix)


def _used_later(data: Mapping[str, Any], values: Values, notes: Notes) -> None:
    """Values that the config takes unread, and their user does not."""
    top = SECTIONS[""].names
    _must_be(top["gradient_clipping"].kind, data, (), "gradient_clipping", "training", notes)
    for section in (section for section in LOOSE_SECTIONS if section.path in ("aio", "data_types")):
        inside = data.get(section.path)
        for key in section.keys if isinstance(inside, dict) else ():
            if key.name != "keep_in_fp32_modules":
                _must_be(key.kind, inside, (section.path,), key.name, "start", notes)
    optimizer = data.get("optimizer")
    params = optimizer.get("params") if isinstance(optimizer, dict) and optimizer.get("type") else None
    if isinstance(params, dict):
        at: Path = ("optimizer", "params")
        for name in _ADAM_ARGUMENTS:
            _must_be(top["gradient_clipping"].kind, params, at, name, "training", notes)
        if params.get("betas") == AUTO:
            _fails((*at, "betas"), "betas: nothing replaces auto", "training", notes)
        if "max_grad_norm" in params:
            message = "max_grad_norm: DeepSpeed refuses it as an optimizer's argument"
            notes.add(
                "rejected", (*at, "max_grad_norm"), message, "write gradient_clipping at the top", "start"
            )


def _must_be(
    kind: Kind, values: Mapping[str, Any] | None, path: Path, name: str, moment: Any, notes: Notes
) -> None:
    if not values or name not in values:
        return
    value = values[name]
    try:
        number = isinstance(value, str) and kind.name in ("number", "whole number")
        if number:
            raise unexpected(f"a {kind.name}", value)
        kind.take(value)
    except WrongValueError as error:
        _fails((*path, name), f"{name}: {error}", moment, notes)


def _fails(path: Path, message: str, moment: Any, notes: Notes) -> None:
    if any(remark.path == ".".join(map(str, path)) and remark.kind == "rejected" for remark in notes.remarks):
        return
    notes.add("rejected", path, message, "write the value that is meant", moment)
