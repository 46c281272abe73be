"""Clusters by name, by file, by --set: what changes, what follows, and every complaint at its line."""

import pytest

from ziplan.errors import BadInput
from ziplan.hardware.profiles import load_cluster, load_node
from ziplan.hardware.rates import network_of


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def writer(name, text):
        (tmp_path / name).write_text(text)
        return name

    return writer


def told(argument, settings=()):
    with pytest.raises(BadInput) as refused:
        load_cluster(argument, settings)
    return [str(problem) for problem in refused.value.problems]


@pytest.mark.parametrize(
    ("argument", "nodes"),
    [("dgx-h100", 1), ("4x dgx-h100", 4), ("4 x DGX-H100", 4), ("4\u00d7dgx-h100", 4)],
)
def test_names(argument, nodes):
    cluster = load_cluster(argument)
    assert (cluster.node.name, cluster.nodes, cluster.gpu_count) == ("DGX H100", nodes, 8 * nodes)


def test_a_cluster_file(write):
    write(
        "c.yaml",
        "machine: dgx-a100-80g\n"
        "nodes: 4\n"
        "with:\n"
        "  tiers.dram.capacity: 1 TiB\n"
        "  tiers.nvme.drive_count: 4\n"
        "  gpus_per_node: 4\n"
        "price: {per_node_hour: 32.77 USD, source: a price list, date: 2026-01-01}\n",
    )
    cluster = load_cluster("c.yaml")
    assert cluster.nodes == 4
    assert cluster.gpu_count == 16
    assert cluster.node.tiers["dram"].capacity == 2**40
    assert cluster.node.tiers["nvme"].capacity == 4 * 3.84e12
    assert cluster.node.tiers["nvme"].read_bandwidth == 4 * 7e9
    assert (cluster.price.per_node_hour_usd, cluster.price.date) == (32.77, "2026-01-01")
    assert cluster.provenance["tiers.dram.capacity"].source == "c.yaml:4"
    assert cluster.provenance["tiers.dram.capacity"].kind == "given"
    assert cluster.provenance["tiers.nvme.capacity"].kind == "derived"
    assert cluster.provenance["tiers.nvme.capacity"].source.startswith("4 x 3.84 TB U.2")


def test_settings_win_over_the_file(write):
    write("c.yaml", "machine: dgx-2\nnodes: 4\nwith: {tiers.dram.capacity: 1 TiB}\n")
    cluster = load_cluster("c.yaml", [("nodes", "2"), ("tiers.dram.capacity", "2 TiB"), ("gpu", "rtx-4090")])
    assert (cluster.nodes, cluster.node.tiers["dram"].capacity) == (2, 2 * 2**40)
    assert cluster.node.gpu.name == "GeForce RTX 4090"
    assert cluster.node.tiers["hbm"].capacity == 23.64 * 2**30
    assert cluster.provenance["tiers.dram.capacity"].source == "--set tiers.dram.capacity"


def test_changes_reach_into_parts_that_are_named():
    cluster = load_cluster(
        "dgx-2",
        [
            ("gpu.memory.capacity", "40 GB"),
            ("gpu.sustained_flops_per_s", "{fp16: 60 TFLOP/s}"),
            ("links.host.bandwidth", "6 GB/s"),
            ("tiers.nvme.drive", "samsung-990-pro-2tb"),
            ("tiers.nvme.drive.endurance", "1 PB"),
            ("cpu.cores", "48"),
        ],
    )
    assert cluster.node.tiers["hbm"].capacity == 40e9
    assert cluster.node.gpu.sustained_flops_per_s["fp16"] == 60e12
    assert cluster.node.links["host"].bandwidth == 6e9
    assert cluster.node.tiers["nvme"].capacity == 16e12
    assert cluster.node.tiers["nvme"].drive.endurance == 1e15
    assert cluster.node.cpu.cores == 48


def test_a_stated_rate_of_drives_scales_with_their_number():
    node, provenance = load_node("dgx-2")
    cluster = load_cluster("dgx-2", [("tiers.nvme.drive_count", "16")])
    assert cluster.node.tiers["nvme"].read_bandwidth == 2 * node.tiers["nvme"].read_bandwidth
    assert provenance["tiers.nvme.read_bandwidth"].kind == "measured"
    assert cluster.provenance["tiers.nvme.read_bandwidth"].kind == "derived"
    assert "2104.07857" in cluster.provenance["tiers.nvme.read_bandwidth"].source


