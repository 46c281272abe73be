"""Other programs' JSON as a record: their own field names and units, and what of them does not count."""

import json
import shutil
import subprocess

import pytest
from cli.runs import ziplan

from ziplan.bench.imported import record_of
from ziplan.bench.record import load
from ziplan.errors import BadInput
from ziplan.hardware.profiles import load_cluster

GPUS = [
    "0: NVIDIA H100 80GB HBM3 (00000000:1B:00): (node7)",
    "1: NVIDIA H100 80GB HBM3 (00000000:43:00): (node7)",
]


def case(name, *row, status="Passed"):
    return {
        "name": name,
        "status": status,
        "bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
        "bandwidth_matrix": [list(row)],
        "sum": 0,
    }


def nvbandwidth(*cases, devices=GPUS):
    """As json_output.cpp writes it."""
    body = {
        "CUDA Runtime Version": 12040,
        "Driver Version": "550.54.15",
        "git_version": "v0.8",
        "version": "v0.8",
    }
    return {"nvbandwidth": {**body, "GPU Device list": devices, "testcases": list(cases)}}


def nccl(bus=371.5, size=2**30, program="all_gather_perf", hosts=("a", "b"), wrong=0.0):
    """As util.cu writes it: two sizes, the larger last."""
    devices = [
        {"rank": n, "group": 0, "pid": 1, "hostname": host, "device": 0, "device_info": "NVIDIA H100"}
        for n, host in enumerate(hosts)
    ]
    rows = [
        {
            "size": bytes_,
            "count": bytes_ // 4,
            "type": "float",
            "redop": "none",
            "root": "    -1",
            "out_of_place": {"time": 1.0, "alg_bw": rate, "bus_bw": rate, "nwrong": wrong},
            "in_place": {"time": 1.0, "alg_bw": 1.0, "bus_bw": 1.0, "nwrong": 0.0},
            "actual_iterations": 20,
            "experiment_name": "x",
        }
        for bytes_, rate in ((1024, 0.1), (size, bus))
    ]
    return {
        "version": 1,
        "args": [f"./build/{program}", "-J", "out.json"],
        "env": ["PATH=/bin"],
        "nccl_version": 22703,
        "config": {"nthreads": 1, "ngpus": 1, "devices": devices},
        "results": rows,
        "out_of_bounds": {"count": 0, "okay": True},
        "average_bus_bandwidth": {"bandwidth": 1.0, "okay": "unchecked"},
        "errors": [],
    }


def job(name="seqread", way="read", rate=6_800_000_000, seconds=30.0, group=0, **options):
    """One job as stat.c writes it."""
    idle = {"io_bytes": 0, "bw_bytes": 0, "bw": 0, "runtime": 0}
    busy = {
        "io_bytes": int(rate * seconds),
        "bw_bytes": rate,
        "bw": rate // 1024,
        "runtime": int(seconds * 1000),
    }
    stated = {"name": name, "rw": way, "bs": "1M", "direct": "1", "filename": "/mnt/nvme0/file"}
    body = {other: busy if other == way else idle for other in ("read", "write", "trim")}
    return {"jobname": name, "groupid": group, "error": 0, "job options": {**stated, **options}, **body}


def fio(*jobs, disks=("nvme0n1",)):
    util = [{"name": disk, "util": 99.0} for disk in disks]
    return {
        "fio version": "fio-3.36",
        "timestamp": 1700000000,
        "time": "x",
        "global options": {"ioengine": "libaio"},
        "jobs": list(jobs),
        "disk_util": util,
    }


@pytest.fixture
def read(tmp_path):
    def reading(*documents, host=""):
        paths = []
        for index, each in enumerate(documents):
            paths.append(tmp_path / f"{index}.json")
            paths[-1].write_text(json.dumps(each))
        return record_of(paths, host)

    return reading


def medians(record):
    return {name: each.median for name, each in record.by_name().items()}


