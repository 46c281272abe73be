"""Arguments of the Trainer whose value is one of a few words, and those that nothing takes.

transformers 5 (`training_args.py:OptimizerNames`, `trainer.py`), accelerate 1.15
(`utils/dataclasses.py:DynamoBackend`), Liger 0.8 (`transformers/monkey_patch.py`) and PyTorch
(`utils/checkpoint.py:checkpoint`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ziplan.files import nearest
from ziplan.runtimes.deepspeed.reading.huggingface import TrainerArguments
from ziplan.runtimes.deepspeed.reading.kinds import written
from ziplan.runtimes.deepspeed.reading.remarks import Notes

OPTIMIZERS = frozenset(
    (
        *("adafactor", "adagrad", "adalomo", "adamw_8bit", "adamw_anyprecision", "adamw_apex_fused"),
        *("adamw_bnb_8bit", "adamw_hf", "adamw_torch", "adamw_torch_4bit", "adamw_torch_8bit"),
        *("adamw_torch_fused", "adamw_torch_npu_fused", "adamw_torch_xla", "ademamix", "ademamix_8bit"),
        *("apollo_adamw", "apollo_adamw_layerwise", "galore_adafactor", "galore_adafactor_layerwise"),
        *("galore_adamw", "galore_adamw_8bit", "galore_adamw_8bit_layerwise", "galore_adamw_layerwise"),
        *("grokadamw", "lion_32bit", "lion_8bit", "lomo", "paged_adamw_32bit", "paged_adamw_8bit"),
        *("paged_ademamix_32bit", "paged_ademamix_8bit", "paged_lion_32bit", "paged_lion_8bit", "rmsprop"),
        *("rmsprop_bnb", "rmsprop_bnb_32bit", "rmsprop_bnb_8bit", "schedule_free_adamw"),
        *("schedule_free_radam", "schedule_free_sgd", "sgd", "stable_adamw"),
    )
)
"""The Trainer's values of `optim`, those of releases before 5 included."""

BACKENDS = (
    *("no", "eager", "aot_eager", "inductor", "aot_ts_nvfuser", "nvprims_nvfuser", "cudagraphs", "ofi"),
    *("fx2trt", "onnxrt", "tensorrt", "aot_torchxla_trace_once", "torchxla_trace_once", "ipex", "tvm"),
    *("hpu_backend", "neuron"),
)
"""accelerate's values of `torch_compile_backend`, in small or capital letters."""

MODES = ("default", "lite", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""PyTorch's values of `torch_compile_mode`."""

LIGER_SWITCHES = (
    *("rope", "rms_norm", "layer_norm", "swiglu", "geglu", "cross_entropy", "fused_linear_cross_entropy"),
)
"""Liger's names of its kernels; of those that a family lacks it takes no notice."""

OF_CHECKPOINT = (
    *("every_n_layers", "offload"),
    *("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state"),
)
"""What the Trainer takes out of `activation_checkpointing_kwargs`, and what torch's `checkpoint` takes."""


def tell_words(arguments: TrainerArguments, notes: Notes) -> None:
    """Note values that are none of the words that there are, and words that are passed over."""
    backend, mode = arguments.torch_compile_backend, arguments.torch_compile_mode
    if "optim" in arguments.stated:
        _refuse_unless("optim", arguments.optim, OPTIMIZERS, notes)
    if backend is not None:
        _refuse_unless("torch_compile_backend", backend.lower(), BACKENDS, notes)
    if mode is not None:
        _refuse_unless("torch_compile_mode", mode, MODES, notes)
    if arguments.use_liger_kernel:
        _tell_switches(arguments.liger_kernel_config or {}, notes)
    if arguments.recomputes:
        _tell_checkpointing(arguments.checkpointing_kwargs_name, arguments.checkpointing_kwargs, notes)


def _refuse_unless(name: str, value: str, known: Iterable[str], notes: Notes) -> None:
    """Refuse a value that is none of a few."""
    if value not in known:
        message = f"{name}: {written(value)} is none that there is"
        notes.add("rejected", (name,), message, nearest(value, known) or "leave it out")


def _tell_switches(config: Mapping[str, Any], notes: Notes) -> None:
    for name, value in config.items():
        path = ("liger_kernel_config", name)
        if name not in LIGER_SWITCHES:
            message = f"{name}: Liger has no such kernel, and passes over it"
            notes.add("ignored", path, message, _one_of(name, LIGER_SWITCHES))
        elif not isinstance(value, bool):
            taken = "on" if value else "off"
            message = f"{name}: expected true or false, not {written(value)}, which Python takes as {taken}"
            notes.add("ignored", path, message, "write true or false")


def _tell_checkpointing(argument: str, kwargs: Mapping[str, Any], notes: Notes) -> None:
    for name in kwargs:
        path, fix = (argument, name), _one_of(name, OF_CHECKPOINT)
        message = f"{name}: torch's checkpoint takes no such argument"
        if name in OF_CHECKPOINT:
            continue
        if kwargs.get("use_reentrant"):
            notes.add("rejected", path, f"{message}, and raises", fix, "training")
        else:
            notes.add("ignored", path, f"{message}, and hands it on to the layers", fix)


def _one_of(name: str, known: Iterable[str]) -> str:
    return nearest(name, known) or f"known are {', '.join(known)}"
