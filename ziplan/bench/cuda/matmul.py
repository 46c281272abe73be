"""The rate of a large matrix product: through torch, whose libraries training computes with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from ziplan.bench import names
from ziplan.bench.benchmark import Task
from ziplan.bench.cuda.driver import Driver
from ziplan.bench.cuda.session import each
from ziplan.bench.cuda.stopwatch import together
from ziplan.bench.measurement import CannotMeasure, Result, Sampling, Waived, Window

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
    """Every precision, all GPUs at once: in training all are busy, and a node's power and air are shared."""
    indices = range(Driver().device_count())
    wanted = {
        precision: [names.gpu(index, f"matmul.{precision}") for index in indices] for precision in DTYPES
    }
    try:
        torch = torch_with_cuda()
    except CannotMeasure as problem:
        yield from (Waived(name=name, reason=str(problem)) for one in wanted.values() for name in one)
        return
    heat = HEAT_SECONDS / 4 if task.options.quick else HEAT_SECONDS
    for precision, asked in wanted.items():
        yield from each(asked, product_rates(torch, asked, precision, task.options.sampling, heat))


def torch_with_cuda() -> Any:
    """Torch; CannotMeasure where it is not there or was built without CUDA."""
    try:
        torch: Any = import_module("torch")
    except ImportError:
        raise CannotMeasure("matrix products are measured through torch, which is not installed") from None
    if not torch.cuda.is_available():
        raise CannotMeasure(f"torch {torch.__version__} has no CUDA here: install a build with it")
    return torch


def product_rates(
    torch: Any, wanted: Sequence[str], precision: str, sampling: Sampling, heat: float, side: int = SIDE
) -> Iterator[Result]:
    """One precision, normally distributed numbers: zeros would draw less power and run faster."""
    capabilities = [tuple(torch.cuda.get_device_capability(index)) for index in range(len(wanted))]
    if precision == "bf16" and min(capabilities) < BF16_SINCE:
        raise CannotMeasure("this GPU does not multiply bf16")
    torch.set_float32_matmul_precision("highest")
    method = f"torch.matmul {torch.__version__}, {side} x {side} x {side}, random, {DTYPES[precision]}"
    method += " without TF32" if precision == "fp32" else ""
    method += ", all GPUs at once" if len(wanted) > 1 else ""
    try:
        products = Products(torch, len(wanted), DTYPES[precision], side)
        spent = 0.0
        while spent < heat:
            spent += products.windows()[0].seconds
        yield from together(wanted, "all", products.windows, method, sampling, "FLOP/s")[1]
    except RuntimeError as problem:  # out of memory among them
        raise CannotMeasure(f"torch: {str(problem).splitlines()[0]}") from None


class Products:
    """Products of two square matrices on each of so many GPUs."""

    def __init__(self, torch: Any, count: int, dtype: str, side: int) -> None:
        self._torch, self._flops, self._repeats = torch, 2.0 * side**3, 1
        self._each = []
        for index in range(count):
            device = torch.device("cuda", index)
            left, right = (torch.randn(side, side, device=device, dtype=getattr(torch, dtype)) for _ in "ab")
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in "ab")
            self._each.append((index, left, right, torch.empty_like(left), begin, end))

    def windows(self) -> list[Window]:
        """So many products on each GPU that the fastest works for the shortest window."""
        while min(seconds := self._run()) < SHORTEST:
            grown = int(self._repeats * min(100.0, 1.2 * SHORTEST / max(min(seconds), 1e-9)))
            self._repeats = max(self._repeats + 1, grown)
        return [Window(self._repeats * self._flops, one) for one in seconds]

    def _run(self) -> list[float]:
        """Seconds that each GPU took."""
        for index, left, right, out, begin, end in self._each:
            with self._torch.cuda.device(index):
                begin.record()
                for _ in range(self._repeats):
                    self._torch.matmul(left, right, out=out)
                end.record()
        for *_, end in self._each:
            end.synchronize()
        return [float(begin.elapsed_time(end)) / 1e3 for *_, begin, end in self._each]