def reasons(record):
    return {each.name: each.reason for each in record.waived}


def test_nvbandwidths_cases_come_by_their_gpus_in_bytes(read):
    record = read(
        nvbandwidth(
            case("host_to_device_memcpy_ce", "55.64", "55.5"),
            case("all_to_host_memcpy_ce", "27.1", "N/A"),
            case("device_to_host_bidirectional_memcpy_ce", "40", "41"),
            case("device_local_copy", "1400", "1405"),
            case("host_to_device_memcpy_sm", "1", "1"),
        )
    )
    assert medians(record) == {
        "gpu.0.host_to_device": pytest.approx(55.64e9),
        "gpu.1.host_to_device": pytest.approx(55.5e9),
        "gpu.0.beside_all.device_to_host": pytest.approx(27.1e9),
        "gpu.0.both.device_to_host": pytest.approx(40e9),
        "gpu.1.both.device_to_host": pytest.approx(41e9),
        "gpu.0.hbm.copy_bandwidth": pytest.approx(2800e9),
        "gpu.1.hbm.copy_bandwidth": pytest.approx(2810e9),
        "gpu.count": 2,
    }
    assert "says N/A of GPU 1" in reasons(record)["gpu.1.beside_all.device_to_host"]
    assert record.by_name()["gpu.0.hbm.copy_bandwidth"].kind == "derived"
    assert record.text("gpu.0.name") == "NVIDIA H100 80GB HBM3"
    assert record.topology.host == "node7"
    assert record.source == "nvbandwidth v0.8"


def test_a_case_that_did_not_pass_is_waived(read):
    passed = case("host_to_device_memcpy_ce", "55", "55")
    record = read(nvbandwidth(passed, case("all_to_host_memcpy_ce", "1", "1", status="Waived")))
    assert "ended as Waived" in reasons(record)["gpu.all.beside_all.device_to_host"]
    assert "gpu.0.beside_all.device_to_host" not in medians(record)


def test_bus_bandwidth_between_nodes_is_the_network(read):
    record = read(nccl())
    assert medians(record) == {"network.bandwidth": pytest.approx(371.5e9)}
    assert "2 nodes" in record.measured[0].method
    inside = read(nccl(hosts=("a", "a")))
    assert medians(inside) == {"gpu.all.to_next": pytest.approx(371.5e9)}
    assert inside.topology.host == "a"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"program": "all_reduce_perf"}, "only all_gather and reduce_scatter"),
        ({"wrong": 3.0}, "3 wrong values"),
        ({"size": 2**20}, "latency counts"),
        ({"hosts": ()}, "on which hosts"),
        ({"bus": 0.0}, "no out-of-place bus bandwidth"),
    ],
)
def test_collectives_that_tell_no_link_are_refused(read, changes, said):
    with pytest.raises(BadInput, match=said):
        read(nccl(**changes))


def test_jobs_of_a_group_add_up_and_groups_do_not(read):
    record = read(fio(job(), job(), job(way="write", rate=3_000_000_000, group=1, name="w")))
    assert medians(record) == {
        "storage.nvme0.read_bandwidth": 13.6e9,
        "storage.nvme0.write_bandwidth": 3e9,
    }
    assert "no tail is told" in record.by_name()["storage.nvme0.write_bandwidth"].method
    assert record.topology.folders[0].drives == ("nvme0n1",)
    assert record.measured[0].when == "2023-11-14T22:13:20Z"
    sweep = read(fio(job(rate=5_000_000_000), job(group=1), job(rate=1_000_000_000, group=2)))
    assert medians(sweep) == {"storage.nvme0.read_bandwidth": 6.8e9}


def test_both_ways_at_once_are_mixed(read):
    record = read(fio(job(), job(way="write", rate=2_000_000_000)))
    assert set(medians(record)) == {
        "storage.nvme0.mixed_read_bandwidth",
        "storage.nvme0.mixed_write_bandwidth",
    }


