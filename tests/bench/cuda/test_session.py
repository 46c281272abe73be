"""What needs no driver: where memory is taken from, how large buffers are, which windows count."""

import os
from types import SimpleNamespace

import pytest

from ziplan.bench.benchmark import Task
from ziplan.bench.cuda.device import numa_node, on_cpus
from ziplan.bench.cuda.session import MIB, Session, each
from ziplan.bench.cuda.stopwatch import together
from ziplan.bench.measurement import CannotMeasure, Noted, Sampling, Waived, Window
from ziplan.bench.topology import FoundGpu, PciDevice, Topology


def test_a_gpu_is_found_by_its_address_however_it_is_written():
    device = PciDevice(address="0000:1a:00.0", numa_node=1)
    topology = Topology(gpus=(FoundGpu(pci=PciDevice(address="0000:19:00.0")), FoundGpu(pci=device)))
    assert numa_node(topology, "0000:1A:00.0") == 1
    assert numa_node(topology, "0000:19:00.0") is None
    assert numa_node(topology, "0000:1b:00.0") is None


def test_memory_is_taken_on_the_cpus_of_a_node_and_then_all_are_there_again():
    before = os.sched_getaffinity(0)
    one = min(before)
    with on_cpus([one, 10**6]):
        assert os.sched_getaffinity(0) == {one}
    assert os.sched_getaffinity(0) == before
    for none in ([], [10**6]):
        with on_cpus(none):
            assert os.sched_getaffinity(0) == before
    with pytest.raises(CannotMeasure), on_cpus([one]):
        raise CannotMeasure("out of memory")
    assert os.sched_getaffinity(0) == before


def session(memory=0.0, limit=None, largest=2**40):
    topology = Topology(memory_bytes=memory, memory_limit_bytes=limit)
    return Session(driver=None, gpus=(), task=Task(topology), largest=largest)


@pytest.mark.parametrize(
    ("memory", "limit", "buffers", "wanted"),
    [
        (2**40, None, 8, 256),
        (0.0, None, 8, 256),
        (2**33, None, 8, 128),
        (2**40, 2**33, 8, 128),
        (2**27, None, 1, 16),
    ],
)
def test_buffers_leave_seven_eighths_of_the_hosts_memory(memory, limit, buffers, wanted):
    assert session(memory, limit).pinned_size(buffers, 256 * MIB, 16 * MIB) == wanted * MIB


def test_too_little_memory_is_told():
    with pytest.raises(CannotMeasure, match=r"2 x 16 MiB .* an eighth of the host's memory, 128 MiB"):
        session(2**27).pinned_size(2, 256 * MIB, 16 * MIB)


def test_of_a_gpu_its_free_memory_counts():
    gpu = SimpleNamespace(index=3, free_bytes=lambda: 2**30)
    assert session().device_size(gpu, 2, 256 * MIB, MIB) == 64 * MIB
    with pytest.raises(CannotMeasure, match="of the free memory of GPU 3"):
        session().device_size(gpu, 2, 256 * MIB, 128 * MIB)


def test_what_did_not_come_is_waived_with_the_reason():
    def results():
        yield Noted(name="first", text="", method="said")
        raise CannotMeasure("the second failed")

    found = list(each(["first", "second", "third"], results()))
    assert [result.name for result in found] == ["first", "second", "third"]
    assert found[1] == Waived(name="second", reason="the second failed")


def rates_of(*attempts, retry=True):
    """Of two works: in each attempt two warm-ups, then these rates of the first; 5 B/s of the other."""
    script = iter([pair for warm, *rates in attempts for pair in [warm] * 2 + rates])
    return together(
        ["one", "two"],
        "both",
        lambda: [Window(next(script) * 2.0, 2.0), Window(5.0 * 3.0, 3.0)],
        "scripted",
        Sampling(samples=3, retry=retry),
    )


def test_each_work_and_all_of_them():
    whole, (one, two) = rates_of((10.0, 10.0, 11.0, 10.5))
    assert (whole.name, whole.median) == ("both", 15.5)
    assert (one.name, one.median, one.minimum, one.maximum) == ("one", 10.5, 10.0, 11.0)
    assert (two.median, two.iqr, two.n) == (5.0, 0.0, 3)


def test_an_unstable_attempt_is_repeated_and_the_steadier_one_kept():
    whole, (one, _) = rates_of((10.0, 10.0, 20.0, 40.0), (10.0, 10.0, 10.1, 10.2))
    assert (whole.median, one.median) == (15.1, 10.1)
    assert not whole.unstable
    whole, (one, _) = rates_of((10.0, 10.0, 12.0, 14.0), (10.0, 10.0, 20.0, 40.0))
    assert one.median == 12.0
    assert one.unstable
    whole, _ = rates_of((10.0, 10.0, 20.0, 40.0), retry=False)
    assert whole.unstable
