"""Settings that DeepSpeed obeys and ziplan's ledger and step do not know yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ziplan.files.document import Path
from ziplan.runtimes.deepspeed.reading.raw import Read
from ziplan.runtimes.deepspeed.reading.remarks import Notes
from ziplan.runtimes.deepspeed.reading.settings import Settings

OPTIMIZERS = {"adam": "adamw", "adamw": "adamw", "lion": "lion", "sgd": "sgd", "adafactor": "adafactor"}
"""DeepSpeed's names of optimizers, to ziplan's; Adam keeps what AdamW keeps."""


def tell_unplanned(data: Mapping[str, Any], read: Read, settings: Settings, notes: Notes) -> None:
    """Note each of them."""
    for at, what in (*_zero(read, settings), *_sections(data), *_types(settings), *_optimizer(settings)):
        notes.add("not_planned", at, f"{at[-1]}: {what}, which ziplan does not plan")


Found = Iterator[tuple[Path, str]]


def _zero(read: Read, settings: Settings) -> Found:
    zero = "zero_optimization"
    for name, least, what in (
        ("zero_hpz_partition_size", 2, "keeps a second copy of the weights"),
        ("zero_quantized_weights", 1, "moves quantized weights"),
        ("zero_quantized_nontrainable_weights", 1, "keeps frozen weights quantized"),
        ("zero_quantized_gradients", 1, "moves quantized gradients"),
        ("stage3_module_granularity_threshold", 1, "fetches small modules together"),
    ):
        if settings.stage == 3 and read.values[zero][name] >= least:
            yield (zero, name), what
    leaf = read.values[zero]["leaf_module"] or {}
    for name in ("names", "name_suffixes"):
        # By class a family's block of experts is told; a name may be that of any module.
        if settings.stage == 3 and leaf.get(name):
            yield (zero, "leaf_module", name), "fetches modules of these names whole"
    if read.values[zero]["zenflow"] is not None and settings.stage > 0:
        yield (zero, "zenflow"), "changes when the optimizer steps"
    if settings.offload_optimizer.super_offload and settings.offload_optimizer.device == "cpu":
        yield (zero, "offload_optimizer", "super_offload"), "steps during backward, in another process"
    if settings.aio.use_gds and settings.offload_param.device == "nvme":
        yield ("aio", "use_gds"), "reads NVMe into GPU memory"


def _sections(data: Mapping[str, Any]) -> Found:
    for name, key, least, what in (
        ("tensor_parallel", "autotp_size", 2, "divides layers over ranks"),
        ("expert_parallel", "enabled", 1, "divides experts over ranks"),
        ("hybrid_engine", "enabled", 1, "generates between steps"),
        ("compile", "deepcompile", 1, "compiles gathers and offload into the graph"),
    ):
        section = data.get(name)
        value = section.get(key) if isinstance(section, dict) else None
        if isinstance(value, int | float) and value >= least:
            yield (name, key), what
    sequences = data.get("sequence_parallel_size")
    if isinstance(sequences, int | float) and sequences > 1:
        yield ("sequence_parallel_size",), "divides sequences over ranks"


def _types(settings: Settings) -> Found:
    types = settings.types
    if types.autocast:
        yield ("torch_autocast",), "casts fp32 weights operator by operator"
    if types.compute == "fp16" and types.master == "fp16":
        yield ("fp16", "fp16_master_weights_and_grads"), "keeps master weights in fp16"
    mixed = types.compute == "bf16" and types.gradients == "fp32"
    if mixed and settings.stage == 1 and settings.offload_optimizer.device != "cpu":
        # engine.py:_do_optimizer_sanity_check takes BF16_Optimizer for just this.
        yield ("data_types", "grad_accum_dtype"), "takes another optimizer class in stage 1"


def _optimizer(settings: Settings) -> Found:
    name = settings.optimizer.name
    if name is not None and name.lower() not in OPTIMIZERS:
        yield ("optimizer", "type"), f"{name} keeps state of its own"