def test_a_tier_or_link_may_be_added():
    new = "{medium: nvme, scope: gpu, drive: article-8tb, drive_count: 2, via: [host]}"
    cluster = load_cluster("dgx-h100", [("tiers.scratch", new), ("links.extra", "{part: pcie4-x16}")])
    assert list(cluster.node.tiers) == ["hbm", "dram", "nvme", "scratch"]
    assert cluster.node.tiers["scratch"].read_bandwidth == 6e9
    assert cluster.node.links["extra"].bandwidth == 26e9


def test_a_measured_profile_extends_a_machine(write):
    write(
        "mine.yaml",
        "schema: ziplan.machine/1\n"
        "extends: rtx-4090-desktop\n"
        "name: mine\n"
        "gpu: {memory: {bandwidth: {value: 930 GB/s, kind: measured, source: bench, n: 7, iqr: 1 GB/s}}}\n"
        "tiers:\n"
        "  dram: {capacity: 128 GB}\n"
        "  nvme:\n"
        "    write_bandwidth: {value: 1.2 GB/s, kind: measured, source: bench}\n"
        "not_measured: [the network]\n",
    )
    write("c.yaml", "machine: mine.yaml\nwith: {tiers.nvme.drive_count: 2}\n")
    for argument, drives in (("mine.yaml", 1), ("c.yaml", 2)):
        cluster = load_cluster(argument)
        assert cluster.label == "mine"
        assert cluster.node.gpu.name == "GeForce RTX 4090"
        assert cluster.node.tiers["hbm"].read_bandwidth == 930e9
        assert cluster.provenance["tiers.hbm.read_bandwidth"].kind == "measured"
        assert cluster.provenance["gpu.memory.capacity"].source.startswith("https://github.com/ali-vilab")
        assert cluster.provenance["tiers.dram.capacity"].source == "mine.yaml:6"
        assert cluster.node.tiers["nvme"].write_bandwidth == drives * 1.2e9
        assert list(cluster.node.tiers) == ["hbm", "dram", "nvme"]


def test_an_inline_machine(write):
    write("c.yaml", "machine: {extends: dgx-2, gpus_per_node: 8}\nnodes: 2\n")
    assert load_cluster("c.yaml").gpu_count == 16


def test_all_complaints_about_a_cluster_file_and_its_machine(write):
    write(
        "c.yaml",
        "machine: dgx-2\n"
        "nods: 4\n"
        "with:\n"
        "  tiers.dram.capacty: 2 TiB\n"
        "  tiers.drm.capacity: 2 TiB\n"
        "  gpu.memory.capacity: 32\n"
        "  links.host.bandwidth: 3 GB\n"
        "  gpus_per_nod: 3\n"
        "  name.x: 3\n"
        "price: {per_node_hour: 32.77}\n",
    )
    assert told("c.yaml") == [
        "c.yaml:2:1: ZP012 unknown key `nods`",
        "c.yaml:4:3: ZP012 unknown key `capacty` in tiers.dram",
        "c.yaml:5:3: ZP012 unknown key `drm` in tiers",
        "c.yaml:6:24: ZP011 gpu.memory.capacity: 32 has no unit, expected 'B' (for example '64 GiB')",
        "c.yaml:7:25: ZP011 links.host.bandwidth: '3 GB' has unit 'GB', expected 'B/s'"
        " (for example '32 GB/s')",
        "c.yaml:8:3: ZP012 unknown key `gpus_per_nod`",
        "c.yaml:9:3: ZP012 name.x: name has no parts",
        "c.yaml:10:24: ZP011 price.per_node_hour: 32.77 has no unit, expected 'USD'"
        " (for example '32.77 USD')",
    ]
    with pytest.raises(BadInput) as refused:
        load_cluster("c.yaml")
    hints = {problem.line: problem.hint for problem in refused.value.problems}
    assert hints[2] == "did you mean `nodes`?"
    assert hints[4] == "did you mean `capacity`?"
    assert hints[5] == "did you mean `dram`?"
    assert hints[8] == "did you mean `gpus_per_node`?"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("tiers.nvme.via: [host, rot]", "3:26: ZP010 tiers.nvme.via: no link is called `rot`"),
        ("network: netwrk", "3:12: ZP010 network: no link is called `netwrk`"),
        ("tiers.nvme.drive.read_bandwidth: 50 GB/s", "is more than PCIe 6.0 x4 carries"),
        ("links.host.bandwidth: 0 B/s", "ZP011 links.host.bandwidth: must be greater than 0"),
        ("tiers.dram.capacity: -2 TB", "is negative"),
        ("gpus_per_node: 1.5", "3:18: ZP010 gpus_per_node: expected a whole number, not 1.5"),
        ("gpus_per_node: true", "expected a whole number, not True"),
        ("gpus_per_node: 0", "must be at least 1, not 0"),
        ("nodes: 0", "nodes: expected a whole number of at least 1, not 0"),
        ("gpu: rtx-409", "3:8: ZP010 gpu: ziplan knows no such part, 'rtx-409'"),
        ("gpu.sustained_flops_per_s.fp16: 300 TFLOP/s", "is more than the peak 125 TFLOP/s"),
        ("gpu.sustained_flops_per_s.bf16: 30 TFLOP/s", "the GPU has no bf16 peak rate"),
        ("tiers.hbm.scope: node", "a GPU's own memory has scope 'gpu'"),
        ("tiers.dram: 2 TB", "3:15: ZP010 tiers.dram: expected a mapping of keys to values, not '2 TB'"),
        (
            "tiers.dram.capacity: {value: 2 TB, kind: guess, source: me}",
            "tiers.dram.capacity.kind: expected one of",
        ),
        ("tiers.dram.capacity: {value: 2 TB, knd: measured}", "unknown key `knd` in tiers.dram.capacity"),
        (
            "tiers.dram.capacity: {value: 2 GB/s, kind: measured, source: me}",
            "3:32: ZP011 tiers.dram.capacity: '2 GB/s'",
        ),
    ],
)
def test_a_bad_change_is_told_at_its_place(write, change, complaint):
    write("c.yaml", f"machine: dgx-2\nwith:\n  {change}\n")
    assert any(complaint in text for text in told("c.yaml"))


