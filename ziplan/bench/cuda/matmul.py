"""The rate of a large matrix product: through torch, whose libraries training computes with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from ziplan.bench import names
from ziplan.bench.benchmark import Task
from ziplan.bench.cuda.driver import Driver
from ziplan.bench.cuda.session import each
from ziplan.bench.measurement import CannotMeasure, Result, Sampling, Waived, sampled, windows_of

SIDE = 8192
"""Of the square matrices: as wide as a layer of a 70B model, and many tiles for every multiprocessor."""
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
BF16_SINCE = (8, 0)
"""Compute capability from which on a GPU multiplies bf16 itself."""
HEAT_SECONDS = 2.0
"""Products before the first window: clocks fall to what power and cooling let them hold."""
SHORTEST = 0.25
"""Seconds of a window: a power limiter moves the clocks in steps of tens of milliseconds."""


def matmul_rates(task: Task) -> Iterator[Result]:
    """Every GPU and precision."""
    count = Driver().device_count()
    wanted = [(index, precision) for index in range(count) for precision in DTYPES]
    try:
        torch = torch_with_cuda()
    except CannotMeasure as problem:
        for index, precision in wanted:
            yield Waived(name=names.gpu(index, f"matmul.{precision}"), reason=str(problem))
        return
    for index, precision in wanted:
        name = names.gpu(index, f"matmul.{precision}")
        heat = HEAT_SECONDS / 4 if task.options.quick else HEAT_SECONDS
        yield from each([name], product_rate(torch, index, precision, task.options.sampling, heat))


def torch_with_cuda() -> Any:
    """Torch; CannotMeasure where it is not there or was built without CUDA."""
    try:
        torch: Any = import_module("torch")
    except ImportError:
        raise CannotMeasure("matrix products are measured through torch, which is not installed") from None
    if not torch.cuda.is_available():
        raise CannotMeasure(f"torch {torch.__version__} has no CUDA here: install a build with it")
    return torch


def product_rate(
    torch: Any, index: int, precision: str, sampling: Sampling, heat: float, side: int = SIDE
) -> Iterator[Result]:
    """One GPU, one precision, normally distributed numbers: zeros would draw less power and run faster."""
    if precision == "bf16" and tuple(torch.cuda.get_device_capability(index)) < BF16_SINCE:
        raise CannotMeasure("this GPU does not multiply bf16")
    torch.set_float32_matmul_precision("highest")
    try:
        work = _products(torch, index, precision, side)
        window = windows_of(work, 2.0 * side**3, SHORTEST)
        spent = 0.0
        while spent < heat:
            spent += window().seconds
        method = f"torch.matmul {torch.__version__}, {side} x {side} x {side}, random, {DTYPES[precision]}"
        if precision == "fp32":
            method += " without TF32"
        name = names.gpu(index, f"matmul.{precision}")
        yield sampled(name, "FLOP/s", window, method, sampling)
    except RuntimeError as problem:  # out of memory among them
        raise CannotMeasure(f"torch: {str(problem).splitlines()[0]}") from None


def _products(torch: Any, index: int, precision: str, side: int) -> Callable[[int], float]:
    """So many products one after another; returns their seconds."""
    device, dtype = torch.device("cuda", index), getattr(torch, DTYPES[precision])
    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(left)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def work(repeats: int) -> float:
        with torch.cuda.device(index):
            begin.record()
            for _ in range(repeats):
                torch.matmul(left, right, out=out)
            end.record()
            end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    return work
