"""What `DeepSpeedConfig` itself raises on outside its pydantic sections: the look-ups, replayed.

Each check is of one key at the top; it yields the place below it, and what is wrong there. Source:
`runtime/config.py`, and the functions named below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ziplan.files.document import Path, dotted
from ziplan.runtimes.deepspeed.reading.kinds import WrongValueError, unexpected
from ziplan.runtimes.deepspeed.reading.loose_tables import DTYPES
from ziplan.runtimes.deepspeed.reading.remarks import Notes

Wrong = Iterator[tuple[Path, WrongValueError]]

TAGS = ("WARN", "IGNORE", "FAIL")
WRITERS = ("MOCK", "PYTHON", "FAST")
UNITS = ("REPLICA", "SOCKET", "MACHINE")


def check_lookups(data: Mapping[str, Any], notes: Notes) -> None:
    """Note everything at the top that makes `DeepSpeedConfig` raise."""
    for name, check in CHECKS.items():
        if name in data:
            for at, error in check(data[name]):
                notes.add("rejected", (name, *at), f"{dotted((name, *at))}: {error}", error.fix)
    _check_timing(data, notes)


def _mapping(value: Any) -> Wrong:
    if not isinstance(value, dict):
        yield (), unexpected("a mapping", value)


def _mapping_or_null(value: Any) -> Wrong:
    return _mapping({} if value is None else value)


def _of(value: Any, key: str, check: Callable[[Any], Wrong]) -> Wrong:
    """`check` of a key's value, where a mapping has the key."""
    if isinstance(value, dict) and key in value:
        for at, error in check(value[key]):
            yield (key, *at), error


def _one_of(words: tuple[str, ...], value: Any, nullable: bool = False) -> Wrong:
    """A word of a few, in small or capital letters."""
    if value is None and nullable:
        return
    if not isinstance(value, str) or value.upper() not in words:
        yield (), unexpected(" or ".join(word.lower() for word in words), value)


def _communication_type(value: Any) -> Wrong:
    return _one_of(("FP32", "FP16", "BF16"), value, nullable=True)


def _reduction(value: Any) -> Wrong:
    return _one_of(("MEAN", "SUM"), value)


def _optimizer(value: Any) -> Wrong:
    """`get_optimizer_name`, `get_optimizer_params` and `_do_warning_check`."""
    yield from _mapping(value)
    if not isinstance(value, dict):
        return
    kind, params = value.get("type"), value.get("params")
    if kind is not None and not isinstance(kind, str):
        yield ("type",), unexpected("the optimizer's name", kind)
    elif kind is not None and params is not None:
        for at, error in _mapping(params):
            yield ("params", *at), error
        norm = params.get("max_grad_norm", 0) if isinstance(params, dict) else 0
        if not isinstance(norm, int | float):
            yield ("params", "max_grad_norm"), unexpected("a number", norm)


def _autocast(value: Any) -> Wrong:
    yield from _mapping(value)
    yield from _of(value, "dtype", _dtype)
    yield from _of(value, "lower_precision_safe_modules", _names)


def _dtype(value: Any) -> Wrong:
    if not isinstance(value, str) or value not in DTYPES.name.split(" or "):
        yield (), unexpected("a type of numbers, as bfloat16", value)


def _names(value: Any) -> Wrong:
    if not isinstance(value, list | str | dict) or not all(isinstance(part, str) for part in value):
        yield (), unexpected("a list of names", value)


def _checkpoint(value: Any) -> Wrong:
    """`get_checkpoint_tag_validation_mode`, `get_checkpoint_parallel_write_pipeline` and those they call."""
    yield from _mapping(value)
    yield from _of(value, "tag_validation", lambda tag: _one_of(TAGS, tag))
    yield from _of(value, "parallel_write", _parallel_write)
    yield from _of(value, "writer", _writer)


def _parallel_write(value: Any) -> Wrong:
    yield from _mapping(value)
    yield from _of(value, "pipeline_stage", _true_or_false)


def _true_or_false(value: Any) -> Wrong:
    if not isinstance(value, int | float) or value not in (0, 1):
        yield (), unexpected("true or false", value)


def _writer(value: Any) -> Wrong:
    yield from _mapping_or_null(value)
    yield from _of(value, "type", lambda kind: _one_of(WRITERS, kind, nullable=True))
    yield from _of(value, "data_parallel", lambda unit: _one_of(UNITS, unit, nullable=True))


