"""The Hugging Face Trainer: its arguments, and what it makes of a DeepSpeed config before DeepSpeed reads it.

`transformers/integrations/deepspeed.py:HfTrainerDeepSpeedConfig`, transformers 5.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from ziplan.files import Document
from ziplan.runtimes.deepspeed.reading import kinds
from ziplan.runtimes.deepspeed.reading.batch import MOST
from ziplan.runtimes.deepspeed.reading.fill import Filler
from ziplan.runtimes.deepspeed.reading.kinds import Kind, WrongValueError
from ziplan.runtimes.deepspeed.reading.remarks import Notes
from ziplan.workload.training import MOST_WORKERS

TRAINER = "the Trainer"

HIDDEN_SIZE_KEYS = (
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold",
)
"""Keys that a trainer computes from the model's width."""


@dataclass(frozen=True)
class TrainerArguments:
    """What of `transformers.TrainingArguments` decides memory or a step, with its defaults."""

    per_device_train_batch_size: int = 8
    gradient_accumulation_steps: int = 1
    max_grad_norm: float = 1.0
    learning_rate: float = 5e-5
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    weight_decay: float = 0.0
    bf16: bool = False
    fp16: bool = False
    bf16_full_eval: bool = False
    fp16_full_eval: bool = False
    activation_checkpointing: bool | None = None
    activation_checkpointing_kwargs: dict[str, Any] | str | None = None
    gradient_checkpointing: bool | None = None
    gradient_checkpointing_kwargs: dict[str, Any] | str | None = None
    torch_compile: bool = False
    torch_compile_backend: str | None = None
    torch_compile_mode: str | None = None
    use_liger_kernel: bool = False
    liger_kernel_config: dict[str, Any] | None = None
    tf32: bool | None = None
    torch_empty_cache_steps: int | None = None
    label_smoothing_factor: float = 0.0
    full_determinism: bool = False
    max_steps: int = -1
    warmup_steps: float = 0
    save_on_each_node: bool = False
    auto_find_batch_size: bool = False
    dataloader_num_workers: int = 0
    optim: str = "adamw_torch_fused"
    deepspeed: str | dict[str, Any] | None = None
    known: frozenset[str] | None = None
    """Names of the arguments that are known, where there is no file of them; None where all are."""
    stated: frozenset[str] = frozenset()
    """Names of those that a file states."""

    def knows(self, *names: str) -> bool:
        """Whether all these arguments are known."""
        return self.known is None or self.known.issuperset(names)

    @property
    def recomputes(self) -> bool:
        """Whether layers are recomputed; the older name of the argument counts where the newer is not."""
        newer = self.activation_checkpointing
        return bool(self.gradient_checkpointing if newer is None else newer)

    @property
    def checkpointing_kwargs(self) -> Mapping[str, Any]:
        """How they are, under either name."""
        newer = self.activation_checkpointing_kwargs
        kwargs = self.gradient_checkpointing_kwargs if newer is None else newer
        return kwargs if isinstance(kwargs, dict) else {}

    @property
    def checkpointing_kwargs_name(self) -> str:
        """The name that they have in the file."""
        newer = "activation_checkpointing_kwargs"
        return newer if self.activation_checkpointing_kwargs is not None else "gradient_checkpointing_kwargs"

    @property
    def training_steps(self) -> int | None:
        """Steps of the whole run, where the arguments decide it and not the data."""
        return self.max_steps if self.max_steps > 0 else None

    @property
    def warmup(self) -> int | None:
        """`TrainingArguments.get_warmup_steps`, at least 1."""
        if self.warmup_steps >= 1:
            return max(1, int(self.warmup_steps))
        if self.training_steps is None:
            return 1 if self.warmup_steps == 0 else None
        return max(1, math.ceil(self.training_steps * self.warmup_steps))


def _mapping_or_json(value: Any) -> dict[str, Any]:
    """A mapping, or one as JSON in a text, as a command line has it."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = _unquoted(json.loads(value))
        except ValueError:
            raise WrongValueError(f"{kinds.written(value)} is not JSON", "write a mapping as JSON") from None
    return cast("dict[str, Any]", kinds.MAPPING.take(value))


def _unquoted(value: Any) -> Any:
    """`training_args.py:_convert_str_dict`: true, false and whole numbers that are texts."""
    if isinstance(value, dict):
        return {key: _unquoted(part) for key, part in value.items()}
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value


_KINDS: Mapping[str, Kind] = {
    "int": kinds.INT,
    "float": kinds.FLOAT,
    # Python takes null as false, and the Trainer looks no closer.
    "bool": Kind("true or false", lambda value: kinds.BOOL.take(False if value is None else value)),
    "bool | None": kinds.optional(kinds.BOOL),
    "str": kinds.TEXT,
    "int | None": kinds.optional(kinds.INT),
    "str | None": kinds.optional(kinds.TEXT),
    "dict[str, Any] | None": kinds.optional(kinds.MAPPING),
    "dict[str, Any] | str | None": kinds.optional(Kind("a mapping", _mapping_or_json)),
}
_COUNTS: Mapping[str, Kind] = {
    "per_device_train_batch_size": kinds.whole(1, MOST),
    "gradient_accumulation_steps": kinds.whole(1, MOST),
    "dataloader_num_workers": kinds.whole(0, MOST_WORKERS),
}
"""Arguments that are counts: what fewer is refused where the data is loaded, or by DeepSpeed."""

ARGUMENTS = tuple(field.name for field in fields(TrainerArguments) if field.name not in ("known", "stated"))


def trainer_arguments(document: Document, notes: Notes) -> TrainerArguments:
    """The arguments that a file states; others are the script's own, and are not looked at."""
    given: dict[str, Any] = {}
    for field in fields(TrainerArguments):
        if field.name not in ARGUMENTS or field.name not in document.data:
            continue
        value = document.data[field.name]
        kind = _COUNTS.get(field.name, _KINDS.get(str(field.type)))
        try:
            given[field.name] = kind.take(value) if kind else value
        except WrongValueError as error:
            notes.refuse((field.name,), error)
    _tell_misspelt(document.data, notes)
    return TrainerArguments(**given, stated=frozenset(given))


