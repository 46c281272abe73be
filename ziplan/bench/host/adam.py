"""A process that updates parameters with Adam on the processors it is given, as training does.

It is run as `python -m ziplan.bench.host.adam` with one line of JSON as its argument, says "ready"
with what it runs, waits for a line with the moments to begin and to end at (CLOCK_MONOTONIC, which all
processes share), and writes the begin and end of every update.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from ziplan.bench.lifetime import end_with_parent


def main() -> None:
    """Say what is ready, wait for the word, work, tell the times. Libraries' own words go to stderr."""
    end_with_parent()
    asked = json.loads(sys.argv[1])
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, set(asked["cpus"]))
    update, what = _optimizer(asked)
    update()
    print(json.dumps({"ready": what}), file=told, flush=True)
    line = sys.stdin.readline()
    if not line:
        return
    begin, end = json.loads(line)
    print(json.dumps(_times(update, begin, end)), file=told, flush=True)


def _times(update: Callable[[], None], begin: float, end: float) -> list[tuple[float, float]]:
    times = []
    while time.monotonic() < begin:
        time.sleep(0.001)
    before = time.monotonic()
    while before < end:
        update()
        after = time.monotonic()
        times.append((before, after))
        before = after
    return times


def _optimizer(asked: dict[str, Any]) -> tuple[Callable[[], None], str]:
    """One step of the optimizer over random parameters and gradients, and its name."""
    import torch

    torch.set_num_threads(len(asked["cpus"]))
    parameter = torch.nn.Parameter(torch.randn(asked["params"]))
    parameter.grad = torch.randn(asked["params"])
    if asked["compiled"]:
        optimizer: Any = _deepspeed(asked["compiled"])([parameter], lr=1e-5, weight_decay=0.1)
        name = f"DeepSpeedCPUAdam of DeepSpeed {version('deepspeed')}"
    else:
        optimizer = torch.optim.AdamW([parameter], lr=1e-5, weight_decay=0.1, fused=True)
        name = f"fused AdamW of torch {torch.__version__}"
    return optimizer.step, name


def _deepspeed(compiled: str) -> Any:
    """DeepSpeedCPUAdam over the file that it was compiled to.

    The file is put where DeepSpeed keeps what it has loaded (`op_builder/builder.py: OpBuilder.load`): it
    would otherwise ask PyTorch, which takes a lock and may compile.
    """
    # By name: DeepSpeed has no types.
    builder = import_module("deepspeed.ops.op_builder.builder").OpBuilder
    spec = spec_from_file_location(os.path.basename(compiled).partition(".")[0], compiled)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    builder._loaded_ops["cpu_adam"] = module  # noqa: SLF001 - it has no other way
    return import_module("deepspeed.ops.adam").DeepSpeedCPUAdam


if __name__ == "__main__":
    main()
