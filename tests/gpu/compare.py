"""One table on a real GPU: what ziplan measures, what plain torch gets, and how far repeats lie apart.

    PYTHONPATH=tests python -m gpu.compare [--repeats 5] [--largest BYTES] [--minutes 6]

Takes some three minutes; no repeat begins after `--minutes`. Torch's column is empty without a CUDA build.
"""

import argparse
import statistics
import time
from collections import defaultdict
from dataclasses import replace

from ziplan.bench.benchmark import Options, Task
from ziplan.bench.cuda.links import DIRECTIONS, host_links
from ziplan.bench.cuda.matmul import DTYPES, SIDE, matmul_rates, torch_with_cuda
from ziplan.bench.cuda.memory import BUFFER as MEMORY_BUFFER
from ziplan.bench.cuda.memory import memory_rates
from ziplan.bench.cuda.session import Session
from ziplan.bench.cuda.transfers import BUFFER as LINK_BUFFER
from ziplan.bench.discover.topology import discover
from ziplan.bench.measurement import CannotMeasure, Measured

SECONDS = 0.5
"""Of each of torch's rates."""


def opened(largest=2**40):
    """The GPUs of this machine, with what is known of its NUMA nodes."""
    return replace(Session.of(Task(discover(()), Options())), largest=largest)


def ours(session):
    """What ziplan measures of the first GPU, by name; what was waived is told."""
    first = replace(session, gpus=session.gpus[:1])
    found = {}
    for results in (host_links(first), memory_rates(first), matmul_rates(session.task)):
        for result in results:
            if isinstance(result, Measured) and result.name.startswith("gpu.0."):
                found[result.name] = result.median
            elif not isinstance(result, Measured):
                print(f"{result.name}: {result.reason}", flush=True)
    return found


def timed(torch, work, streams):
    """Seconds of one of `work(stream)`, on all streams at once, over half a second of them."""
    for stream in streams:
        work(stream)
    torch.cuda.synchronize()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < SECONDS:
        for _ in range(8):
            for stream in streams:
                work(stream)
        torch.cuda.synchronize()
        count += 8
    return (time.perf_counter() - begin) / count


def copies(torch, size, both):
    """Pinned copies by torch: B/s of each direction, alone or both at once."""
    pairs = {}
    for direction in DIRECTIONS:
        host = torch.empty(size, dtype=torch.uint8, pin_memory=True).random_()
        device = torch.empty(size, dtype=torch.uint8, device="cuda").random_()
        target, source = (device, host) if direction == "host_to_device" else (host, device)
        pairs[torch.cuda.Stream()] = (direction, target, source)

    def work(stream):
        with torch.cuda.stream(stream):
            _, target, source = pairs[stream]
            target.copy_(source, non_blocking=True)

    if both:
        rate = size / timed(torch, work, list(pairs))
        return {f"gpu.0.both.{direction}": rate for direction, _, _ in pairs.values()}
    return {f"gpu.0.{pairs[one][0]}": size / timed(torch, work, [one]) for one in pairs}


def device_memory(torch, size):
    """A large copy and a large fill on the GPU by torch."""
    words = size // 4
    origin = torch.empty(words, dtype=torch.int32, device="cuda").random_()
    target = torch.empty_like(origin)
    stream = [torch.cuda.current_stream()]
    return {
        "gpu.0.hbm.copy_bandwidth": 2 * size / timed(torch, lambda _: target.copy_(origin), stream),
        "gpu.0.hbm.write_bandwidth": size / timed(torch, lambda _: target.fill_(0x5EED), stream),
    }


def products(torch):
    """Matrix products by torch, by the host's clock."""
    found = {}
    for precision, dtype in DTYPES.items():
        left, right = (torch.randn(SIDE, SIDE, device="cuda", dtype=getattr(torch, dtype)) for _ in "ab")
        seconds = timed(torch, lambda _, left=left, right=right: left @ right, [torch.cuda.current_stream()])
        found[f"gpu.0.matmul.{precision}"] = 2 * SIDE**3 / seconds
    return found


def theirs(torch, largest=2**40):
    """All that torch can tell of the first GPU."""
    free, _ = torch.cuda.mem_get_info()
    link, memory = min(LINK_BUFFER, largest), min(MEMORY_BUFFER, largest, free // 8)
    every = {**copies(torch, link, both=False), **copies(torch, link, both=True)}
    return {**every, **device_memory(torch, memory), **products(torch)}


def table(mine, others):
    """Medians in GB/s or GFLOP/s, their ratio, and how far the repeats of each lie apart."""
    yield f"{'G/s':28} {'ziplan':>10} {'torch':>10} {'ratio':>7} {'spread':>8} {'torch':>8}"
    for name, values in mine.items():
        own, other = statistics.median(values), others.get(name)
        row = f"{name:28} {own / 1e9:10.2f}"
        if other:
            middle = statistics.median(other)
            row += f" {middle / 1e9:10.2f} {own / middle:7.3f} {spread(values):8.2%} {spread(other):8.2%}"
        else:
            row += f" {'-':>10} {'-':>7} {spread(values):8.2%} {'-':>8}"
        yield row


def spread(values):
    """From the least to the most, of the median."""
    return (max(values) - min(values)) / statistics.median(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--largest", type=int, default=2**40, help="bytes of a buffer at the most")
    parser.add_argument("--minutes", type=float, default=6.0)
    asked = parser.parse_args()
    deadline = time.monotonic() + 60 * asked.minutes
    session = opened(asked.largest)
    try:
        torch = torch_with_cuda()
    except CannotMeasure as problem:
        torch = None
        print(problem)
    mine, others = defaultdict(list), defaultdict(list)
    for repeat in range(asked.repeats):
        if repeat and time.monotonic() > deadline:
            break
        for name, value in ours(session).items():
            mine[name].append(value)
        for name, value in (theirs(torch, asked.largest) if torch else {}).items():
            others[name].append(value)
        print(f"repeat {repeat + 1} of {asked.repeats}", flush=True)
    print(f"{session.gpus[0].name}, driver of CUDA {session.driver.version}")
    print("\n".join(table(mine, others)))


if __name__ == "__main__":
    main()
