"""The options of a planning request, listed once for every command that takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ziplan.cli import options
from ziplan.cli.inputs import Request
from ziplan.errors import BadInput

ABOUT_THE_RUN: Mapping[str, tuple[Any, Any]] = {
    "runtime": (options.RuntimeOption, "deepspeed"),
    "set": (options.SetOption, None),
    "calibration": (options.CalibrationOption, None),
    "sequence_length": (options.SequenceLength, None),
    "global_batch_size": (options.GlobalBatchSize, None),
    "micro_batch_size": (options.MicroBatchSize, None),
    "accumulation_steps": (options.AccumulationSteps, None),
    "precision": (options.PrecisionOption, None),
    "checkpointing": (options.CheckpointingOption, None),
    "attention": (options.AttentionOption, None),
    "kernels": (options.KernelsOption, None),
    "optimizer": (options.OptimizerOption, None),
    "optimizer_threads": (options.OptimizerThreads, None),
    "lora_rank": (options.LoraRank, None),
    "lora_targets": (options.LoraTargets, None),
    "companion": (options.CompanionOption, None),
    "objective": (options.ObjectiveOption, options.Objective.TIME),
    "allow_tiling": (options.TilingOption, False),
}
"""Parameter to its annotation and default, in the order of the help."""

OF_A_CHOICE = ("objective", "allow_tiling")
"""Of no use where there is nothing to choose between."""

SETTLED_BY_A_CONFIG = ("runtime", "global_batch_size", *OF_A_CHOICE)
"""What a runtime's config says itself."""


class Given(NamedTuple):
    """What the options of a command line say of a run, whatever the model and the cluster."""

    runtime: str = "deepspeed"
    settings: tuple[str, ...] = ()
    training: Mapping[str, Any] = {}
    companions: tuple[str, ...] = ()
    objective: str = "time"
    allow_tiling: bool = False
    calibration: str = ""

    def on(self, model: str, cluster: str) -> Request:
        """The request for one model on one cluster."""
        return Request(model, cluster, *self)


def given_options(*without: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Offer the options of a planning request in the place of the command's parameter `given`.

    The command gets one `Given` made of them; options named in `without` are not offered.
    """
    offered = {name: each for name, each in ABOUT_THE_RUN.items() if name not in without}

    def offering(command: Callable[..., Any]) -> Callable[..., Any]:
        def invoke(**values: Any) -> Any:
            words = {name: values.pop(name) for name in offered}
            return command(given=_given(**words), **values)

        return _declare(invoke, command, offered)

    return offering


def _declare(
    invoke: Callable[..., Any], command: Callable[..., Any], offered: Mapping[str, tuple[Any, Any]]
) -> Callable[..., Any]:
    """Give `invoke` the signature that typer reads: the command's with `given` spelled out."""
    parameters: list[inspect.Parameter] = []
    kind = inspect.Parameter.KEYWORD_ONLY
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.name == "given":
            parameters += [
                inspect.Parameter(name, kind, default=default, annotation=annotation)
                for name, (annotation, default) in offered.items()
            ]
        else:
            parameters.append(parameter.replace(kind=kind))
    invoke.__name__, invoke.__doc__ = command.__name__, command.__doc__
    invoke.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    invoke.__annotations__ = {each.name: each.annotation for each in parameters}
    return invoke


def _given(
    *,
    runtime: str = "deepspeed",
    set: list[str] | None = None,
    companion: list[str] | None = None,
    objective: options.Objective = options.Objective.TIME,
    allow_tiling: bool = False,
    calibration: Path | None = None,
    **training: Any,
) -> Given:
    return Given(
        runtime=runtime,
        settings=tuple(set or ()),
        training=_training(**training),
        companions=tuple(companion or ()),
        objective=objective.value,
        allow_tiling=allow_tiling,
        calibration=str(calibration) if calibration is not None else "",
    )


def _training(
    *,
    checkpointing: options.Checkpointing | None = None,
    optimizer: options.OptimizerKind | None = None,
    lora_rank: int | None = None,
    lora_targets: str | None = None,
    **same_names: Any,
) -> dict[str, Any]:
    """The options that were given, under the names that model.yaml has for them."""
    words = {**same_names, "activation_checkpointing": checkpointing}
    settings = {name: getattr(value, "value", value) for name, value in words.items() if value is not None}
    if optimizer is not None:
        settings["optimizer"] = {"kind": optimizer.value}
    return {**settings, **_trainable(lora_rank, lora_targets)}


def _trainable(rank: int | None, targets: str | None) -> dict[str, Any]:
    """Adapters beside every linear unless they are named."""
    if rank is None and targets is not None:
        raise BadInput.of("--lora-targets without a rank", help="add for example --lora-rank 16")
    if rank is None:
        return {}
    names = [name.strip() for name in targets.split(",")] if targets is not None else ["all-linear"]
    return {"trainable": {"lora_rank": rank, "targets": names}}
