"""accelerate's config with `distributed_type: FSDP`, as `accelerate launch` hands it on.

`accelerate/commands/launch.py`, `utils/launch.py:prepare_multi_gpu_env` and
`utils/dataclasses.py:FullyShardedDataParallelPlugin`, 1.15. How many sequences a micro-batch has is the
script's to say, and in no config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ziplan.errors import BadInput
from ziplan.files import Document, nearest
from ziplan.files.document import Path
from ziplan.runtimes.deepspeed.reading import kinds
from ziplan.runtimes.deepspeed.reading.kinds import Kind, WrongValueError, unexpected, written
from ziplan.runtimes.deepspeed.reading.remarks import Notes, Remark

SECTION = "fsdp_config"
PREFIX = "fsdp_"
PRECISIONS = {"no": "fp32", "fp16": "fp16", "bf16": "bf16"}
"""accelerate's names of what is computed in; fp8 is its fourth."""

FIRST_ALONE = (
    *("sharding_strategy", "backward_prefetch", "forward_prefetch", "use_orig_params", "min_num_params"),
    "sync_module_states",
)
"""Keys of version 1: in version 2 the plugin reads none of them from the launcher, or sets it aside."""

KINDS: Mapping[str, Kind] = {
    "version": kinds.INT,
    "offload_params": kinds.BOOL,
    "reshard_after_forward": kinds.BOOL,
    "activation_checkpointing": kinds.BOOL,
    "activation_checkpointing_offload": kinds.BOOL,
    "cpu_ram_efficient_loading": kinds.BOOL,
    "auto_wrap_policy": kinds.TEXT,
    "state_dict_type": kinds.TEXT,
    "transformer_layer_cls_to_wrap": kinds.optional(kinds.TEXT),
    "ignored_modules": kinds.optional(kinds.TEXT),
}

FIELDS = {
    "placement": "offload_params",
    "zero_stage": "reshard_after_forward",
    "activation_checkpointing": "activation_checkpointing",
}
"""Parts of a plan, to the keys that decide them."""


@dataclass(frozen=True)
class Sharded:
    """What the launcher hands on, with its defaults where the config is silent."""

    version: int = 1
    offload_params: bool = False
    reshard_after_forward: bool = True
    activation_checkpointing: bool = False
    activation_checkpointing_offload: bool = False
    cpu_ram_efficient_loading: bool = True
    auto_wrap_policy: str = "NO_WRAP"
    state_dict_type: str = "SHARDED_STATE_DICT"
    transformer_layer_cls_to_wrap: str | None = None
    ignored_modules: str | None = None
    precision: str = "fp32"


@dataclass(frozen=True)
class FsdpReading:
    """The config, read; `sharded` is None where accelerate refuses it."""

    remarks: tuple[Remark, ...]
    sharded: Sharded | None

    @property
    def training(self) -> dict[str, Any]:
        """What it says of training, under the names of model.yaml."""
        s = self.sharded
        if s is None:
            return {}
        said: dict[str, Any] = {"precision": s.precision}
        if s.activation_checkpointing:
            said["activation_checkpointing"] = "full"
        if s.cpu_ram_efficient_loading:
            said["loading"] = {"copies": "rank_0"}
        if s.state_dict_type.upper() == "FULL_STATE_DICT":
            said["saving"] = "gathered"
        return said


def key_of(field: str) -> str:
    """The key of the config that decides a plan's field; "" where the script does."""
    name = FIELDS.get(field.partition(".")[0])
    return f"{SECTION}.{PREFIX}{name}" if name else ""


def read_fsdp(document: Document) -> FsdpReading:
    """The config; BadInput where it asks for what is not planned."""
    notes = Notes(document)
    section = document.data.get(SECTION) or {}
    if not isinstance(section, dict):
        notes.refuse((SECTION,), unexpected("a mapping", section))
        section = {}
    given: dict[str, Any] = {}
    paths: dict[str, Path] = {}
    for key, value in section.items():
        name = str(key).removeprefix(PREFIX)
        paths[name] = (SECTION, str(key))
        _take(name, value, paths[name], given, notes)
    precision = _precision(document, notes)
    sharded = Sharded(**given, precision=precision)
    _refuse(section, sharded, paths, notes)
    rejected = any(remark.kind == "rejected" for remark in notes.remarks)
    if not rejected:
        _not_planned(document, sharded, paths)
    return FsdpReading(tuple(notes.remarks), None if rejected else sharded)


