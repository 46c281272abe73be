"""What a config states where ziplan would derive it: DeepSpeed's own settings, under DeepSpeed's own names.

A ledger and a step of the config as it is take these before those that follow from a plan
(`knobs.py`). Sizes are as DeepSpeed counts them: elements, except where a name or the table says bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from ziplan.runtimes.deepspeed.leaves import LEAF_CLASSES
from ziplan.runtimes.deepspeed.reading.kinds import AUTO
from ziplan.runtimes.deepspeed.reading.walk import SECTIONS, Values
from ziplan.units import Precision

Device = Literal["none", "cpu", "nvme"]


class ParamOffload(NamedTuple):
    """`offload_param`; `buffer_size` and `max_in_cpu` are elements of one rank's shards."""

    device: Device = "none"
    nvme_path: str | None = None
    buffer_count: int = 5
    buffer_size: int = 100_000_000
    max_in_cpu: int = 1_000_000_000
    pin_memory: bool = True


class OptimizerOffload(NamedTuple):
    """`offload_optimizer`; `ratio` is the share of the sub-groups on the host."""

    device: Device = "none"
    nvme_path: str | None = None
    buffer_count: int = 4
    pin_memory: bool = True
    pipeline_read: bool = False
    pipeline_write: bool = False
    fast_init: bool = False
    ratio: float = 1.0
    super_offload: bool = False
    cpuadam_cores_perc: float = 0.8


class Aio(NamedTuple):
    """`aio`; `block_size` is bytes."""

    block_size: int = 1_048_576
    queue_depth: int = 8
    intra_op_parallelism: int = 1
    single_submit: bool = False
    overlap_events: bool = True
    use_gds: bool = False


class Types(NamedTuple):
    """Types of numbers: what computes, the optimizer's copy of the weights and its state, gradients.

    `gradients` is that of accumulated gradients (`grad_accum_dtype`), `communication` of reduced ones.
    """

    compute: Precision
    master: Precision
    optimizer_states: Precision
    gradients: str
    communication: str
    autocast: bool = False


class StatedOptimizer(NamedTuple):
    """`optimizer`; `name` is None where code gives one."""

    name: str | None = None
    params: Mapping[str, Any] = {}


class Settings(NamedTuple):
    """Everything that the config decides beside the plan; keys of ZeRO without their `stage3_`."""

    stage: int
    contiguous_gradients: bool
    reduce_scatter: bool
    use_multi_rank_bucket_allreduce: bool
    reduce_bucket_size: int
    allgather_partitions: bool
    allgather_bucket_size: int
    overlap_comm: bool
    round_robin_gradients: bool
    sub_group_size: int
    prefetch_bucket_size: int
    max_live_parameters: int
    max_reuse_distance: int
    param_persistence_threshold: int
    model_persistence_threshold: int
    module_granularity_threshold: int
    use_all_reduce_for_fetch_params: bool
    allgather_sequential: bool
    gather_16bit_weights_on_model_save: bool
    zero_hpz_partition_size: int
    zero_quantized_weights: bool
    zero_quantized_nontrainable_weights: bool
    zero_quantized_gradients: bool
    memory_efficient_linear: bool
    leaf_classes: tuple[str, ...]
    offload_param: ParamOffload
    offload_optimizer: OptimizerOffload
    aio: Aio
    types: Types
    gradient_clipping: float
    optimizer: StatedOptimizer


_OF_TYPE = {
    "torch.float32": "fp32",
    "float32": "fp32",
    "float": "fp32",
    "torch.float16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "torch.bfloat16": "bf16",
    "bfloat16": "bf16",
    "torch.int8": "int8",
}


def settings_of(values: Values) -> Settings:
    """The settings of a config that has been read and accepted."""
    zero = values["zero_optimization"]
    names = [key.other or key.name for key in SECTIONS["zero_optimization"].keys]
    named = dict(zip(names, (zero[key.name] for key in SECTIONS["zero_optimization"].keys), strict=True))
    fields = {name: named[name] for name in Settings._fields if name in named}
    aio = values["aio"] if isinstance(values["aio"], dict) else {}
    fields |= {
        "offload_param": ParamOffload(**(zero["offload_param"] or {})),
        "offload_optimizer": OptimizerOffload(**(zero["offload_optimizer"] or {})),
        "aio": Aio(**aio),
        "leaf_classes": _leaf_classes(zero["leaf_module"]),
        "types": types_of(values),
        "gradient_clipping": values["gradient_clipping"],
        "optimizer": _optimizer(values["optimizer"]),
    }
    return Settings(**fields)


def _leaf_classes(section: Mapping[str, Any] | None) -> tuple[str, ...]:
    """`leaf_module.classes`: one, or a list."""
    classes = (section or {}).get("classes", LEAF_CLASSES)
    return (classes,) if isinstance(classes, str) else tuple(classes)


def types_of(values: Values) -> Types:
    """`engine.py:get_data_types`, and the types of what the optimizer keeps."""
    fp16, bf16 = values["fp16"], values["bf16"]
    compute: Precision = "fp16" if fp16["enabled"] else "bf16" if bf16["enabled"] else "fp32"
    own = (fp16["enabled"] and fp16["fp16_master_weights_and_grads"]) or (
        bf16["enabled"] and bf16["bf16_master_weights_and_grads"]
    )
    stated = values["data_types"]["grad_accum_dtype"] if isinstance(values["data_types"], dict) else None
    reduced = values["communication_data_type"]
    autocast = values["torch_autocast"]
    return Types(
        compute=compute,
        master=compute if own else "fp32",
        optimizer_states="bf16" if own and bf16["bf16_optimizer_states"] else "fp32",
        gradients=_OF_TYPE.get(stated, str(stated)) if stated else compute,
        communication=reduced.lower() if reduced else compute,
        autocast=bool(autocast and autocast.get("enabled")),
    )


def _optimizer(section: Any) -> StatedOptimizer:
    if not isinstance(section, dict) or not section.get("type") or section["type"] == AUTO:
        return StatedOptimizer()
    return StatedOptimizer(section["type"], dict(section.get("params") or {}))
