"""Drives: what is refused, that no file is left, and that planted rates come back."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack

import numpy as np
import pytest
from bench.drive import loop, throttled, used

from ziplan.bench import names
from ziplan.bench.benchmark import Options, Task
from ziplan.bench.measurement import CannotMeasure, Measured, Waived
from ziplan.bench.storage import benchmarks, plan
from ziplan.bench.storage.load import MIB, Stream, random_block, run, stamped
from ziplan.bench.storage.plan import Times, apart, file_size, without_room, write_share
from ziplan.bench.storage.scratch import FREE_FLOOR, prove_direct, room, scratch
from ziplan.bench.topology import FoundFolder, FoundGpu, PciDevice, Topology
from ziplan.runtimes.deepspeed.reading.loose_tables import AIO


def folder(path, label="d", drives=("nvme0n1",), kind="drive"):
    return FoundFolder(path=str(path), label=label, kind=kind, filesystem="ext4", drives=drives)


def test_memory_that_takes_direct_io_is_found_out():
    if not os.path.isdir("/dev/shm") or room("/dev/shm").free < 2 * MIB:
        pytest.skip("no tmpfs here")
    with pytest.raises(CannotMeasure, match=r"O_DIRECT|direct"), scratch("/dev/shm"):
        pass


def test_a_file_read_through_memory_is_found_out(tmp_path):
    with (
        (tmp_path / "file").open("w+b") as file,
        pytest.raises(CannotMeasure, match="unaligned read succeeds"),
    ):
        # Buffered reads take any address: the proof is that direct ones do not.
        prove_direct_without_statx(file.fileno())


def prove_direct_without_statx(fd):
    from ziplan.bench.storage import scratch as module

    told, module._told_alignment = module._told_alignment, lambda _: None
    try:
        prove_direct(fd)
    finally:
        module._told_alignment = told


@pytest.mark.parametrize(
    ("path", "why"), [("/dev/null", "not a folder"), ("/nowhere", "No such file"), (__file__, "not a folder")]
)
def test_only_folders_are_written_to(path, why):
    with pytest.raises(CannotMeasure, match=why), scratch(path):
        pass


def test_a_raw_device_is_refused_by_name(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("a device node needs root")
    import stat

    node = tmp_path / "disk"
    try:
        os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(7, 200))
    except OSError as error:
        pytest.skip(f"no device nodes here: {error}")
    with pytest.raises(CannotMeasure, match="raw device"), scratch(str(node)):
        pass


def test_a_folder_that_may_not_be_written_says_so(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    with pytest.raises(CannotMeasure, match="Permission denied"), scratch(str(tmp_path)):
        pass


def test_the_file_has_no_name(direct):
    before = sorted(os.listdir(direct))
    with scratch(str(direct)) as file:
        assert sorted(os.listdir(direct)) == before
        assert os.fstat(file.fd).st_nlink == 0
    assert sorted(os.listdir(direct)) == before


def test_the_file_has_no_name_without_o_tmpfile_either(direct, monkeypatch):
    real = os.open

    def without(path, flags, *rest, **more):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "Operation not supported")
        return real(path, flags, *rest, **more)

    monkeypatch.setattr("ziplan.bench.storage.scratch.os.open", without)
    before = sorted(os.listdir(direct))
    with scratch(str(direct)) as file:
        assert sorted(os.listdir(direct)) == before
        assert os.fstat(file.fd).st_nlink == 0


def test_a_fifth_stays_free(monkeypatch):
    class Full:
        f_frsize, f_blocks, f_bavail = 4096, 1000 * 65536, 0

    monkeypatch.setattr("ziplan.bench.storage.scratch.os.statvfs", lambda _: Full)
    size = Full.f_frsize * Full.f_blocks
    Full.f_bavail = int(Full.f_blocks * (FREE_FLOOR + 0.01))
    assert file_size("/x", Options()) <= 0.01 * size
    Full.f_bavail = int(Full.f_blocks * (FREE_FLOOR - 0.01))
    with pytest.raises(CannotMeasure, match=r"19% of .* is free, and 20% stay free"):
        file_size("/x", Options())


def test_every_page_that_is_written_is_new_and_random():
    block = random_block(MIB)
    pages = set()
    for index in range(20):
        stamped(block, index)
        pages |= {bytes(page) for page in block.reshape(-1, 4096)}
    assert len(pages) == 20 * 256
    import zlib

    assert len(zlib.compress(bytes(block))) > 0.99 * MIB
    assert block.ctypes.data % 4096 == 0


def test_the_cap_on_bytes_is_shared_and_never_passed():
    topology = Topology(
        folders=(folder("/a", "a", ("x",)), folder("/b", "b", ("y",)), folder("/c", "c", ("y",)))
    )
    task = Task(topology, Options(max_write=100e9))
    # Three folders alone; of them two are on drives of their own and go at once.
    assert [each.label for each in apart(topology.folders)] == ["a", "b"]
    assert write_share(task, 3) == 100e9 / 5
    alone, together = (each.cost(task).bytes_written for each in benchmarks.BENCHMARKS)
    assert alone + together == pytest.approx(100e9)
    with_gpu = topology.model_copy(update={"gpus": (FoundGpu(pci=PciDevice(address="0000:01:00.0")),)})
    assert write_share(Task(with_gpu, Options(max_write=100e9)), 3) == 100e9 / 8
    assert write_share(Task(topology, Options(max_write=100e9), bytes_left=6e9), 3) == 2e9


def test_a_cap_bounds_what_is_really_written(direct):
    with scratch(str(direct)) as file:
        done = run([Stream(file.fd, "write", 64 * MIB, threads=4, most=10)], 5.0)
        assert done.streams[0].amount == 10 * MIB
        assert done.full < 5.0


def test_what_is_written_is_read_back(direct):
    with scratch(str(direct)) as file:
        run([Stream(file.fd, "write", 8 * MIB, threads=1, most=8)], 5.0)
        buffer = np.frombuffer(bytearray(8 * MIB), dtype=np.uint64)
        assert os.pread(file.fd, 0, 0) == b""
        with open(f"/proc/self/fd/{file.fd}", "rb") as plain:
            buffer = np.frombuffer(plain.read(), dtype=np.uint64)
    numbers = buffer.reshape(8, 256, 512)[:, :, 0]
    assert (numbers == np.arange(8)[:, None]).all()


def test_a_drive_that_fails_says_what_failed(tmp_path):
    with (
        (tmp_path / "file").open("rb+" if (tmp_path / "file").exists() else "wb") as file,
        pytest.raises(CannotMeasure, match=r"/mnt/x: read failed: Bad file descriptor"),
    ):
        run([Stream(file.fileno(), "read", 4 * MIB, "/mnt/x", threads=2)], 0.1)


def test_no_folder_is_waived_and_so_is_each_quantity_of_one_that_cannot():
    nothing = list(benchmarks.BENCHMARKS[0].run(Task(Topology())))
    assert {type(each) for each in nothing} == {Waived}
    refused = list(benchmarks.BENCHMARKS[0].run(Task(Topology(folders=(folder("/nowhere"),)))))
    assert [each.name for each in refused] == [names.storage("d", q) for q in benchmarks.QUANTITIES]
    assert all("No such file" in each.reason for each in refused)


SHORT = Times(write=3.0, depth=0.3, read=2.0, mixed=1.5, slice=0.1, write_all=3.0, read_all=2.0)


# The kernel throttles by slices of 100 ms (block/blk-throttle.c, DFL_THROTL_SLICE): windows are longer.
LONGER = Times(write=10.5, depth=0.5, read=4.0, mixed=1.0, slice=0.5, write_all=6.0, read_all=4.0)


ATTEMPTS = 3
"""Other work on the machine takes from a rate, and nothing adds to it: the best of a few counts."""


def assert_measured(number, task, wanted):
    """What a benchmark measures of a throttled drive is its throttle, within 3 %."""
    for _ in range(ATTEMPTS):
        found = {each.name: each for each in benchmarks.BENCHMARKS[number].run(task)}
        rates = {name: found[name].median for name in wanted}
        if rates == pytest.approx(wanted, rel=0.03):
            return
    if os.getloadavg()[0] > os.cpu_count():
        pytest.skip(f"the machine is busy: {os.getloadavg()[0]:.1f} processes want to run")
    assert rates == pytest.approx(wanted, rel=0.03)


@pytest.mark.slow
def test_a_throttled_drive_is_measured_at_its_throttle(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmarks, "times", lambda *_: LONGER)
    read, write = 300 * MIB, 200 * MIB
    with loop(tmp_path, 1 << 30) as (mounted, device), throttled(device, read, write):
        task = Task(Topology(folders=(folder(mounted),)), Options(quick=True))
        wanted = {names.storage("d", "read_bandwidth"): read, names.storage("d", "write_bandwidth"): write}
        assert_measured(0, task, wanted)


@pytest.mark.slow
def test_throttled_drives_at_once_are_measured_at_the_sum(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmarks, "times", lambda *_: LONGER)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    read, write = 150 * MIB, 100 * MIB
    with ExitStack() as stack:
        folders = []
        for index, name in enumerate("ab"):
            mounted, device = stack.enter_context(loop(tmp_path / name, 1 << 29))
            stack.enter_context(throttled(device, read, write, name))
            folders.append(folder(mounted, name, (f"drive{index}",)))
        task = Task(Topology(folders=tuple(folders)), Options(quick=True))
        wanted = {
            names.storage("all", "read_bandwidth"): 2 * read,
            names.storage("all", "write_bandwidth"): 2 * write,
        }
        assert_measured(1, task, wanted)


@pytest.mark.slow
def test_a_folder_alone_gives_every_quantity(direct, monkeypatch):
    monkeypatch.setattr(benchmarks, "times", lambda *_: SHORT)
    before = used(direct)
    task = Task(Topology(folders=(folder(direct),)), Options(quick=True, max_write=8e9))
    results = list(benchmarks.BENCHMARKS[0].run(task))
    assert not [each for each in results if isinstance(each, Waived)]
    measured = {each.name: each for each in results if isinstance(each, Measured)}
    wanted = {*benchmarks.QUANTITIES, "write_burst_bandwidth"}
    assert set(measured) == {names.storage("d", quantity) for quantity in wanted}
    assert all(each.n >= 7 and each.median > 0 and each.unit == "B/s" for each in measured.values())
    (aio,) = [json.loads(each.text) for each in results if each.name.endswith(".aio")]
    assert set(aio) <= set(AIO.names)
    assert aio["block_size"] == MIB
    assert aio["queue_depth"] in plan.DEPTHS
    assert abs(used(direct) - before) < 16 * MIB


@pytest.mark.slow
def test_fio_beside_it(direct, record_property, capsys):
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed")
    with scratch(str(direct)) as file:
        run([Stream(file.fd, "write", 128 * MIB, most=128)], 30.0)
        ours = np.median(run([Stream(file.fd, "read", 128 * MIB)], 3.0).rates(0, 6, 0.5))
        command = [
            "fio",
            "--name=read",
            f"--filename=/proc/{os.getpid()}/fd/{file.fd}",
            "--rw=read",
            "--direct=1",
        ]
        command += ["--bs=1M", "--ioengine=psync", "--thread", "--numjobs=16", "--size=128M", "--time_based"]
        command += ["--runtime=3", "--group_reporting", "--output-format=json", "--offset_increment=0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    theirs = json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"]
    # Other tests share the drive: the ratio is told, and only nonsense fails.
    with capsys.disabled():
        print(f" [read: ours {ours / 1e6:.0f} MB/s, fio {theirs / 1e6:.0f} MB/s, ratio {ours / theirs:.3f}]")
    assert 0.1 < ours / theirs < 10


WRITER = """
import sys
from ziplan.bench.storage.scratch import scratch
from ziplan.bench.storage.load import MIB, Stream, run
with scratch(sys.argv[1]) as file:
    print("open", flush=True)
    run([Stream(file.fd, "write", 128 * MIB)], 30.0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0.0, 0.2, 0.7])