def test_several_drives_at_once_are_all_and_one_by_one_are_not(read):
    drives = [job(filename=f"/dev/nvme{n}n1") for n in range(2)]
    assert medians(read(fio(*drives))) == {"storage.all.read_bandwidth": 13.6e9}
    alone = read(fio(*[{**each, "groupid": n} for n, each in enumerate(drives)]))
    assert set(medians(alone)) == {"storage.nvme0n1.read_bandwidth", "storage.nvme1n1.read_bandwidth"}
    assert "measured alone" in reasons(alone)["storage.all.read_bandwidth"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"direct": "0"}, "page cache"),
        ({"rw": "randread"}, "whole tensors in order"),
        ({"seconds": 1.0}, "ran 1.0 s, 5 are needed"),
        ({"rate": 0}, "no result"),
    ],
)
def test_what_is_no_drives_rate_is_told(read, changes, said):
    with pytest.raises(BadInput, match=said):
        read(fio(job(**changes)))


def test_an_option_that_a_job_does_not_state_is_the_global_one(read):
    document = fio(job())
    del document["jobs"][0]["job options"]["direct"]
    with pytest.raises(BadInput, match="page cache"):
        read(document)
    document["global options"]["direct"] = "1"
    assert medians(read(document)) == {"storage.nvme0.read_bandwidth": 6.8e9}


def test_programs_of_one_node_make_one_record(read):
    record = read(
        nvbandwidth(case("host_to_device_memcpy_ce", "55", "54")), fio(job()), nccl(hosts=("node7",) * 2)
    )
    assert record.source == "nvbandwidth v0.8, fio-3.36, nccl-tests all_gather_perf"
    assert len(record.measured) == 5
    with pytest.raises(BadInput, match="several nodes"):
        read(nvbandwidth(case("host_to_device_memcpy_ce", "55", "54")), nccl(hosts=("x", "x")))
    with pytest.raises(BadInput, match=r"both have storage\.nvme0"):
        read(fio(job()), fio(job()))


def test_the_machine_file_is_one_that_fit_takes(tmp_path, capsys):
    files = []
    for name, document in {
        "nv": nvbandwidth(case("host_to_all_memcpy_ce", "21", "20")),
        "fio": fio(job()),
    }.items():
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps(document))
    machine = tmp_path / "node.yaml"
    done = ziplan(capsys, "bench", "import", *files, "--extends", "dgx-h100", "-o", machine)
    assert done.code == 0, done.err
    cluster = load_cluster(str(machine))
    assert cluster.node.links["host"].bandwidth == pytest.approx(20e9)
    assert cluster.node.tiers["nvme"].read_bandwidth == pytest.approx(6.8e9)
    assert cluster.node.cpu.cores == load_cluster("dgx-h100").node.cpu.cores
    assert cluster.provenance["tiers.nvme.read_bandwidth"].kind == "measured"
    assert "fio-3.36" in cluster.provenance["tiers.nvme.read_bandwidth"].source
    assert load(tmp_path / "node.yaml.bench.json").complete


