"""The catalogue as a whole: how much there is, that it is plausible, and that every part can be used."""

import re

import pytest

from ziplan.hardware import shipped as shipped_module
from ziplan.hardware.profiles import list_profiles, load_cluster, load_node
from ziplan.hardware.shipped import shipped

GPUS, LINKS, DRIVES, NODES = (list_profiles(kind) for kind in ("gpus", "links", "drives", "nodes"))
KINDS = ("gpus", "links", "drives", "nodes")

LANE = {"3": 0.985e9, "4": 1.969e9, "5": 3.938e9, "6": 7.563e9}
"""Bytes per second of one lane of a PCIe generation, one direction."""

LARGEST_HBM_RATE = 20e12
LARGEST_PEAK = 5e15


def one(kind, name):
    """A machine with the part in it, resolved."""
    changes = {
        "gpus": [("gpu", name)],
        "links": [("links.host", f"{{part: {name}}}")],
        "drives": [("tiers.nvme.drive", name)],
    }[kind]
    return load_cluster("dgx-a100-80g", changes)


@pytest.mark.parametrize(
    ("names", "least"),
    [(GPUS, 45), (LINKS, 25), (DRIVES, 25), (NODES, 50)],
    ids=KINDS,
)
def test_there_are_enough(names, least):
    assert len(names) >= least


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_unique(kind):
    shown = [shipped(kind, name).data["name"] for name in list_profiles(kind)]
    assert len(set(shown)) == len(shown), sorted(name for name in shown if shown.count(name) > 1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_can_be_found_by_its_name(kind):
    folder = shipped_module._root() / kind
    assert [path.name for path in folder.iterdir() if path.suffix != ".yaml"] == []
    assert all(shipped(kind, name) is not None for name in list_profiles(kind))


@pytest.mark.parametrize("name", GPUS)
def test_a_gpu_is_plausible(name):
    cluster = one("gpus", name)
    gpu = cluster.node.gpu
    assert 8 * 2**30 < gpu.memory.capacity <= 288 * 2**30
    if gpu.memory.bandwidth is not None:
        assert 100e9 < gpu.memory.bandwidth < LARGEST_HBM_RATE
    for precision, peak in gpu.peak_flops_per_s.items():
        assert 10e12 < peak < LARGEST_PEAK
        for lower in (gpu.matmul_flops_per_s, gpu.sustained_flops_per_s):
            assert lower.get(precision, 0.0) <= peak
    assert cluster.node.tiers["hbm"].capacity == gpu.memory.capacity
    assert sourced(cluster, "gpu.")


GENERATIONS = {
    "3": r"samsung-970|intel-optane-p4800x|micron-9[23]00|article",
    "5": r"crucial-t700|samsung-pm1743|samsung-pm9d3a|kioxia-cm7",
}
"""Drives by the PCIe generation of their four lanes; the others are of the fourth."""


def generation(name):
    return next((number for number, drives in GENERATIONS.items() if re.match(drives, name)), "4")


@pytest.mark.parametrize("name", DRIVES)
def test_a_drive_is_plausible(name):
    cluster = one("drives", name)
    drive = cluster.node.tiers["nvme"].drive
    fastest = 4 * LANE[generation(name)]
    assert 100e9 <= drive.capacity < 200e12
    for rate in (drive.read_bandwidth, drive.write_bandwidth):
        assert rate is None or 100e6 < rate < fastest
    assert drive.read_bandwidth is not None or drive.write_bandwidth is not None
    if drive.endurance is not None:
        assert 100 < drive.endurance / drive.capacity < 200e3
    assert sourced(cluster, "tiers.nvme.drive.")


CONSUMER = ("samsung-9[7-9]0", "crucial", "wd-black", "solidigm-p44")


@pytest.mark.parametrize("name", [name for name in DRIVES if re.match("|".join(CONSUMER), name)])
def test_a_consumer_drive_does_not_write_at_the_rate_of_its_cache(name):
    drive = one("drives", name).node.tiers["nvme"].drive
    assert drive.write_bandwidth is None or drive.write_bandwidth < 2.5e9


@pytest.mark.parametrize("name", LINKS)
def test_a_link_is_plausible(name):
    cluster = one("links", name)
    bandwidth = cluster.node.links["host"].bandwidth
    assert 1e9 < bandwidth <= 900e9
    slot = re.fullmatch(r"pcie(\d)-x(\d+)", name)
    if slot:
        assert bandwidth <= int(slot[2]) * LANE[slot[1]]
    assert sourced(cluster, "links.host.bandwidth")


def sourced(cluster, above):
    """Whether each value of a part says what kind it is and where it came from."""
    found = [origin for path, origin in cluster.provenance.items() if path.startswith(above)]
    return bool(found) and all(
        origin.kind in ("measured", "datasheet", "derived", "assumed") and len(origin.source) > 8
        for origin in found
    )


@pytest.mark.parametrize("name", NODES)
def test_a_machine_is_plausible(name):
    node, provenance = load_node(name)
    assert 1 <= node.gpus_per_node <= 16
    assert next(iter(node.tiers)) == "hbm"
    dram = node.tiers["dram"]
    assert 32e9 < dram.capacity <= 5 * 2**40
    assert dram.via
    if dram.read_bandwidth is not None:
        assert 40e9 < dram.read_bandwidth < 2e12
    if node.network is not None:
        assert 1e9 < node.links[node.network].bandwidth < 2e12
    if node.gpus_per_node > 1:
        assert node.fabric is not None
    assert all(origin.kind != "given" for origin in provenance.values())


@pytest.mark.parametrize("name", NODES)
def test_no_machine_ships_a_tier_that_could_not_be_planned_with(name):
    node, _ = load_node(name)
    for tier in node.tiers.values():
        assert tier.medium != "nvme" or tier.read_bandwidth is not None


@pytest.mark.parametrize("name", ["gh200-96g", "azure-nd-gb200-v6"])
def test_grace_s_memory_is_reached_over_its_own_link_and_not_over_pcie(name):
    node, _ = load_node(name)
    assert node.tiers["dram"].via == ("c2c",)
    link = node.links["c2c"]
    assert link.bandwidth == 450e9
    assert link.shared_by == (1 if node.gpus_per_node == 1 else 2)


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("v100-sxm3-32g", 31.74),
        ("a100-sxm4-40g", 39.50),
        ("a100-sxm4-80g", 79.25),
        ("h100-sxm5-80g", 79.11),
        ("rtx-3090", 23.70),
        ("rtx-4090", 23.64),
    ],
)
def test_the_memory_of_a_gpu_is_what_cuda_reports(name, gib):
    cluster = one("gpus", name)
    assert cluster.node.gpu.memory.capacity == pytest.approx(gib * 2**30)
    assert cluster.provenance["gpu.memory.capacity"].kind == "measured"


def test_the_article_keeps_its_own_memory():
    node, _ = load_node("article")
    assert node.gpu.memory.capacity == 80e9


def test_amd_s_gpus_have_bf16():
    for name in (name for name in GPUS if name.startswith("mi")):
        assert "bf16" in one("gpus", name).node.gpu.peak_flops_per_s


def test_what_has_no_bf16():
    without = {name for name in GPUS if "bf16" not in one("gpus", name).node.gpu.peak_flops_per_s}
    assert without == {
        "p100-sxm2-16g",
        "rtx-2080-ti",
        "t4",
        "v100-pcie-16g",
        "v100-pcie-32g",
        "v100-sxm2-16g",
        "v100-sxm2-32g",
        "v100-sxm3-32g",
    }
