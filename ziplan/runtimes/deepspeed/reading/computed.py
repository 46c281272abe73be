"""What the Trainer's arguments say of kernels, the loss, recomputation and the optimizer.

transformers 5 (`trainer.py`, `training_args.py`, `trainer_optimizer.py`), accelerate 1.15
(`utils/deepspeed.py:map_pytorch_optim_to_deepspeed`) and Liger 0.8 (`transformers/monkey_patch.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ziplan.runtimes.deepspeed.reading.huggingface import TrainerArguments
from ziplan.runtimes.deepspeed.reading.remarks import RemarkKind
from ziplan.runtimes.deepspeed.reading.words import BACKENDS, MODES, OPTIMIZERS
from ziplan.workload.kernels import LIGER_LEAVES_OUT, OF_LIGER

HEAD, ON_LOGITS = "fused_linear_cross_entropy", "cross_entropy"
"""Liger's losses: of the head and its logits together, and of logits that transformers has made fp32 of."""


class Named(NamedTuple):
    """ziplan's name of an optimizer, whether it is one kernel, and what is not planned of it."""

    kind: str
    fused: bool | None = None
    unplanned: str = ""


PAGED = "keeps its state in pages that move to the host where the GPU is full"

OPTIM: Mapping[str, Named] = {
    "adamw_torch": Named("adamw", fused=False),
    "adamw_hf": Named("adamw", fused=False),
    "adamw_torch_fused": Named("adamw", fused=True),
    "adamw_apex_fused": Named("adamw", fused=True),
    "adamw_bnb_8bit": Named("adamw_8bit"),
    "adamw_8bit": Named("adamw_8bit"),
    "paged_adamw_32bit": Named("adamw", fused=True, unplanned=PAGED),
    "paged_adamw_8bit": Named("adamw_8bit", unplanned=PAGED),
    "lion_32bit": Named("lion"),
    "adafactor": Named("adafactor"),
    "sgd": Named("sgd"),
}
"""The Trainer's `optim`, those of releases before 5 included."""


class OfConfig(NamedTuple):
    """What of a DeepSpeed config decides what becomes of the Trainer's arguments."""

    stage: int
    names_optimizer: bool
    optimizer: str | None
    """ziplan's name of the optimizer that it names; None where it names none, or one that is not planned."""
    offloaded: bool
    """Whether the optimizer is on the host."""


Said = Iterator[tuple[RemarkKind, str, str, str]]
"""Kind, argument, message and remedy of remarks."""


def kernels_and_loss(arguments: TrainerArguments, family: str) -> dict[str, str]:
    """`kernels` and `loss` of model.yaml's `training:`, as far as the arguments ask for any.

    torch.compile fuses as much as Liger does. Where Liger takes some of a layer's kernels and not all, it is
    counted as none.
    """
    asked: dict[str, str] = {}
    liger = _liger(arguments, family)
    if liger:
        asked["kernels"] = "fused" if all(_of_layers(liger).values()) else "eager"
        if liger[HEAD]:
            asked["loss"] = "fused"
    if compiles(arguments):
        asked["kernels"] = "compiled"
    return asked


def compiles(arguments: TrainerArguments) -> bool:
    """Whether torch.compile fuses operators: TorchInductor does, other backends do not."""
    backend = arguments.torch_compile_backend
    asked = arguments.torch_compile or backend is not None or arguments.torch_compile_mode is not None
    return asked and (backend is None or backend.lower() == "inductor")


def _liger(arguments: TrainerArguments, family: str) -> dict[str, bool]:
    """Liger's switches for a family with its defaults; none where it is not asked for or has no kernels."""
    if not arguments.use_liger_kernel or family not in OF_LIGER:
        return {}
    function = "geglu" if family.startswith("gemma") else "swiglu"
    switches = dict.fromkeys(("rope", "rms_norm", function, HEAD), True)
    for name in LIGER_LEAVES_OUT.get(family, ()):
        del switches[name]
    switches = {HEAD: False, ON_LOGITS: HEAD not in switches, **switches}
    stated = arguments.liger_kernel_config or {}
    return {name: bool(stated.get(name, on)) for name, on in switches.items()}


def _of_layers(switches: Mapping[str, bool]) -> dict[str, bool]:
    return {name: on for name, on in switches.items() if name not in (HEAD, ON_LOGITS)}


def optimizer_of(arguments: TrainerArguments, offloaded: bool) -> dict[str, Any]:
    """The optimizer that the Trainer makes where the DeepSpeed config names none.

    With the optimizer on the host accelerate puts DeepSpeed's CPU Adam in the place of whatever it is, but
    for Lion and Adagrad.
    """
    named = OPTIM.get(arguments.optim)
    if offloaded:
        return {} if arguments.optim == "adagrad" else {"kind": "lion" if _is_lion(arguments) else "adamw"}
    if named is None:
        return {}
    return {"kind": named.kind, **({} if named.fused is None else {"fused": named.fused})}


def _is_lion(arguments: TrainerArguments) -> bool:
    return arguments.optim in ("lion_32bit", "paged_lion_32bit")


