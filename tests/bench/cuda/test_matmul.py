"""Matrix products through a torch that has a planted rate on a clock of its own."""

import sys
from types import SimpleNamespace

import pytest

from ziplan.bench.cuda.matmul import SIDE, matmul_rates, product_rates, torch_with_cuda
from ziplan.bench.measurement import CannotMeasure, Sampling


class Torch:
    """As much of torch as is used. Products take their time, and more of it once the GPU is hot."""

    def __init__(self, rate, hot_rate=None, capability=(9, 0), memory=10**12):
        self.rate, self.hot_rate, self.memory = rate, hot_rate or rate, memory
        self.__version__ = "0.0"
        self.now, self.used, self.precision = 0.0, 0, None
        torch = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.time = torch.now

            def synchronize(self):
                pass

            def elapsed_time(self, end):
                return 1e3 * (end.time - self.time)

        self.cuda = SimpleNamespace(
            Event=Event,
            device=lambda index: Entered(),
            get_device_capability=lambda index: capability,
            is_available=lambda: True,
        )
        self.bfloat16, self.float16, self.float32 = "bfloat16", "float16", "float32"

    def device(self, kind, index):
        return (kind, index)

    def set_float32_matmul_precision(self, precision):
        self.precision = precision

    def randn(self, rows, columns, device, dtype):
        self.used += rows * columns * (4 if dtype == "float32" else 2)
        if self.used > self.memory:
            raise RuntimeError("CUDA out of memory.\nTried to allocate more.")
        return SimpleNamespace(rows=rows, columns=columns)

    def empty_like(self, other):
        return SimpleNamespace(rows=other.rows, columns=other.columns)

    def matmul(self, left, right, out):
        hot = self.now > 1.5
        self.now += 2 * left.rows * left.columns * right.columns / (self.hot_rate if hot else self.rate)


class Entered:
    def __enter__(self):
        return self

    def __exit__(self, *details):
        return None


def measured(torch, precision="bf16", heat=2.0):
    (found,) = product_rates(torch, ["gpu.0.matmul." + precision], precision, Sampling(retry=False), heat)
    return found


def test_the_rate_is_that_of_a_hot_gpu():
    found = measured(Torch(700e12, hot_rate=600e12))
    assert found.name == "gpu.0.matmul.bf16"
    assert found.unit == "FLOP/s"
    assert found.maximum == pytest.approx(600e12, rel=0.01)
    cold = measured(Torch(700e12, hot_rate=600e12), heat=0.0)
    assert cold.maximum == pytest.approx(700e12, rel=0.01), "without heat its cold windows would count"


def test_a_slow_gpu_takes_one_product_a_window():
    assert measured(Torch(1e12)).median == pytest.approx(1e12, rel=0.01)


def test_fp32_is_computed_as_fp32():
    torch = Torch(60e12)
    assert "without TF32" in measured(torch, "fp32").method
    assert torch.precision == "highest"


def test_bf16_of_a_gpu_without_it():
    with pytest.raises(CannotMeasure, match="does not multiply bf16"):
        measured(Torch(60e12, capability=(7, 5)))
    assert measured(Torch(60e12, capability=(7, 5)), "fp16").median == pytest.approx(60e12, rel=0.01)


def test_too_little_memory():
    with pytest.raises(CannotMeasure, match=r"torch: CUDA out of memory\.$"):
        measured(Torch(60e12, memory=2 * SIDE * SIDE))


def test_no_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(CannotMeasure, match="torch, which is not installed"):
        torch_with_cuda()


def test_a_torch_without_cuda(monkeypatch):
    torch = Torch(1e12)
    torch.cuda.is_available = lambda: False
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(CannotMeasure, match=r"torch 0\.0 has no CUDA here"):
        torch_with_cuda()


def test_every_gpu_and_precision_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", Torch(600e12))
    monkeypatch.setattr("ziplan.bench.cuda.matmul.Driver", lambda: SimpleNamespace(device_count=lambda: 2))
    task = SimpleNamespace(options=SimpleNamespace(quick=True, sampling=Sampling(retry=False)))
    found = [result.name for result in matmul_rates(task)]
    assert found == [f"gpu.{index}.matmul.{name}" for name in ("bf16", "fp16", "fp32") for index in (0, 1)]
