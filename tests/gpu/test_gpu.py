"""On a real GPU: the kernels do what they do on the host, and rates are those that torch gets."""

import ctypes
import struct
import time

import pytest
from gpu.compare import ours, spread, theirs

from ziplan.bench.benchmark import Options, Task
from ziplan.bench.cuda.benchmarks import BENCHMARKS
from ziplan.bench.cuda.device import SEED
from ziplan.bench.cuda.stopwatch import Stopwatch
from ziplan.bench.discover.topology import discover
from ziplan.bench.measurement import CannotMeasure, Measured, relative_spread
from ziplan.bench.process import watched

pytestmark = pytest.mark.gpu

LINKS_WITHIN, MEMORY_WITHIN, REPEATS_WITHIN = 0.03, 0.05, 0.03


@pytest.fixture
def gpu(session):
    return session.gpus[0]


def pattern(index):
    """Of one vector: xorshift32 of its index, and three odd multiples."""
    x = SEED ^ (index * 2654435761 & 0xFFFFFFFF)
    x ^= x << 13 & 0xFFFFFFFF
    x ^= x >> 17
    x ^= x << 5 & 0xFFFFFFFF
    return tuple(x * odd & 0xFFFFFFFF for odd in (1, 2246822519, 3266489917, 668265263))


def test_the_pattern_is_that_of_the_host(gpu):
    size = 1_000_003 * 16
    with gpu.memory(size) as device, gpu.pinned(size) as host, gpu.stream() as stream:
        gpu.fill(device, size)
        gpu.driver.call("cuMemcpyDtoHAsync", host, device, size, stream)
        gpu.driver.call("cuStreamSynchronize", stream)
        content = ctypes.string_at(host, size)
    for index in (0, 1, 2, 4711, 500_000, 1_000_002):
        assert struct.unpack_from("<4I", content, 16 * index) == pattern(index)


@pytest.mark.parametrize("place", [0, 16 * 77 + 5, 16 * 1_000_003 - 1])
def test_one_wrong_byte_is_one_wrong_vector(gpu, place):
    size = 1_000_003 * 16
    with gpu.memory(size) as device, gpu.stream() as stream:
        gpu.fill(device, size)
        assert gpu.wrong_vectors(device, size) == 0
        right = struct.pack("<4I", *pattern(place // 16))[place % 16]
        gpu.driver.call("cuMemsetD8Async", device + place, right ^ 1, 1, stream)
        gpu.driver.call("cuStreamSynchronize", stream)
        assert gpu.wrong_vectors(device, size) == 1


def test_the_copy_kernel_copies_all(gpu):
    size = 1_000_003 * 16
    with gpu.memory(size) as origin, gpu.memory(size) as target, gpu.stream() as stream:
        gpu.fill(origin, size)
        gpu.poison(target, size)
        gpu.run("copy", stream, target, origin, size)
        gpu.driver.call("cuStreamSynchronize", stream)
        assert gpu.wrong_vectors(target, size) == 0


def test_a_held_stream_is_let_go_after_its_patience(gpu):
    with gpu.pinned(4096) as page, gpu.stream() as stream:
        flag, gave_up = (ctypes.c_uint32.from_address(page + offset) for offset in (0, 128))
        flag.value = gave_up.value = 0
        begin = time.perf_counter()
        gpu.spin(stream, page, page + 128, 0.3)
        gpu.driver.call("cuStreamSynchronize", stream)
        assert 0.3 <= time.perf_counter() - begin < 1.0
        assert gave_up.value == 1


def test_waiting_for_a_held_stream_is_told(session, monkeypatch):
    monkeypatch.setattr("ziplan.bench.cuda.stopwatch.PATIENCE", 0.3)
    enqueue = Stopwatch._enqueue

    def waiting(self):
        enqueue(self)
        self._driver.call("cuStreamSynchronize", self._streams[0])

    monkeypatch.setattr(Stopwatch, "_enqueue", waiting)
    from ziplan.bench.cuda.transfers import host_to_device

    with pytest.raises(CannotMeasure, match="something waited for them"):
        session.rate("name", host_to_device(session.gpus[0], 2**24), "copies")


def test_rates_are_those_of_torch(session, torch):
    mine, others = ours(session), theirs(torch)
    for name in ("gpu.0.host_to_device", "gpu.0.device_to_host"):
        assert mine[name] == pytest.approx(others[name], rel=LINKS_WITHIN), name
    name = "gpu.0.hbm.copy_bandwidth"
    assert mine[name] == pytest.approx(others[name], rel=MEMORY_WITHIN)


def test_repeats_agree(session):
    runs = [ours(session) for _ in range(3)]
    for name in runs[0]:
        assert spread([run[name] for run in runs]) < REPEATS_WITHIN, name


@pytest.mark.parametrize("name", ["gpu", "gpu.host", "gpu.host.all", "gpu.peers", "gpu.memory"])
def test_a_benchmark_in_its_own_process(session, name):
    (benchmark,) = (each for each in BENCHMARKS if each.name == name)
    task = Task(discover(()), Options(quick=True), seconds=120.0)
    expected = benchmark.cost(task).seconds
    begin = time.monotonic()
    found = list(watched(benchmark, task, silence=60.0))
    assert time.monotonic() - begin < 2 * expected + 5
    for result in found:
        if isinstance(result, Measured):
            assert relative_spread(result) < 0.05, result
        else:
            assert result.name.endswith(".name"), result
