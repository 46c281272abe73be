"""Measure one kind of thing and print each result as a line of JSON: [name, value or reason].

Run by the tests in a process of its own, with the fake driver in the loader's path: `measure.py KIND
LARGEST_BUFFER [MUTATION ...]`. A mutation breaks the method in one place, to show that tests would see it.
"""

import ctypes
import json
import os
import sys
from dataclasses import replace
from types import SimpleNamespace

from ziplan.bench import timeline
from ziplan.bench.benchmark import Options, Task
from ziplan.bench.cuda import benchmarks, chain_rates, device, driver, links, memory, stopwatch
from ziplan.bench.cuda.chain import Beside, lanes, through
from ziplan.bench.cuda.session import Session
from ziplan.bench.measurement import CannotMeasure, Measured, Noted, summary
from ziplan.bench.topology import FoundFolder, Topology


def chain(session):
    """Blocks that take the host their time to read, through one thread, alone and beside copies."""
    library = ctypes.CDLL("libcuda.so.1")
    work = library.fake_host_work
    work.restype, work.argtypes = ctypes.c_double, [ctypes.c_double]
    timeline.time = SimpleNamespace(perf_counter=lambda: work(0.0))
    rate, seconds, size = float(os.environ["READ_RATE"]), 2.0, session.largest

    def read(view, turn):
        assert len(view) == size
        work(size / rate)

    (gpu,) = session.gpus
    with lanes(gpu, 1, size) as ways, lanes(gpu, 1, size) as (other,):
        yield summary("alone", "B/s", through(ways, read, seconds).rates(0, seconds, 8), "chain")
        copies = Beside(other, 300)
        done = through(ways, read, seconds, copies)
        yield summary("beside", "B/s", done.rates(0, seconds, 8), "chain")
        yield summary("copies", "B/s", [copies.rate()], "copies")


def chain_of_a_file(session):
    """The whole way with a real file, of 16 MiB in $FOLDER; its rate is that of the host's clock."""
    chain_rates.SMALLEST_FILE = chain_rates.LARGEST_FILE = 16 * 2**20
    chain_rates.file_size = lambda folder, options: 2**30
    chain_rates.seconds_of = lambda task: (5.0, 0.5)
    folder = FoundFolder(path=os.environ["FOLDER"], label="data", kind="drive", filesystem="ext4")
    task = Task(Topology(folders=(folder,)), Options(quick=True))
    yield from chain_rates.chain_rates(replace(session, task=task))


KINDS = {
    "file": chain_of_a_file,
    "chain": chain,
    "facts": benchmarks.facts,
    "host": links.host_links,
    "together": links.host_links_together,
    "peers": links.peer_links,
    "memory": memory.memory_rates,
}


def no_spin():
    """Nothing holds the streams."""
    device.Gpu.spin = lambda self, stream, flag, gave_up, patience: None


def no_common_start():
    """The other streams do not wait for the first."""
    call = driver.Driver.call

    def quiet(self, name, *arguments):
        return None if name == "cuStreamWaitEvent" else call(self, name, *arguments)

    driver.Driver.call = quiet


def late_load():
    """Kernels are launched for the first time, and so loaded, under a held stream."""
    stopwatch.Stopwatch.rehearse = lambda self: None


def sync_under_spin():
    """The host waits for a stream that waits for the host."""
    enqueue = stopwatch.Stopwatch._enqueue

    def waiting(self):
        enqueue(self)
        self._driver.call("cuStreamSynchronize", self._streams[0])

    stopwatch.Stopwatch._enqueue = waiting


def deep_queue():
    """More is queued than a stream takes."""
    stopwatch.MOST_UNITS = 600


def no_check():
    """Nobody looks at what was copied."""
    device.Gpu.wrong_vectors = lambda self, address, size: 0


def uncommon_window():
    """Each work's rate over its own time, as if all had run all of it."""
    stopwatch.bisect_right = lambda ends, moment: len(ends)


def no_bindings():
    """cuda-bindings is not installed."""
    sys.modules["cuda.bindings.driver"] = None


def no_compiler():
    """There is no NVRTC."""
    device.compilers = lambda: ()


def main(kind, largest, *mutations):
    for mutation in mutations:
        globals()[mutation]()
    try:
        session = replace(Session.of(Task(Topology(), Options())), largest=int(largest))
        for result in KINDS[kind](session):
            told(result)
    except CannotMeasure as problem:
        print(json.dumps(["", str(problem)]), flush=True)


def told(result):
    if isinstance(result, Measured):
        print(json.dumps([result.name, result.median]), flush=True)
    else:
        print(
            json.dumps([result.name, result.text if isinstance(result, Noted) else result.reason]), flush=True
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
