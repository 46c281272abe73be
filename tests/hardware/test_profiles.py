"""Shipped machines: each loads, and each of its numbers says where it came from."""

import re

import pytest

from ziplan.files import read
from ziplan.hardware import shipped as shipped_module
from ziplan.hardware.profiles import list_profiles, load_cluster, load_node
from ziplan.hardware.shipped import shipped
from ziplan.hardware.tree import KINDS, Origin, Tree, hold

KINDS_OF_PARTS = ("gpus", "links", "drives", "nodes")
PROFILES = [(kind, name) for kind in KINDS_OF_PARTS for name in list_profiles(kind)]
NODES = list_profiles("nodes")
REFERENCES = ("gpu", "drive", "part", "extends", "schema")


def test_the_machines_that_are_promised():
    assert {
        "article",
        "dgx-2",
        "dgx-a100-40g",
        "dgx-a100-80g",
        "dgx-h100",
        "h100-x4",
        "rtx-3090-x8",
        "rtx-4090-desktop",
    } <= set(NODES)


@pytest.mark.parametrize("name", NODES)
def test_every_machine_loads_with_the_source_of_every_value(name):
    node, provenance = load_node(name)
    values = {path for path in leaf_paths(node.model_dump()) if path.rpartition(".")[2] not in TEXTS}
    assert values == provenance.keys()
    for path, origin in provenance.items():
        assert origin.kind in KINDS, path
        assert len(origin.source) > 8, path
    assert not load_cluster(name).warnings


TEXTS = ("name", "medium", "scope", "via", "fabric", "network")


def leaf_paths(data, above=""):
    for key, value in data.items():
        if isinstance(value, dict):
            yield from leaf_paths(value, f"{above}{key}.")
        elif value is not None and not (key == "drive_count" and value == 0):
            yield f"{above}{key}"


@pytest.mark.parametrize(("kind", "name"), PROFILES)
def test_no_value_stands_in_a_profile_without_its_source(kind, name):
    document = shipped(kind, name)
    held = hold(document.data, Origin(document, ()))
    assert not list(Tree(held).leaf_problems())
    for path, value in held.leaves():
        if path[-1] not in (*TEXTS, *REFERENCES):
            assert value.leaf is not None, path
            assert value.leaf["kind"] != "given"
        assert not re.search(r"unverified|recall", str(value.leaf), re.IGNORECASE)


def test_only_the_files_of_a_machine_are_read(monkeypatch):
    opened = []
    monkeypatch.setattr(shipped_module, "read", lambda path, name: opened.append(name) or read(path, name))
    shipped.cache_clear()
    load_node("dgx-2")
    assert sorted(opened) == [
        "hardware_profiles/drives/micron-9200-pro-3.84tb.yaml",
        "hardware_profiles/gpus/v100-sxm3-32g.yaml",
        "hardware_profiles/links/nvlink2.yaml",
        "hardware_profiles/links/pcie3-x16.yaml",
        "hardware_profiles/nodes/dgx-2.yaml",
    ]
    load_node("dgx-2")
    assert len(opened) == 5


def test_the_profiles_inside_a_wheel_win(tmp_path, monkeypatch):
    module = tmp_path / "ziplan" / "hardware" / "shipped.py"
    (tmp_path / "ziplan" / "hardware_profiles").mkdir(parents=True)
    monkeypatch.setattr(shipped_module, "__file__", str(module))
    monkeypatch.setattr(shipped_module, "_root", shipped_module._root.__wrapped__)
    assert shipped_module._root() == tmp_path.resolve() / "ziplan" / "hardware_profiles"
    assert list_profiles("nodes") == []


def test_the_article_s_numbers():
    node, _ = load_node("article")
    assert node.gpu.sustained_flops_per_s == {"fp16": 125e12, "bf16": 125e12}
    assert node.tiers["hbm"].read_bandwidth == 2e12
    assert node.links["host"].bandwidth == 32e9
    assert node.tiers["nvme"].capacity == 64e12
    assert node.tiers["nvme"].read_bandwidth == 8 * 3e9
    assert node.links[node.network].bandwidth == 25e9


@pytest.mark.parametrize(
    ("name", "sockets", "channels", "rate"),
    [
        ("dgx-a100-80g", 2, 8, 3200),
        ("dgx-h100", 2, 8, 4400),
        ("dgx-h200", 2, 8, 4400),
        ("aws-p4d.24xlarge", 2, 6, 2933),
        ("aws-p5.48xlarge", 2, 8, 3200),
        ("gcp-a2-ultragpu-8g", 2, 6, 2933),
        ("azure-ndv2", 2, 6, 2666),
        ("teraio-h100-nvl-x2", 2, 12, 4800),
    ],
)
def test_host_memory_is_as_fast_as_its_channels(name, sockets, channels, rate):
    node, provenance = load_node(name)
    peak = sockets * channels * rate * 1e6 * 8
    assert node.tiers["dram"].read_bandwidth == pytest.approx(peak, rel=1e-3)
    assert "peak" in provenance["tiers.dram.read_bandwidth"].source


def test_the_memory_of_unknown_processors_has_no_bandwidth():
    for name in ("lambda-8x-a100-80g", "aws-g5.12xlarge", "rtx-3090-x8"):
        assert load_node(name)[0].tiers["dram"].read_bandwidth is None


def test_the_measured_rates_of_a_dgx_2():
    node, provenance = load_node("dgx-2")
    assert node.links["host"].bandwidth == 12e9
    assert node.links["root"].bandwidth / node.links["root"].shared_by == 3e9
    assert node.tiers["nvme"].read_bandwidth / node.gpus_per_node == pytest.approx(1.6e9)
    assert node.tiers["nvme"].via == ("host", "root")
    assert node.cpu.adam_params_per_s == 3.89e9
    assert "bf16" not in node.gpu.peak_flops_per_s
    assert provenance["tiers.nvme.capacity"].kind == "derived"


def test_a_machine_used_with_one_gpu_shares_nothing():
    node = load_cluster("dgx-2", [("gpus_per_node", "1")]).node
    assert node.links["root"].shared_by == 1