def test_a_value_that_two_changes_state_is_refused(write):
    nested = "  tiers: {dram: {capacity: 2 TiB}}\n"
    write("c.yaml", f"machine: dgx-2\nwith:\n  tiers.dram.capacity: 1 TiB\n{nested}")
    (text,) = told("c.yaml")
    assert "4:3: ZP010 tiers.dram.capacity: is stated twice under `with`" in text
    write("c.yaml", f"machine: dgx-2\nwith:\n  tiers.nvme.drive_count: 2\n{nested}")
    assert load_cluster("c.yaml").node.tiers["dram"].capacity == 2 * 2**40


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("machine: dgx-h10\n", "f.yaml:1:10: ZP010 no machine is called 'dgx-h10'"),
        ("machine: other.yaml\n", "f.yaml:1:10: ZP001 other.yaml: no such file"),
        ("machine: 3\n", "f.yaml:1:10: ZP010 machine"),
        (
            "extends: f.yaml\n",
            "f.yaml:1:10: ZP010 machines extend each other more than 8 deep, or in a circle",
        ),
        ("extends: [1]\n", "f.yaml:1:10: ZP010 extends: expected the name or path of a machine, not [1]"),
        ("tiers: {}\n", "f.yaml:1:1: ZP013 missing key `gpu`: this machine has no GPU"),
        (
            "schema: ziplan.machine/2\ngpu: rtx-4090\n",
            "f.yaml:1:9: ZP010 schema: expected 'ziplan.machine/1'",
        ),
        ("a: 1\n", "f.yaml:1:1: ZP013 neither a cluster file"),
        ("- 1\n", "f.yaml:1:1: ZP010 expected a machine"),
        (
            "gpu: rtx-4090\nname: x\ngpus_per_node: 1\ntiers: {}\n",
            "f.yaml:4:8: ZP010 tiers: missing key `hbm`",
        ),
        (
            "extends: rtx-4090-desktop\ntiers: {nvme: {drive_count: null}}\n",
            "f.yaml:2:29: ZP010 tiers.nvme.drive_count: expected a whole number, not nothing",
        ),
    ],
)
def test_a_bad_file_is_told_at_its_place(write, text, complaint):
    write("f.yaml", text)
    assert any(line.startswith(complaint) for line in told("f.yaml")), told("f.yaml")


