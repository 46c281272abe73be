"""What is measured on GPUs, as the list of benchmarks takes it in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from ziplan.bench import names
from ziplan.bench.benchmark import Benchmark, Cost, Task
from ziplan.bench.cuda.links import host_links, host_links_together, pairs, peer_links
from ziplan.bench.cuda.matmul import DTYPES, HEAT_SECONDS, matmul_rates
from ziplan.bench.cuda.memory import WAYS, memory_rates
from ziplan.bench.cuda.session import Session
from ziplan.bench.measurement import Noted, Result, summary

NVIDIA = "0x10de"
"""NVIDIA's number as a vendor of PCI devices."""
OPENING_SECONDS = 3.0
"""A process of its own, the driver's start, a context on every GPU."""
RATE_SECONDS = 1.6
"""A rate: up to twenty-four windows of 60 ms, and buffers filled, looked at and freed."""
MATMUL_SECONDS = HEAT_SECONDS + 5.0
"""Up to seventeen windows of 0.3 s."""


def facts(session: Session) -> Iterator[Result]:
    """Which GPUs there are."""
    method = f"CUDA driver, which serves CUDA {session.driver.version}"
    yield summary(names.GPU_COUNT, "1", [len(session.gpus)], method)
    for gpu in session.gpus:
        about = f"{method}; compute capability {gpu.architecture / 10:.1f}"
        yield Noted(name=names.gpu(gpu.index, "name"), text=gpu.name, method=about)
        yield summary(names.gpu(gpu.index, "memory"), "B", [gpu.memory_bytes], about)


def _chain_rates(session: Session) -> Iterator[Result]:
    from ziplan.bench.cuda.chain_rates import chain_rates  # numpy: not in the command that asks the cost

    return chain_rates(session)


def _opened(measure: Callable[[Session], Iterator[Result]], task: Task) -> Iterator[Result]:
    """Run on the open GPUs; a CannotMeasure with the reason where there are none."""
    yield from measure(Session.of(task))


def _gpu_count(task: Task) -> int:
    return sum(gpu.vendor.lower() == NVIDIA for gpu in task.topology.gpus)


def _cost_of(rates: Callable[[int, bool], float], task: Task) -> Cost:
    """Opening the GPUs and so many rates, by their number and whether the run is quick."""
    count = _gpu_count(task)
    return Cost(OPENING_SECONDS + RATE_SECONDS * rates(count, task.options.quick) if count else 1.0)


def _cost_of_matmul(task: Task) -> Cost:
    each = MATMUL_SECONDS / 2 if task.options.quick else MATMUL_SECONDS
    return Cost(OPENING_SECONDS + each * len(DTYPES) if _gpu_count(task) else 1.0)


def _cost_of_chain(task: Task) -> Cost:
    from ziplan.bench.cuda.chain_rates import planned_bytes, seconds_of
    from ziplan.bench.storage.plan import measurable

    folders = len(measurable(task.topology.folders))
    if not _gpu_count(task) or not folders:
        return Cost(1.0)
    write, each = seconds_of(task)
    far = not task.options.quick and _gpu_count(task) > 1
    return Cost(OPENING_SECONDS + folders * (write + 2 * each) + 2 * each * far, planned_bytes(task))


BENCHMARKS = (
    Benchmark(
        "gpu", "which GPUs there are", partial(_cost_of, lambda count, quick: 0), partial(_opened, facts)
    ),
    Benchmark(
        "gpu.host",
        "each GPU's link to the host: in, out, both at once",
        partial(_cost_of, lambda count, quick: 3 * count),
        partial(_opened, host_links),
    ),
    Benchmark(
        "gpu.host.all",
        "all GPUs' links to the host at once",
        partial(_cost_of, lambda count, quick: 2.0 * (count > 1)),
        partial(_opened, host_links_together),
    ),
    Benchmark(
        "gpu.peers",
        "one GPU to another, and all to the next at once",
        partial(_cost_of, lambda count, quick: len(pairs(count, quick)) + (count > 1)),
        partial(_opened, peer_links),
    ),
    Benchmark(
        "gpu.memory",
        "each GPU's memory: copied, read, written",
        partial(_cost_of, lambda count, quick: len(WAYS)),
        partial(_opened, memory_rates),
    ),
    Benchmark("gpu.matmul", "large matrix products through torch", _cost_of_matmul, matmul_rates),
    Benchmark(
        "gpu.chain",
        "a file through page-locked memory to a GPU, alone and beside copies to it",
        _cost_of_chain,
        partial(_opened, _chain_rates),
    ),
)