def remarks_on(arguments: TrainerArguments, family: str, config: OfConfig) -> Said:
    """What of the arguments changes memory or time and is not planned, refused or without effect."""
    yield from _of_optim(arguments, config)
    yield from _of_liger(arguments, family)
    yield from _of_compile(arguments)
    yield from _of_checkpointing(arguments)
    yield from _of_the_rest(arguments, config.stage)


def _of_the_rest(arguments: TrainerArguments, stage: int) -> Said:
    if arguments.auto_find_batch_size and stage == 3:
        message = "auto_find_batch_size: the Trainer refuses it with stage 3"
        yield "rejected", "auto_find_batch_size", message, "leave it out"
    elif arguments.auto_find_batch_size:
        what = "makes a micro-batch smaller that runs out of memory"
        yield _unplanned("auto_find_batch_size", what)
    if arguments.torch_empty_cache_steps is not None:
        yield _unplanned("torch_empty_cache_steps", "empties PyTorch's cache after forward, which takes time")
    if arguments.label_smoothing_factor != 0:
        yield _unplanned("label_smoothing_factor", "takes another loss, of a log-softmax of all logits")
    if arguments.full_determinism:
        yield _unplanned("full_determinism", "waits for every kernel and takes slower ones")
    if arguments.tf32 and not (arguments.bf16 or arguments.fp16):
        yield _unplanned("tf32", "computes products of fp32 in tensor cores")


def _unplanned(name: str, what: str) -> tuple[RemarkKind, str, str, str]:
    return "not_planned", name, f"{name}: {what}, which ziplan does not plan", ""


def _of_optim(arguments: TrainerArguments, config: OfConfig) -> Said:
    if "optim" not in arguments.stated or arguments.optim not in OPTIMIZERS:
        return
    named = OPTIM.get(arguments.optim)
    kind = named.kind if named is not None else ""
    if config.names_optimizer:
        if kind != config.optimizer:
            message = f"optim: the DeepSpeed config names an optimizer, so {arguments.optim} is not made"
            yield "ignored", "optim", message, "leave it out, or leave optimizer out of the DeepSpeed config"
    elif config.offloaded and arguments.optim != "adagrad":
        if kind != "adamw" and not _is_lion(arguments):
            message = f"optim: on the host accelerate makes DeepSpeed's CPU Adam of {arguments.optim}"
            yield "ignored", "optim", message, 'write the optimizer in the DeepSpeed config, or "adamw_torch"'
    elif named is None:
        yield _unplanned("optim", f"{arguments.optim} keeps state of its own")
    elif named.unplanned:
        yield _unplanned("optim", f"{arguments.optim} {named.unplanned}")


def _of_liger(arguments: TrainerArguments, family: str) -> Said:
    if not arguments.use_liger_kernel:
        return
    if family not in OF_LIGER:
        message = f"use_liger_kernel: Liger has no kernels for {family} and leaves it as it is"
        yield "ignored", "use_liger_kernel", message, "leave it out"
        return
    config, switches = "liger_kernel_config", _liger(arguments, family)
    layers = _of_layers(switches)
    if switches[HEAD] and switches[ON_LOGITS]:
        message = f"{config}: Liger refuses {ON_LOGITS} beside {HEAD}, which is on unless it is stated"
        yield "rejected", config, message, f'"{HEAD}": false, or leave {ON_LOGITS} out'
    elif switches[HEAD] and HEAD in LIGER_LEAVES_OUT.get(family, ()):
        yield "rejected", config, f"{config}: Liger has no {HEAD} for {family}", "leave it out"
    elif switches[ON_LOGITS]:
        yield _unplanned(config if arguments.liger_kernel_config else "use_liger_kernel", _LOSS)
    if any(layers.values()) and not all(layers.values()):
        off = ", ".join(name for name, on in layers.items() if not on)
        yield _unplanned(config, f"{off} left to transformers, the rest taken as eager too")


_LOSS = f"{ON_LOGITS} is taken of logits that transformers has made fp32 of"


def _of_compile(arguments: TrainerArguments) -> Said:
    backend, mode = arguments.torch_compile_backend, arguments.torch_compile_mode
    if backend is not None and backend.lower() in BACKENDS and not compiles(arguments):
        yield _unplanned("torch_compile_backend", f"{backend} is taken as eager")
    elif mode in MODES and mode != "default":
        yield _unplanned("torch_compile_mode", f"{mode} is taken as the default mode")


def _of_checkpointing(arguments: TrainerArguments) -> Said:
    kwargs = arguments.checkpointing_kwargs
    if not arguments.recomputes or not kwargs:
        return
    name = arguments.checkpointing_kwargs_name
    every = kwargs.get("every_n_layers", 1)
    if isinstance(every, int) and every > 1:
        yield _unplanned(name, f"every_n_layers {every} recomputes fewer layers, taken as all of them")
    if kwargs.get("offload"):
        yield _unplanned(name, "offload keeps checkpoints in pinned host memory, taken as on the GPU")
    if kwargs.get("use_reentrant"):
        yield _unplanned(name, "use_reentrant recomputes layers to their end, taken as not reentrant")