ALIKE = 0.88
"""Likeness from which on a key is taken for an argument misspelt: no other one of the Trainer is so like."""


def _tell_misspelt(names: Iterable[str], notes: Notes) -> None:
    """Note keys that are nearly an argument; others that are none are the script's own."""
    for name in names:
        close = difflib.get_close_matches(name, ARGUMENTS, n=1, cutoff=ALIKE)
        if close and name not in ARGUMENTS:
            message = f"{name}: the Trainer has no such argument"
            notes.add("ignored", (name,), message, f"did you mean `{close[0]}`?")


def fill_from_arguments(filler: Filler, arguments: TrainerArguments, ranks: int) -> None:
    """`trainer_config_process`: what the arguments alone decide."""
    a = arguments
    batch, steps = a.per_device_train_batch_size, a.gradient_accumulation_steps
    micro = ("per_device_train_batch_size",)
    accumulated = ("gradient_accumulation_steps",)
    for key, value, names, source in (
        ("train_micro_batch_size_per_gpu", batch, micro, micro[0]),
        ("gradient_accumulation_steps", steps, accumulated, accumulated[0]),
        (
            "train_batch_size",
            ranks * batch * steps,
            micro + accumulated,
            f"{batch} x {steps} x {ranks} ranks",
        ),
        ("gradient_clipping", a.max_grad_norm, ("max_grad_norm",), "max_grad_norm"),
        ("optimizer.params.lr", a.learning_rate, ("learning_rate",), "learning_rate"),
        (
            "optimizer.params.betas",
            [a.adam_beta1, a.adam_beta2],
            ("adam_beta1",),
            "adam_beta1 and adam_beta2",
        ),
        ("optimizer.params.eps", a.adam_epsilon, ("adam_epsilon",), "adam_epsilon"),
        ("optimizer.params.weight_decay", a.weight_decay, ("weight_decay",), "weight_decay"),
        ("scheduler.params.warmup_max_lr", a.learning_rate, ("learning_rate",), "learning_rate"),
        ("fp16.enabled", a.fp16 or a.fp16_full_eval, ("fp16",), "fp16"),
        ("bf16.enabled", a.bf16 or a.bf16_full_eval, ("bf16",), "bf16"),
    ):
        if a.knows(*names):
            filler.match(key, value, source)
        else:
            filler.unknown(
                key,
                f"the Trainer's {names[0]}",
                decides=key.partition(".")[0] not in ("optimizer", "scheduler"),
            )
    filler.fill("scheduler.params.warmup_min_lr", 0, TRAINER)


def fill_from_model(filler: Filler, arguments: TrainerArguments, hidden_size: int | None) -> None:
    """`trainer_config_finalize`: what the model and the number of steps decide."""
    fill_hidden_size(filler, hidden_size, stage3_only=True)
    unknown = "follows from the number of steps, which the data decides; neither memory nor time does"
    for name, value, source in (
        ("total_num_steps", arguments.training_steps, "max_steps"),
        ("warmup_num_steps", arguments.warmup, "warmup_steps"),
    ):
        key = f"scheduler.params.{name}"
        if not arguments.knows("max_steps", "warmup_steps"):
            filler.unknown(key, "the Trainer's steps", decides=False)
        elif value is None:
            filler.leave(key, unknown)
        else:
            filler.match(key, value, source)


def fill_hidden_size(filler: Filler, hidden_size: int | None, stage3_only: bool) -> None:
    """The keys that are computed from the model's width; accelerate does so in every stage."""
    wanted = [key for key in HIDDEN_SIZE_KEYS if filler.is_auto(key)]
    if not wanted:
        return
    if hidden_size is None:
        for key in wanted:
            path = tuple(key.split("."))
            filler.open.add(path)
            filler.notes.add(
                "unknown", path, f"{path[-1]}: auto follows from the model's width", "name the model"
            )
        return
    values = (hidden_size * hidden_size, int(0.9 * hidden_size * hidden_size), 10 * hidden_size)
    formulas = ("hidden_size^2", "0.9 hidden_size^2", "10 hidden_size")
    for key, value, formula in zip(HIDDEN_SIZE_KEYS, values, formulas, strict=True):
        if key == HIDDEN_SIZE_KEYS[0] or not stage3_only or filler.get("zero_optimization.stage") == 3:
            filler.fill(key, value, f"{formula} of hidden_size {hidden_size}")
