"""From what a person names as MODEL to a model or a workload.

Everything wrong with the files and the flags is raised together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ziplan.errors import BadInput, Problem
from ziplan.files import dotted, validate
from ziplan.files.document import Path as Keys
from ziplan.files.validation import MISSING_KEY, WRONG_VALUE
from ziplan.units import Precision, figure
from ziplan.workload.adapted import adapted, notes_on
from ziplan.workload.kept import kept_bytes
from ziplan.workload.kernels import flash_notes
from ziplan.workload.model import Model
from ziplan.workload.shapes import list_shapes
from ziplan.workload.source import Source, open_source
from ziplan.workload.training import Training, TrainingChoices, Workload

if TYPE_CHECKING:
    from ziplan.workload.companions import Companion

__all__ = ["list_shapes", "load_model", "load_workload"]

T = TypeVar("T")

LOSS_SCALE_POWER = 16
"""Power of two that loss scaling starts from, in DeepSpeed's emitted config and in PyTorch's GradScaler;
DeepSpeed's hysteresis of 2 takes one overflow more."""

_FLAG_NAMES = {"activation_checkpointing": "--checkpointing", "trainable": "--lora-targets"}
"""Settings whose flag is not the setting's own name."""


def load_model(argument: str) -> Model:
    """The model that `argument` names."""
    problems = _Collected()
    source = problems.attempt(lambda: open_source(argument))
    model = problems.attempt(source.model) if source else None
    return problems.required(model)


def load_workload(
    argument: str,
    overrides: Mapping[str, object],
    precisions: Collection[str] = (),
    companions: Sequence[str] = (),
) -> Workload:
    """The model that `argument` names under its training settings, and the other models of its job.

    `overrides` are the command line's settings (None: not given) and win over the file's, as
    `companions` (ROLE=MODEL) do. `precisions` are the GPU's; empty means that they are not known.
    """
    problems = _Collected()
    flags = _Flags({key: _written(key, value) for key, value in overrides.items() if value is not None})
    source = problems.attempt(lambda: open_source(argument))
    model = problems.attempt(source.model) if source else None
    stated = problems.attempt(source.training) if source else None
    given = problems.attempt(lambda: validate(flags, TrainingChoices))
    if source is None or stated is None or given is None:
        return problems.required(None)
    settings = _Settled(flags, source, _merged(stated, given))
    precision = problems.attempt(lambda: settings.precision(precisions))
    training = problems.attempt(lambda: settings.training(model))
    if model is None or training is None or precision is None:
        return problems.required(None)
    trained = problems.attempt(partial(settings.trained, model, training))
    others = problems.attempt(partial(_companions, source, companions, training, precision))
    model = problems.required(trained)
    kept = kept_bytes(model, training.attention, precision, training.dropout, training.kernels)
    return Workload(model, training, precision, kept, others or (), tuple(_notes(model, training, precision)))


def _companions(
    source: Source, flags: Sequence[str], training: Training, precision: Precision
) -> tuple[Companion, ...]:
    if not flags and not source.companions():
        return ()
    from ziplan.workload.load_companions import load_companions  # few jobs have more than one model

    return load_companions(source, flags, training, precision)


def _notes(model: Model, training: Training, precision: Precision) -> Iterator[str]:
    """What the settings bring about that no plan shows."""
    yield from notes_on(model, training.trainable)
    if training.loading.zero_init:
        yield "zero_init: is stage 3's alone; below stage 3 every rank loads the whole model all the same"
    if 0 < model.trainable_params < model.params:
        yield "FLOP/s by 6P count gradients of frozen weights too, which nobody computes"
    if precision == "fp16":
        yield (
            f"fp16: up to {LOSS_SCALE_POWER + 1} first steps are skipped while the loss scale falls from "
            f"2^{LOSS_SCALE_POWER}; moments are made in the first real one"
        )
    if training.attention == "flash":
        yield from flash_notes(model)
    narrow = [w for w in model.windows if w.tokens < training.attended]
    if narrow and training.attention == "flash":
        seen = ", ".join(f"{w.attentions} of {model.attentions} see {w.tokens:,} tokens" for w in narrow)
        yield (
            f"attentions with a window ({seen}) are timed as kernels that skip the rest, which "
            "FlashAttention does, and SDPA with a mask does not"
        )
    if training.packing and training.attended == training.sequence_length:
        yield (
            "packing: attention is timed over whole sequences, an upper bound; say `mean_sample_length`"
            if training.attention == "flash"
            else "packing: eager attention computes the whole square of a sequence and masks it"
        )


class _Collected:
    """Problems of several attempts, to be raised together."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    def attempt(self, call: Callable[[], T]) -> T | None:
        """What `call` answers, or None and its problems noted."""
        try:
            return call()
        except BadInput as error:
            self._problems += error.problems
            return None

    def required(self, value: T | None) -> T:
        """`value`, unless there were problems."""
        if self._problems:
            raise BadInput(*self._problems)
        assert value is not None
        return value


def flag_of(setting: str) -> str:
    """The flag that a setting of the training has on the command line."""
    return _FLAG_NAMES.get(setting, f"--{setting.replace('_', '-')}")


class _Flags:
    """The command line's settings, located by the name of their flag."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    def problem(
        self, path: Keys, code: str, message: str, help: str = "", hint: str = "", key: bool = False
    ) -> Problem:
        """A problem with the flag of the setting at `path`."""
        name = str(path[-1] if "lora_rank" in path else path[0]) if path else ""
        flag = flag_of(name)
        said = message.removeprefix(f"{dotted(path)}: ")
        return Problem("", 0, 0, code, f"{flag}: {said}" if name else said, help=help, hint=hint)