def test_a_killed_process_leaves_no_file_and_no_byte(direct, moment):
    before, listed = used(direct), sorted(os.listdir(direct))
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(direct)], stdout=subprocess.PIPE)
    process.stdout.readline()
    time.sleep(moment)
    process.kill()
    process.communicate()
    assert sorted(os.listdir(direct)) == listed
    deadline = time.monotonic() + 10
    while abs(used(direct) - before) > 16 * MIB and time.monotonic() < deadline:
        time.sleep(0.1)
    assert abs(used(direct) - before) <= 16 * MIB


def test_a_folder_without_room_costs_nothing_and_that_is_told():
    sizes = {"size_bytes": 2e12, "free_bytes": 0.2 * 2e12 + 200e6}
    full = folder("/a", "a", ("x",)).model_copy(update=sizes)
    roomy = folder("/b", "b", ("y",))
    options = Options(max_write=100e9)
    alone, together = (
        each.cost(Task(Topology(folders=(full, roomy)), options)) for each in benchmarks.BENCHMARKS
    )
    assert alone.bytes_written == write_share(Task(Topology(folders=(full, roomy)), options), 2)
    assert (together.bytes_written, together.seconds) == (0, plan.STARTING_SECONDS)
    assert list(without_room((full, roomy))) == [
        "/a: 20% of 2 TB is free, and 20% stay free: there is no room for a file "
        "(200 MB are left, and a file has at least 268.4 MB)"
    ]
