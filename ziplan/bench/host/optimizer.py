"""Parameters per second that the host's processors update: by the optimizer that training will run."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from typing import IO, Any, NamedTuple

from ziplan.bench import names
from ziplan.bench.benchmark import Benchmark, Cost, Task
from ziplan.bench.lifetime import started_by_this
from ziplan.bench.measurement import CannotMeasure, Measured, Noted, Result, now, summary
from ziplan.bench.timeline import operations, slices_of, steady
from ziplan.hardware.rates import ADAM_BYTES
from ziplan.laws.optimizer import cpu_adam_time_by_bandwidth
from ziplan.units import counted, show

MOST_PARAMS = 64_000_000
"""Parameters of a process: with gradients and moments 1 GiB, beyond any cache."""
FP32_STATE_BYTES = 16
"""Bytes of a parameter, its gradient and two moments, 4 each."""
MOST_SHARE = 1 / 8
IMPORTING_SECONDS = {"deepspeed": 11.0, "torch": 8.0}
OF_ONE = 1 / 3
"""Share of the time that one core is measured for; the rest is that of all."""
SAMPLES = 7
SLICE = 0.2


def _seconds(task: Task) -> float:
    return 3.0 if task.options.quick else 6.0


def compiled() -> str:
    """The file of DeepSpeed's optimizer where it has been compiled; empty where it has not.

    It is compiled with the package (DS_BUILD_CPU_ADAM=1) or when it is first used, into PyTorch's folder of
    extensions. A benchmark never compiles it: that takes minutes, and one that is ended meanwhile would leave
    PyTorch's lock behind, for which every later use would wait.
    """
    spec = find_spec("deepspeed")
    places = [
        f"{folder}/ops/adam/cpu_adam_op*.so" for folder in (spec and spec.submodule_search_locations) or ()
    ]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    if own := os.environ.get("TORCH_EXTENSIONS_DIR"):
        places.append(f"{own}/cpu_adam/cpu_adam.so")
    else:
        places.append(f"{cache}/torch_extensions/{python}*/cpu_adam/cpu_adam.so")
    found = [path for place in places for path in glob.glob(place)]
    return max(found, key=os.path.getmtime, default="")


def _kinds() -> list[str]:
    """The optimizers to try, the one that training would run first."""
    if find_spec("torch") is None:
        return []
    return ["deepspeed", "torch"] if find_spec("deepspeed") and compiled() else ["torch"]


def _cost(task: Task) -> Cost:
    kinds = _kinds()
    return Cost(IMPORTING_SECONDS[kinds[0]] + _seconds(task) if kinds else 0.5)


def _run(task: Task) -> Iterator[Result]:
    kinds = _kinds()
    reasons = [] if kinds else ["torch is not installed"]
    if find_spec("deepspeed") and "deepspeed" not in kinds:
        reasons.append("DeepSpeedCPUAdam has not been compiled: DeepSpeed does so when it is first used")
    for kind in kinds:
        try:
            yield from _measured(task, kind)
            break
        except CannotMeasure as error:
            reasons.append(f"{kind}: {error}")
    else:
        yield derived(task, "; ".join(reasons))
        return
    if reasons:
        yield Noted(name="cpu.adam", text="; ".join(reasons), method="what could not be run")


def derived(task: Task, reason: str) -> Measured:
    """The rate that the measured bandwidth of memory allows, marked as derived."""
    copy = task.earlier.get(names.DRAM_COPY)
    if copy is None:
        raise CannotMeasure(f"{reason}; and the bandwidth of memory, from which it follows, is not measured")

    def rate(bandwidth: float) -> float:
        return 1.0 / cpu_adam_time_by_bandwidth(
            params=1.0, optimizer_bytes_per_param=ADAM_BYTES, dram_bandwidth=bandwidth
        )

    return Measured(
        name=names.ADAM_RATE,
        unit="param/s",
        median=rate(copy.median),
        iqr=rate(copy.iqr),
        minimum=rate(copy.minimum),
        maximum=rate(copy.maximum),
        n=copy.n,
        unstable=copy.unstable,
        method=f"{names.DRAM_COPY} at {ADAM_BYTES:g} bytes a parameter: an upper bound ({reason})",
        when=now(),
        kind="derived",
    )


class _Group(NamedTuple):
    """A process at work, and the processors it has."""

    process: subprocess.Popen[str]
    cpus: tuple[int, ...]


def _cpu_groups(task: Task) -> list[tuple[int, ...]]:
    """The processors of each NUMA node: a process each, whose memory is then near."""
    usable = set(task.topology.working_cpus)
    groups = [tuple(sorted(usable & set(cpus))) for cpus in task.topology.numa_cpus.values()]
    return [group for group in groups if group] or [tuple(sorted(usable))]


def _measured(task: Task, kind: str) -> tuple[Measured, Measured]:
    """Of all cores at once, and then of one core alone: of a rank that has one thread."""
    groups, seconds = _cpu_groups(task), _seconds(task)
    limit = task.topology.memory_limit_bytes or task.topology.memory_bytes
    processes = (*groups, groups[0][:1])
    params = min(
        MOST_PARAMS, int(MOST_SHARE * limit / FP32_STATE_BYTES / len(processes)) if limit else MOST_PARAMS
    )
    with ExitStack() as stack:
        running = [_Group(stack.enter_context(_started(cpus, params, kind)), cpus) for cpus in processes]
        what, *_ = [f"{_answer(group.process)['ready']}, fp32" for group in running]
        every = _rates(running[:-1], params, (1 - OF_ONE) * seconds)
        one = _rates(running[-1:], params, OF_ONE * seconds)
    threads = sum(len(group.cpus) for group in running[:-1])
    many = f"{counted(threads, 'thread')} in {len(groups)} process{'es' if len(groups) > 1 else ''}"
    each = f"{show(params, 'param')} each"
    return (
        summary(names.ADAM_RATE, "param/s", every, f"{what}, {many} (one a NUMA node), {each}"),
        summary(names.CORE_ADAM_RATE, "param/s", one, f"{what}, 1 thread on one core, {each}"),
    )


def _rates(running: Sequence[_Group], params: int, seconds: float) -> list[float]:
    """Parameters per second of some processes together, slice by slice."""
    begin = time.monotonic() + 0.2
    for group in running:
        _say(group.process, [begin, begin + seconds])
    times = [_answer(group.process) for group in running]
    shifted = [[(b - begin, e - begin) for b, e in each] for each in times]
    full = min(seconds, *(each[-1][1] for each in shifted))
    done = operations([pair for each in shifted for pair in each], params)
    return steady(done.rates(0.0, full, slices_of(full, SLICE, SAMPLES)), SAMPLES)


class _started:  # noqa: N801 - used as a function
    """A process that gets ready to update parameters; ended when it is no longer needed."""

    def __init__(self, cpus: Sequence[int], params: int, kind: str) -> None:
        compiled_to = compiled() if kind == "deepspeed" else ""
        asked = json.dumps({"cpus": list(cpus), "params": params, "compiled": compiled_to})
        self.process = subprocess.Popen(  # noqa: S603 - this interpreter, a module of this package
            [sys.executable, "-m", "ziplan.bench.host.adam", asked],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**started_by_this(), "OMP_NUM_THREADS": str(len(cpus))},
        )

    def __enter__(self) -> subprocess.Popen[str]:
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _say(process: subprocess.Popen[str], what: object) -> None:
    try:
        print(json.dumps(what), file=_pipe(process.stdin), flush=True)
    except OSError:
        raise CannotMeasure("its process ended before it began") from None


def _answer(process: subprocess.Popen[str]) -> Any:
    line = _pipe(process.stdout).readline()
    if not line:
        raise CannotMeasure(f"its process ended with code {process.wait()} before it answered")
    return json.loads(line)


BENCHMARKS = (Benchmark("optimizer", "Adam on the host: parameters a second, all cores, one", _cost, _run),)
