"""Records of several nodes as one: the least of each value, the slowest by name, and what is not merged."""

import json

import pytest
from cli.runs import ziplan

from ziplan.bench.measurement import Measured, Noted, Waived
from ziplan.bench.merge import NodeRecord, merged
from ziplan.bench.record import Environment, Record, document, dumps, load
from ziplan.bench.topology import FoundFolder, Topology
from ziplan.errors import BadInput
from ziplan.hardware.profiles import load_cluster

GIB = 2**30


def value(name, median, unit="B/s"):
    return Measured(
        name=name, unit=unit, median=median, iqr=0.01 * median, minimum=0.9 * median, maximum=1.1 * median,
        n=7, method="a method", when="2026-01-02T03:04:05Z",
    )  # fmt: skip


def record(
    host, scale=1.0, gpu="NVIDIA A100-SXM4-80GB", count=8, rank=None, world=None, memory=1024 * GIB, more=()
):
    return Record(
        started="2026-01-02T03:04:05Z",
        complete=True,
        topology=Topology(
            host=host,
            cpu="a processor",
            cores=64,
            memory_bytes=memory,
            folders=(FoundFolder(path="/nv", label="nv", kind="drive", filesystem="xfs", drives=("nvme0n1",),
                                 free_bytes=scale * 1e12),),
        ),
        environment=Environment(rank=rank, world_size=world),
        measured=(
            value("gpu.count", count, "1"),
            value("gpu.0.memory", 80 * GIB, "B"),
            value("gpu.0.host_to_device", 24e9 * scale),
            value("storage.nv.read_bandwidth", 6e9 * scale),
            *more,
        ),
        noted=(Noted(name="gpu.0.name", text=gpu, method="CUDA"),),
        waived=(Waived(name="storage.nv.write_bandwidth", reason="no room"),),
    )  # fmt: skip


def nodes(tmp_path, *records):
    return [NodeRecord(tmp_path / f"{index}.json", each) for index, each in enumerate(records)]


def test_the_least_of_each_value_is_taken_and_told(tmp_path):
    found = merged(nodes(tmp_path, record("a"), record("b", 0.97), record("c", 1.02)))
    by_name = found.record.by_name()
    assert by_name["gpu.0.host_to_device"].median == 24e9 * 0.97
    assert (
        "the least of 3 nodes: b (middle 24 GB/s, most 24.48 GB/s)" in by_name["gpu.0.host_to_device"].method
    )
    spread = found.spreads["storage.nv.read_bandwidth"]
    assert (spread.least.median, spread.middle, spread.most) == (6e9 * 0.97, 6e9, 6e9 * 1.02)
    assert spread.slowest == "b"
    assert not spread.straggles
    assert found.record.topology.folders[0].free_bytes == 0.97e12
    assert [each.reason for each in found.record.waived] == ["a: no room"]
    assert not found.remarks


def test_a_straggler_is_named(tmp_path):
    found = merged(nodes(tmp_path, record("a"), record("b"), record("slow", 0.7)))
    assert found.spreads["gpu.0.host_to_device"].straggles
    assert "slow straggles: gpu.0.host_to_device is 70% of the middle node's" in found.remarks


def test_what_some_nodes_lack_and_nodes_that_lack_are_told(tmp_path):
    extra = (value("cpu.adam_rate", 1e9, "param/s"),)
    ran = [record("a", rank=0, world=4, more=extra), record("b", rank=2, world=4)]
    found = merged(nodes(tmp_path, *ran))
    assert "cpu.adam_rate: not measured on b" in found.remarks
    assert "4 nodes were started and 2 files are given: ranks 1, 3 are missing" in found.remarks
    assert "the least of 1 of 2 nodes" in found.record.by_name()["cpu.adam_rate"].method


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            {"gpu": "NVIDIA H100 80GB HBM3"},
            "differ in GPU: NVIDIA A100-SXM4-80GB on a; NVIDIA H100 80GB HBM3 on b",
        ),
        ({"count": 4}, "differ in number of GPUs: 8 on a; 4 on b"),
        ({"memory": 512 * GIB}, "differ in memory"),
    ],
)
def test_nodes_of_different_kinds_are_not_merged(tmp_path, other, said):
    with pytest.raises(BadInput, match=said):
        merged(nodes(tmp_path, record("a"), record("b", **other)))