@pytest.mark.parametrize(
    ("argument", "settings", "complaint"),
    [
        ("dgx-h10", (), "no machine is called 'dgx-h10'; did you mean `dgx-h100`?"),
        ("", (), "no machine is called ''"),
        ("../dgx-2", (), "no such file"),
        ("0x dgx-2", (), "0 x dgx-2: expected a whole number of nodes from 1 to 1,000,000"),
        ("-1x dgx-2", (), "-1 x dgx-2: expected a whole number of nodes"),
        ("1.5x dgx-2", (), "1.5 x dgx-2: expected a whole number of nodes"),
        ("1000000000000x dgx-2", (), "1000000000000 x dgx-2: expected a whole number of nodes"),
        ("9" * 9000 + "x dgx-2", (), "expected a whole number of nodes"),
        ("v100", (), "no machine is called 'v100'; did you mean `jean-zay-v100-32g`?"),
        (
            "dgx-2",
            [("tiers.dram.capacity", "2")],
            "--set tiers.dram.capacity: ZP011 tiers.dram.capacity: 2 has",
        ),
        ("dgx-2", [("nodes", "x")], "--set nodes: ZP010 nodes: expected a whole number"),
        ("dgx-2", [("gpu", "")], "--set gpu: ZP001 is empty"),
        ("dgx-2", [("", "3")], "unknown key ``"),
        ("dgx-2", [("a.b.c", "3")], "unknown key `a`"),
        (
            "dgx-2",
            [("tiers.nvme.drive_count", "0")],
            "--set tiers.nvme.drive_count: ZP010 tiers.nvme.drive_count: must be at least 1, not 0",
        ),
    ],
)
def test_a_bad_argument_is_told(argument, settings, complaint):
    assert any(complaint in text for text in told(argument, settings))


@pytest.mark.parametrize("count", ["0", "-3", "x", "1.5", "true", "null", "{a: 1}"])
def test_a_flag_is_blamed_for_itself_alone(count):
    """The shipped profile is not at fault for what no longer follows from it."""
    (complaint,) = told("dgx-a100-80g", [("tiers.nvme.drive_count", count)])
    assert complaint.startswith("--set tiers.nvme.drive_count: ")


def test_many_nodes_can_be_read():
    assert load_cluster("2000x dgx-2").label == "2,000 x DGX-2"
    assert load_cluster("1x dgx-2").label == "DGX-2"


def test_an_unknown_setting_lists_what_may_be_set():
    with pytest.raises(BadInput) as raised:
        load_cluster("dgx-2", [("foo", "1")])
    (problem,) = raised.value.problems
    known = (
        "name, gpu, gpus_per_node, cpu, tiers, links, fabric, network, swap_limit, memory_limit, "
        "memlock_limit, nodes"
    )
    assert problem.hint == f"known here: {known}"


def test_a_containers_limit_stands_in_place_of_host_memory():
    limited = load_cluster("dgx-2", [("memory_limit", "200 GB")])
    assert limited.node.tiers["dram"].capacity == 200e9
    assert limited.provenance["tiers.dram.capacity"].source.startswith("memory_limit (")
    whole = load_cluster("dgx-2").node.tiers["dram"].capacity
    assert load_cluster("dgx-2", [("memory_limit", "90 TB")]).node.tiers["dram"].capacity == whole


def test_an_unknown_machine_is_answered_in_a_few_words():
    with pytest.raises(BadInput) as raised:
        load_cluster("h100")
    (problem,) = raised.value.problems
    assert problem.hint.count("`") == 6
    assert "ziplan profiles" in problem.help
    assert len(problem.help) < 100


def test_what_looks_like_a_wrong_unit_is_a_warning():
    cluster = load_cluster(
        "dgx-h100", [("links.network.bandwidth", "25 GB/s"), ("links.host.bandwidth", "400 GB/s")]
    )
    assert cluster.warnings == (
        "links.host.bandwidth: 400 GB/s is more than a PCIe 6.0 x16 slot carries",
        "links.network.bandwidth: 25 GB/s is 200 Gbit/s; did you mean '25 Gbit/s'?",
    )


def test_a_part_of_a_link_that_is_not_there_is_told_how_to_state_one():
    with pytest.raises(BadInput) as refused:
        load_cluster("rtx-4090-desktop", [("links.nic.bandwidth", "100 Gbit/s"), ("network", "nic")])
    new, unnamed = refused.value.problems
    assert "`links.nic: {bandwidth: 100 Gbit/s}`" in new.help
    assert unnamed.hint == "known here: host"


def test_the_network_that_is_asked_for_can_be_given_as_it_is_told():
    settings = [("nodes", "4"), ("links.network", "{bandwidth: 100 Gbit/s}"), ("network", "network")]
    cluster = load_cluster("rtx-4090-desktop", settings)
    assert network_of(cluster, 4.0) == "network"