def _take(name: str, value: Any, path: Path, given: dict[str, Any], notes: Notes) -> None:
    """One key of the section; the launcher takes it with its prefix or without."""
    if name in FIRST_ALONE:
        message = f"{path[-1]}: is for FSDP's version 1, so it does nothing in version 2"
        notes.add("ignored", path, message, "leave it out")
    elif name not in KINDS:
        message = f"{path[-1]}: accelerate hands no such setting to FSDP"
        notes.add("ignored", path, message, nearest(name, (*KINDS, *FIRST_ALONE)) or "leave it out")
    else:
        try:
            given[name] = KINDS[name].take(value)
        except WrongValueError as error:
            notes.refuse(path, error)


def _precision(document: Document, notes: Notes) -> str:
    """What is computed in; accelerate computes in fp32 where the config says nothing."""
    value = str(document.data.get("mixed_precision") or "no").lower()
    if value not in PRECISIONS:
        message = f"mixed_precision: {written(value)} is not planned with FSDP2: {', '.join(PRECISIONS)} are"
        if value != "fp8":
            message = f"mixed_precision: expected {', '.join(PRECISIONS)} or fp8, not {written(value)}"
        notes.add("rejected", ("mixed_precision",), message, f"write {' or '.join(PRECISIONS)}")
    return PRECISIONS.get(value, "fp32")


def _refuse(section: Mapping[str, Any], s: Sharded, paths: Mapping[str, Path], notes: Notes) -> None:
    """Combinations that raise in `accelerate launch` or in the plugin."""
    if s.activation_checkpointing_offload and not s.activation_checkpointing:
        message = "activation_checkpointing_offload: accelerate refuses it without activation_checkpointing"
        notes.add("rejected", paths["activation_checkpointing_offload"], message, "turn both on, or none")
    synced = {name: section[str(path[-1])] for name, path in paths.items() if name == "sync_module_states"}
    # The launcher asks for it in version 2 as well, where nothing reads it.
    if s.cpu_ram_efficient_loading and synced and not synced["sync_module_states"]:
        message = "sync_module_states: accelerate launch refuses false beside cpu_ram_efficient_loading"
        notes.add("rejected", paths["sync_module_states"], message, "leave it out")
    policies = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")
    if s.auto_wrap_policy.upper() not in policies:
        notes.refuse(paths["auto_wrap_policy"], unexpected(" or ".join(policies), s.auto_wrap_policy))


def _not_planned(document: Document, s: Sharded, paths: Mapping[str, Path]) -> None:
    """What ziplan's runtime of FSDP2 has no memory and no time for."""
    wrong = []
    for name, is_so, message, fix in (
        (
            "version",
            s.version != 2,
            f"version {s.version}: only FSDP2 is planned",
            "`accelerate to-fsdp2 --config_file FILE` converts it; then fsdp_version: 2",
        ),
        (
            "reshard_after_forward",
            not s.reshard_after_forward,
            "false: parameters that stay whole from forward to backward are not planned",
            "fsdp_reshard_after_forward: true",
        ),
        (
            "auto_wrap_policy",
            s.auto_wrap_policy.upper() != "TRANSFORMER_BASED_WRAP",
            f"{s.auto_wrap_policy}: only groups of one layer each are planned",
            "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
        ),
        (
            "activation_checkpointing_offload",
            s.activation_checkpointing_offload,
            "true: activation checkpoints stay on the GPU in what is planned",
            "leave it out",
        ),
    ):
        if is_so:
            path = paths.get(name, (SECTION,))
            wrong.append(document.problem(path, "ZP010", f"{PREFIX}{name}: {message}", fix, key=True))
    if wrong:
        raise BadInput(*wrong)