class _Settled:
    """Settings of file and flags put together, and where each came from."""

    def __init__(self, flags: _Flags, source: Source, values: dict[str, Any]) -> None:
        self.flags, self.source, self.values = flags, source, values

    def training(self, model: Model | None) -> Training:
        """The settings of the run, with a sequence length that the model can take."""
        length = self.values.get("sequence_length")
        if length is None:
            raise BadInput(self._without_length())
        if model and model.max_sequence_length and length > model.max_sequence_length:
            limit = f"{model.name} takes sequences of up to {model.max_sequence_length:,} tokens"
            raise BadInput(self._problem("sequence_length", f"{limit}, not {length:,}"))
        for setting, message in self._lengths(model, length):
            raise BadInput(self._problem(setting, message))
        return Training.model_validate(self.values)

    def _lengths(self, model: Model | None, length: int) -> Iterator[tuple[str, str]]:
        """(setting, what is wrong with it) of the lengths of samples beside that of a sequence."""
        longest, mean = self.values.get("longest_sequence"), self.values.get("mean_sample_length")
        packing = self.values.get("packing", False)
        if longest is not None and packing:
            yield "longest_sequence", f"packed sequences all have {length:,} tokens: leave it out"
        if longest is not None and longest < length:
            yield "longest_sequence", f"{longest:,} is less than sequence_length ({length:,})"
        most = model.max_sequence_length if model else None
        if longest is not None and most and longest > most:
            yield "longest_sequence", f"{model and model.name} takes sequences of up to {most:,} tokens"
        if mean is not None and not packing:
            yield "mean_sample_length", "counts where samples are packed: add `packing: true`"
        if mean is not None and mean > length:
            yield "mean_sample_length", f"{figure(mean)} is more than sequence_length ({length:,})"

    def trained(self, model: Model, training: Training) -> Model:
        """The model with what training leaves alone, and with its adapters."""
        try:
            return adapted(model, training.trainable)
        except ValueError as error:
            raise BadInput(self._problem("trainable", str(error))) from None

    def precision(self, precisions: Collection[str]) -> Precision:
        """The precision asked for, else bf16 where the GPU has it, else fp16, else fp32.

        Every GPU computes in fp32, so that may be asked for where nobody has stated how fast.
        """
        asked: Precision | None = self.values.get("precision")
        if asked is None:
            order: tuple[Precision, ...] = ("bf16", "fp16", "fp32")
            return next((choice for choice in order if choice in precisions or not precisions), "fp32")
        if precisions and asked not in precisions and asked != "fp32":
            has = ", ".join(sorted(precisions))
            message = (
                f"no {asked} rate of this GPU is stated, so it is taken not to compute in it; it has {has}"
            )
            key = f"gpu.peak_flops_per_s.{asked}"
            remedy = f"where it does, state how fast: --set {key}='100 TFLOP/s'"
            raise BadInput(self._problem("precision", message, remedy))
        return asked

    def _problem(self, setting: str, message: str, help: str = "") -> Problem:
        """A problem with a setting, at the place that it came from."""
        if setting in self.flags.data or self.source.document is None:
            return self.flags.problem((setting,), WRONG_VALUE, message, help)
        path = ("training", setting)
        return self.source.document.problem(path, WRONG_VALUE, f"{dotted(path)}: {message}", help)

    def _without_length(self) -> Problem:
        flag = "--sequence-length (for example `--sequence-length 4096`)"
        if self.source.document is None:
            return Problem("", 0, 0, MISSING_KEY, f"say how many tokens a sequence has with {flag}")
        message = "training: missing key `sequence_length`"
        remedy = f"add `sequence_length: 4096` under `training:` or give {flag}"
        return self.source.document.problem(("training",), MISSING_KEY, message, remedy, key=True)


def _written(setting: str, value: object) -> object:
    """A flag's value as a file would write it: the flag gives the optimizer's kind alone."""
    return {"kind": value} if setting == "optimizer" and isinstance(value, str) else value


def _merged(stated: TrainingChoices, given: TrainingChoices) -> dict[str, Any]:
    """The settings that are stated or given; given ones win, those of the optimizer one by one."""
    values = {**stated.model_dump(exclude_unset=True), **given.model_dump(exclude_unset=True)}
    optimizers = (choices.optimizer.model_dump(exclude_unset=True) for choices in (stated, given))
    values["optimizer"] = {key: value for optimizer in optimizers for key, value in optimizer.items()}
    if "loading" in values:
        # Read already: quantities in it are numbers by now.
        values["loading"] = given.loading if "loading" in given.model_fields_set else stated.loading
    return values