GARBAGE = [
    "",
    "[]",
    "{}",
    "null",
    '{"nvbandwidth": 3}',
    '{"nvbandwidth": {"testcases": [{"name": "host_to_device_memcpy_ce", "status": "Passed"}]}}',
    '{"nvbandwidth": {"testcases": 1, "GPU Device list": [1, "x"]}}',
    '{"nvbandwidth": {"testcases": [{"name": "host_to_device_memcpy_ce", "status": "Passed", '
    '"bandwidth_matrix": [["-1", "nan", null, [], "inf"]]}]}}',
    '{"fio version": 1, "jobs": [1, {}, {"job options": [], "read": 4}]}',
    '{"fio version": "x", "jobs": [{"groupid": [], "read": {"io_bytes": "many"}}], "disk_util": 3}',
    '{"nccl_version": 1, "results": [], "args": [3]}',
    '{"nccl_version": 1, "results": [{"size": "x"}], "config": {"devices": [{"hostname": 4}]}}',
    "\x00\x01",
]


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage_is_refused_with_the_files_name(tmp_path, text):
    path = tmp_path / "some.json"
    path.write_text(text)
    with pytest.raises(BadInput) as raised:
        record_of([path])
    assert all("some.json" in problem.file for problem in raised.value.problems)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_what_this_fio_writes_is_read(tmp_path):
    words = [
        "fio",
        "--name=seq",
        f"--directory={tmp_path}",
        "--rw=read",
        "--bs=1M",
        "--size=16M",
        "--direct=1",
    ]
    words += ["--ioengine=psync", "--time_based", "--runtime=6", "--output-format=json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"fio cannot read here: {done.stderr[-200:]}")
    path = tmp_path / "fio.json"
    path.write_text(done.stdout)
    record = record_of([path])
    (measured,) = record.measured
    assert measured.name == f"storage.{tmp_path.name}.read_bandwidth"
    assert measured.median == json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"]


def test_text_before_the_json_is_passed_over(tmp_path):
    path = tmp_path / "fio.json"
    path.write_text(f"note: queue depth will be capped at 1\nfio-3.36\n{json.dumps(fio(job()), indent=2)}\n")
    assert medians(record_of([path])) == {"storage.nvme0.read_bandwidth": 6.8e9}
    path.write_text('a note\n{\n"fio version": "x",\n"jobs": nothing}')
    with pytest.raises(BadInput) as raised:
        record_of([path])
    assert (raised.value.problems[0].line, raised.value.problems[0].column) == (4, 9)


@pytest.mark.parametrize("number", ["1e300", "1e308", 10**19, -1, "nan"])
def test_a_damaged_number_is_none(read, number):
    found = read(nvbandwidth(case("host_to_device_memcpy_ce", number, "54")))
    assert medians(found) == {"gpu.1.host_to_device": 54e9, "gpu.count": 2}
    assert "gpu.0.host_to_device" in reasons(found)
    with pytest.raises(BadInput):
        read(fio(job() | {"read": {"io_bytes": number, "bw_bytes": number}}))


@pytest.mark.parametrize("columns", [1025, 20_000])
def test_more_gpus_than_a_node_has_are_refused(read, columns):
    for devices in (GPUS, []):
        with pytest.raises(BadInput, match="more than 1,024 GPUs"):
            read(nvbandwidth(case("host_to_device_memcpy_ce", *["1"] * columns), devices=devices))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ioengine": "null"}, "reads and writes nothing"),
        ({"filename": "/dev/null"}, "/dev/null, which is no drive"),
        ({"filename": "x", "directory": "/dev/shm"}, "/dev/shm/x, which is no drive"),
        ({"filename": "/dev/ram0"}, "/dev/ram0, which is no drive"),
    ],
)
def test_what_reaches_no_drive_is_told(read, changes, said):
    with pytest.raises(BadInput, match=said):
        read(fio(job(**changes)))


def test_a_gpu_whose_name_tells_its_memory_is_known(tmp_path, capsys):
    path, machine = tmp_path / "nv.json", tmp_path / "node.yaml"
    devices = ["0: NVIDIA A100-SXM4-80GB (00000000:07:00): (node7)"]
    cases = case("host_to_device_memcpy_ce", "24.1"), case("device_to_host_memcpy_ce", "25.2")
    path.write_text(json.dumps(nvbandwidth(*cases, devices=devices)))
    done = ziplan(capsys, "bench", "import", path, "-o", machine)
    assert done.code == 0, done.err
    assert "part: a100-sxm4-80g" in machine.read_text().replace('"', "")
    assert "that no plan takes yet: tiers.dram: missing key `capacity`" in " ".join(done.out.split())
