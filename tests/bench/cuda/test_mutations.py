"""What goes wrong on real machines, and what breaks when a part of the method is left out: each is seen."""

import pytest

from ziplan.bench.benchmark import Options, Task
from ziplan.bench.cuda.benchmarks import BENCHMARKS
from ziplan.bench.measurement import Waived
from ziplan.bench.process import watched
from ziplan.bench.topology import Topology

PLANTED = {"h2d": 200e6, "d2h": 200e6, "duplex": 300e6}
SLOW_HOST = {"call_us": 20_000}
"""Each call of the driver takes 20 ms, longer than a copy."""


pytestmark = pytest.mark.slow


def near(value):
    return pytest.approx(value, rel=0.01)


def test_a_slow_host_does_not_show(run):
    found = run("host", **PLANTED, **SLOW_HOST)
    assert found["gpu.0.host_to_device"] == near(200e6)
    assert found["gpu.0.both.host_to_device"] == near(150e6)


def test_without_the_spin_kernel_it_would(run):
    found = run("host", "no_spin", **PLANTED, **SLOW_HOST)
    assert found["gpu.0.host_to_device"] < 0.9 * 200e6


def test_without_a_common_start_two_directions_would_not_meet(run):
    found = run("host", "no_common_start", **PLANTED, **SLOW_HOST)
    assert found["gpu.0.both.device_to_host"] != near(150e6)


def test_without_the_common_window_what_goes_on_alone_would_count(run):
    """Two copies take the one GPU 62 ms, three the other 74 ms, or less: the rest has the port for itself."""
    planted = {"gpus": 2, "gpus_per_root": 2, "h2d.0": 200e6, "h2d.1": 400e6, "root_in": 450e6}
    right = run("together", largest=6_200_000, **planted)
    assert right["gpu.1.beside_all.host_to_device"] == near(250e6)
    wrong = run("together", "uncommon_window", largest=6_200_000, **planted)
    assert wrong["gpu.1.beside_all.host_to_device"] > 1.05 * 250e6


@pytest.mark.parametrize("mutation", ["sync_under_spin", "late_load"])
def test_whatever_waits_for_a_held_stream_is_told(run, mutation):
    found = run("memory", mutation, memory=2**26, hbm=2e9)
    assert "held for more than 10 s" in found["gpu.0.hbm.copy_bandwidth"]


def test_a_queue_deeper_than_a_stream_takes_is_told(run):
    """Buffers of 4 KiB: hundreds of units in a window."""
    assert run("host", largest=4096, latency_us=0, h2d=100e6)["gpu.0.host_to_device"] == near(100e6)
    found = run("host", "deep_queue", largest=4096, latency_us=0, h2d=100e6)
    assert "held for more than 10 s" in found["gpu.0.host_to_device"]


@pytest.mark.parametrize("kind", ["host", "together", "peers"])
def test_a_flipped_bit_waives_the_rate(run, kind):
    found = run(kind, gpus=2, corrupt=1, peer_out=1e9, **PLANTED)
    assert found
    assert all("1 of 65536 vectors of 16 bytes arrived wrong" in str(reason) for reason in found.values())
    unseen = run(kind, "no_check", gpus=2, corrupt=1, peer_out=1e9, **PLANTED)
    assert not unseen.reasons(), "the check is what sees it"


def test_too_little_memory_waives_what_needs_it(run):
    found = run("host", memory=2**19, **PLANTED)
    assert set(found.values()) == {"CUDA: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"}
    found = run("memory", memory=2**22, hbm=2e9)
    assert len(found.reasons()) == 3
    assert "more than an eighth of the free memory of GPU 0" in found["gpu.0.hbm.read_bandwidth"]


def test_no_gpu(run):
    assert run("host", gpus=0) == {"": "NVIDIA's driver shows no GPU"}


def test_no_driver(run, tmp_path):
    found = run("host", library=tmp_path)
    if "" not in found:
        pytest.skip("this machine has a driver")
    assert found == {"": "no NVIDIA driver: libcuda.so.1 is not found"}


def test_no_bindings(run):
    found = run("host", "no_bindings")
    assert "cuda-bindings cannot be imported" in found[""]
    assert "pip install 'ziplan[cuda13]'" in found[""]


def test_no_compiler(run):
    assert "no NVRTC to compile the kernels with" in run("host", "no_compiler")[""]


def test_a_gpu_that_no_compiler_serves(run):
    assert "sm_200" in run("host", capability=200)[""]


def test_a_hung_kernel_costs_what_comes_after_it(fake_driver, monkeypatch):
    """The first rate is checked, the check of the second never ends; the process that waits is ended."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_driver))
    monkeypatch.setenv("FAKE_CUDA", "h2d=3.2e9;d2h=3.2e9;hang_after=1")
    (benchmark,) = (each for each in BENCHMARKS if each.name == "gpu.host")
    # An eighth of the memory is one buffer of 16 MiB, the smallest that a link is measured with.
    task = Task(Topology(memory_bytes=2**27), Options(quick=True), seconds=60.0)
    measured, waived = watched(benchmark, task, silence=12.0)
    assert (measured.name, measured.median) == ("gpu.0.host_to_device", near(3.2e9))
    assert isinstance(waived, Waived)
    assert waived.name == "gpu.host"
