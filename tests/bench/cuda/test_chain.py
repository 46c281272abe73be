"""The way from a drive to a GPU: its rate alone and beside copies, which GPU, how much is written."""

import os

import pytest

from ziplan.bench.benchmark import Options, Task
from ziplan.bench.cuda.chain import file_reader
from ziplan.bench.cuda.chain_rates import chain_rates, near_and_far, planned_bytes
from ziplan.bench.cuda.links import pairs
from ziplan.bench.cuda.session import Session
from ziplan.bench.measurement import CannotMeasure, Waived
from ziplan.bench.topology import FoundDrive, FoundFolder, FoundGpu, PciDevice, Topology


def test_a_block_is_read_and_then_copied(run, monkeypatch):
    """Of one thread: times add up. Beside copies it gets half of the link, they all of it while it reads."""
    monkeypatch.setenv("READ_RATE", "200e6")
    found = run("chain", h2d=100e6)
    assert found["alone"] == pytest.approx(1 / (1 / 200e6 + 1 / 100e6), rel=0.01)
    assert found["beside"] == pytest.approx(1 / (1 / 200e6 + 1 / 50e6), rel=0.01)
    reading, copying = 1 / 200e6, 1 / 50e6
    both = (reading * 100e6 + copying * 50e6) / (reading + copying)
    assert found["copies"] == pytest.approx(both, rel=0.02)


def test_the_whole_way_with_a_file(run, monkeypatch, tmp_path):
    monkeypatch.setenv("FOLDER", str(tmp_path))
    found = run("file", h2d=10e9, largest=2**20, memory=2**30)
    reasons = found.reasons()
    if any("direct" in reason or "O_DIRECT" in reason for reason in reasons.values()):
        pytest.skip(f"needs a folder that takes direct I/O: {next(iter(reasons.values()))}")
    assert set(found) == {"chain.data.gpu.0.bandwidth", "chain.data.gpu.0.beside_copies_bandwidth"}
    assert not reasons
    assert all(rate > 0 for rate in found.values())
    assert list(tmp_path.iterdir()) == [], "no file is left"


def test_a_file_is_read_again_and_again(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"".join(bytes([index]) * 16 for index in range(3)))
    fd = os.open(path, os.O_RDONLY)
    try:
        read, buffer = file_reader(fd, 48, 16), bytearray(16)
        seen = []
        for turn in range(5):
            read(memoryview(buffer), turn)
            seen.append(buffer[0])
        assert seen == [0, 1, 2, 0, 1]
        os.truncate(path, 40)
        with pytest.raises(CannotMeasure, match="a read of 16 bytes did 8"):
            file_reader(fd, 48, 16)(memoryview(buffer), 2)
    finally:
        os.close(fd)


class Near:
    """A GPU, as far as its place matters."""

    def __init__(self, index, numa_node):
        self.index, self.numa_node = index, numa_node


def folder(kind="drive", path="/data"):
    return FoundFolder(path=path, label="data", kind=kind, filesystem="xfs", drives=("nvme0n1",))


def drive(numa_node):
    device = PciDevice(address="0000:81:00.0", numa_node=numa_node)
    return FoundDrive(name="nvme0n1", kind="nvme", pci=device)


@pytest.mark.parametrize(
    ("of_drive", "of_gpus", "wanted"),
    [
        (1, (0, 0, 1, 1), [2, 0]),
        (0, (0, 0), [0]),
        (None, (0, 1), [0]),
        (3, (0, 1), [0]),
    ],
)
def test_the_gpu_near_the_drive_and_one_that_is_not(of_drive, of_gpus, wanted):
    gpus = tuple(Near(index, node) for index, node in enumerate(of_gpus))
    topology = Topology(drives=(drive(of_drive),))
    assert [gpu.index for gpu in near_and_far(topology, folder(), gpus)] == wanted


def test_a_folder_in_memory_is_no_drive():
    task = Task(Topology(folders=(folder("memory", "/dev/shm"),)))
    session = Session(driver=None, gpus=(Near(0, None),), task=task)
    alone, beside = chain_rates(session)
    assert isinstance(alone, Waived)
    assert (alone.name, beside.name) == (
        "chain.data.gpu.0.bandwidth",
        "chain.data.gpu.0.beside_copies_bandwidth",
    )
    assert "/dev/shm is in memory" in alone.reason


def test_a_folder_that_cannot_be_written_waives_its_chain(tmp_path):
    missing = tmp_path / "missing"
    task = Task(Topology(folders=(folder(path=str(missing)),)))
    session = Session(driver=None, gpus=(Near(0, None),), task=task)
    assert [str(missing) in result.reason for result in chain_rates(session)] == [True, True]


def test_what_is_written_stays_within_what_is_left(tmp_path):
    place = Topology(folders=(folder(path=str(tmp_path)), folder(path=str(tmp_path))))
    assert planned_bytes(Task(place, Options(max_write=2**29), bytes_left=2**20)) == 0
    assert planned_bytes(Task(place, Options(max_write=2**29))) <= 2**29


def test_pairs_of_gpus():
    assert pairs(1, False) == []
    assert pairs(2, False) == pairs(2, True) == [(0, 1), (1, 0)]
    assert len(pairs(4, False)) == 12
    assert len(pairs(8, True)) == 8
    eight = pairs(8, False)
    assert len(set(eight)) == 16
    assert all(b - a in (1, 4, -4, -7) for a, b in eight)


def test_numbers_of_gpus_are_those_of_nvidia():
    from ziplan.bench.cuda.benchmarks import BENCHMARKS

    def seconds(name, *vendors):
        gpus = tuple(FoundGpu(pci=PciDevice(address=""), vendor=vendor) for vendor in vendors)
        (found,) = (each for each in BENCHMARKS if each.name == name)
        return found.cost(Task(Topology(gpus=gpus))).seconds

    assert seconds("gpu.host") == seconds("gpu.host", "0x1002")
    assert seconds("gpu.host") < seconds("gpu.host", "0x10de") < seconds("gpu.host", "0x10de", "0x10de")