def _data_types(value: Any) -> Wrong:
    yield from _mapping(value)
    yield from _of(value, "keep_in_fp32_modules", _kept_modules)


def _kept_modules(value: Any) -> Wrong:
    names = isinstance(value, list) and all(isinstance(part, str) for part in value)
    if value != "auto" and not names:
        yield (), unexpected('"auto" or a list of names', value)


def _autotuning(value: Any) -> Wrong:
    yield from _mapping(value)
    for folder in ("results_dir", "exps_dir"):
        yield from _of(value, folder, _not_empty)
    yield from _of(value, "model_info", _mapping_or_null)


def _not_empty(value: Any) -> Wrong:
    if not value:
        yield (), unexpected("a folder", value)


def _expert_parallel(value: Any) -> Wrong:
    """`module_inject/auto_ep_config.py:parse_autoep_config`."""
    if value:
        yield from _mapping(value)
        yield from _of(value, "load_balance_coeff", _no_coefficient)


def _no_coefficient(value: Any) -> Wrong:
    if value is not None:
        yield (), WrongValueError("is not supported by DeepSpeed", "leave it out")


def _data_efficiency(value: Any) -> Wrong:
    """`data_pipeline/config.py:get_data_efficiency_config`."""
    yield from _mapping(value)
    yield from _of(value, "data_sampling", _data_sampling)
    yield from _of(value, "data_routing", _data_routing)


def _data_sampling(value: Any) -> Wrong:
    yield from _mapping(value)
    yield from _of(value, "curriculum_learning", _curriculum)
    yield from _of(value, "dynamic_batching", _dynamic_batching)


def _curriculum(value: Any) -> Wrong:
    yield from _mapping(value)
    if isinstance(value, dict) and value.get("enabled") and "curriculum_metrics" not in value:
        yield (), WrongValueError("is enabled without curriculum_metrics", "add curriculum_metrics")


def _dynamic_batching(value: Any) -> Wrong:
    yield from _mapping(value)
    for name in ("min_batch_size", "max_batch_size"):
        yield from _of(value, name, _whole)
    if isinstance(value, dict) and value.get("enabled"):
        yield from _of({"max_tokens": None, **value}, "max_tokens", _whole)


def _whole(value: Any) -> Wrong:
    try:
        int(value)
    except (TypeError, ValueError, OverflowError):
        yield (), unexpected("a whole number", value)


def _data_routing(value: Any) -> Wrong:
    yield from _mapping(value)
    yield from _of(value, "random_ltd", _mapping)


def _vocabulary_size(value: Any) -> Wrong:
    if value and not isinstance(value, int | float):
        yield (), unexpected("a whole number", value)


def _pipeline(value: Any) -> Wrong:
    return _mapping(value)


def _timers(value: Any) -> Wrong:
    """`utils/config.py:get_timers_config` asks whether "throughput" is in it; text and lists can be asked."""
    asked = isinstance(value, list | str) and "throughput" not in value
    if not isinstance(value, dict) and not asked:
        yield (), unexpected("a mapping", value)


def _check_timing(data: Mapping[str, Any], notes: Notes) -> None:
    """`wall_clock_breakdown | flops_profiler.enabled` must be something that Python can or."""
    profiler = data.get("flops_profiler", {})
    enabled = profiler.get("enabled", False) if isinstance(profiler, dict) else False
    breakdown = data.get("wall_clock_breakdown", False)
    try:
        breakdown | enabled
    except TypeError:
        at: Path = ("wall_clock_breakdown",)
        value = breakdown
        if isinstance(breakdown, int):
            at, value = ("flops_profiler", "enabled"), enabled
        error = unexpected("true or false", value)
        notes.add("rejected", at, f"{dotted(at)}: {error}", error.fix)


CHECKS: Mapping[str, Callable[[Any], Wrong]] = {
    "communication_data_type": _communication_type,
    "seq_parallel_communication_data_type": _communication_type,
    "gradient_allreduce_op": _reduction,
    "activation_checkpointing": _mapping,
    "torch_autocast": _autocast,
    "optimizer": _optimizer,
    "scheduler": _mapping,
    "flops_profiler": _mapping,
    "autotuning": _autotuning,
    "pipeline": _pipeline,
    "data_efficiency": _data_efficiency,
    "checkpoint": _checkpoint,
    "data_types": _data_types,
    "aio": _mapping_or_null,
    "expert_parallel": _expert_parallel,
    "vocabulary_size": _vocabulary_size,
    "timers": _timers,
}