def test_unequal_memory_is_merged_to_the_least_where_that_is_asked(tmp_path):
    found = merged(nodes(tmp_path, record("a"), record("b", memory=512 * GIB)), unequal=True)
    assert found.record.topology.memory_bytes == 512 * GIB
    near = merged(nodes(tmp_path, record("a"), record("b", memory=1020 * GIB)))
    assert near.record.topology.memory_bytes == 1020 * GIB
    with pytest.raises(BadInput, match="differ in GPU"):
        merged(nodes(tmp_path, record("a"), record("b", gpu="NVIDIA H100 80GB HBM3")), unequal=True)


def test_a_node_counts_once(tmp_path):
    with pytest.raises(BadInput, match="are both of a"):
        merged(nodes(tmp_path, record("a"), record("a")))


def written(tmp_path, *records):
    files = []
    for each in records:
        files.append(tmp_path / f"{each.topology.host}.yaml.bench.json")
        files[-1].write_text(dumps(each))
        (tmp_path / f"{each.topology.host}.yaml").write_text("schema: ziplan.machine/1\n")
    return files


def test_the_cluster_file_is_one_that_the_commands_take(tmp_path, capsys):
    files = written(tmp_path, record("a"), record("b", 0.5), record("c"))
    cluster = tmp_path / "cluster.yaml"
    done = ziplan(capsys, "bench", "merge", *files, "--extends", "dgx-a100-80g", "-o", cluster)
    assert done.code == 0, done.err
    assert "b, straggles" in done.out
    assert "b straggles" in cluster.read_text()
    loaded = load_cluster(str(cluster))
    assert loaded.nodes == 3
    assert loaded.node.links["host"].bandwidth == pytest.approx(12e9)
    assert loaded.node.tiers["nvme"].read_bandwidth == pytest.approx(3e9)
    assert loaded.provenance["links.host.bandwidth"].kind == "measured"
    fitted = ziplan(capsys, "fit", "llama-3.1-8b", cluster, "--sequence-length", "2048", "--json")
    assert fitted.code == 0, fitted.err
    assert json.loads(fitted.out)["problem"]["gpu_count"] == 24


def test_machine_files_stand_for_the_records_beside_them(tmp_path, capsys):
    written(tmp_path, record("a"), record("b"))
    done = ziplan(capsys, "bench", "merge", tmp_path / "a.yaml", tmp_path / "b.yaml", "--json")
    assert done.code == 0, done.err
    path = tmp_path / "merged.json"
    path.write_text(done.out)
    assert load(path).by_name()["gpu.0.host_to_device"].median == 24e9
    assert document(load(path)) == json.loads(done.out)


@pytest.mark.parametrize(
    "text", ["", "[]", "schema: ziplan.machine/1", '{"schema": "ziplan.bench/1", "measured": 3}']
)
def test_what_is_no_record_is_told(tmp_path, capsys, text):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    done = ziplan(capsys, "bench", "merge", path)
    assert done.code == 2
    assert "x.yaml" in done.err
    assert "Traceback" not in done.err
    assert ziplan(capsys, "bench", "merge", tmp_path / "none.yaml").code == 2
    assert ziplan(capsys, "bench", "merge").code == 2


def test_of_many_ranks_that_are_missing_the_first_are_named(tmp_path):
    found = merged(nodes(tmp_path, record("a", rank=0, world=10**9), record("b", rank=3, world=10**9)))
    assert (
        "ranks 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, ... are missing" in found.remarks[-1]
    )


def test_nodes_on_which_nothing_was_measured_are_exit_2(tmp_path, capsys):
    (tmp_path / "a.json").write_text('{"schema": "ziplan.bench/1"}')
    done = ziplan(capsys, "bench", "merge", tmp_path / "a.json")
    assert done.code == 2
    assert "1 node as one" in done.out
