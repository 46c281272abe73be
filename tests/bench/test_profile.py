"""The machine file of a record: what a plan reads of it, and what is judged."""

import pytest
from bench.records import cpu_only, drive, folder, measured, topology, with_gpus

from ziplan.bench import names
from ziplan.bench.comparison import judgements, shares_measured, slot_rate
from ziplan.bench.matching import drive_part, gpu_part
from ziplan.bench.measurement import Waived
from ziplan.bench.profile import profile_text
from ziplan.bench.record import Contention, Record, dumps, load, with_results
from ziplan.bench.topology import LinkState
from ziplan.bench.wear import wears
from ziplan.errors import BadInput
from ziplan.files import read
from ziplan.hardware.profiles import load_cluster, load_node

GIB = 2**30


def written(tmp_path, record, extends=""):
    path = tmp_path / "node.yaml"
    path.write_text(profile_text(record, extends))
    return str(path)


def verdicts(record):
    return {one.measured.name: one.verdict for one in judgements(record)}


def test_a_record_is_read_back_as_it_was(tmp_path):
    record = with_results(with_gpus(), [Waived(name="x", reason="not \u00fc here")])
    (tmp_path / "r.json").write_text(dumps(record))
    assert load(tmp_path / "r.json") == record


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ('"unit": "B/s"', '"unit": "GB/s"', "ZP010"),
        ('"n": 7', '"n": 7, "m": 7', "ZP012"),
        ('"n": 7', '"n": 0', "ZP010"),
    ],
)
def test_a_record_that_is_wrong_is_refused_at_its_place(tmp_path, before, after, code):
    path = tmp_path / "r.json"
    path.write_text(dumps(cpu_only()).replace(before, after, 1))
    with pytest.raises(BadInput) as found:
        load(path)
    assert found.value.problems[0].code == code
    assert found.value.problems[0].line > 1


def test_a_value_measured_after_all_is_no_longer_waived():
    record = with_results(Record(), [Waived(name=names.DRAM_COPY, reason="x"), Waived(name="y", reason="x")])
    record = with_results(record, [measured(names.DRAM_COPY, "B/s", 1.0)])
    assert [one.name for one in record.waived] == ["y"]


def test_a_node_with_gpus_is_a_machine_of_its_own(tmp_path):
    node, provenance = load_node(written(tmp_path, with_gpus()))
    assert node.gpus_per_node == 2
    assert node.gpu.peak_flops_per_s["bf16"] == 312e12
    # All wait for the slowest: the second GPU, and of its directions the slower one.
    assert node.gpu.memory.bandwidth == pytest.approx(1.575e12)
    assert node.gpu.matmul_flops_per_s["bf16"] == pytest.approx(243e12)
    assert node.links["host"].bandwidth == pytest.approx(12.6e9)
    assert node.links["host"].shared_by == 1
    assert node.links[node.fabric].bandwidth == pytest.approx(230e9)
    assert node.tiers["dram"].capacity == 512 * GIB
    assert node.tiers["nvme"].read_bandwidth == pytest.approx(6e9)
    assert node.tiers["nvme"].write_bandwidth == pytest.approx(2e9)
    assert node.tiers["nvme"].capacity == 1.5e12
    assert node.tiers["nvme"].drive.endurance == 1.2e15
    assert node.tiers["nvme"].via == ("host",)
    assert provenance["links.host.bandwidth"].kind == "measured"
    assert provenance["cpu.adam_params_per_s"].kind == "measured"
    assert provenance["gpu.peak_flops_per_s.bf16"].kind == "datasheet"


def test_gpus_that_exchange_no_faster_than_over_the_host_have_no_fabric(tmp_path):
    record = with_results(with_gpus(), [measured("gpu.all.to_next", "B/s", 13e9)])
    assert load_node(written(tmp_path, record))[0].fabric is None


def test_one_gpu_has_its_link_to_itself(tmp_path):
    record = with_gpus(1)
    alone = tuple(one for one in record.measured if "beside_all" not in one.name)
    node, _ = load_node(written(tmp_path, record.model_copy(update={"measured": alone})))
    assert node.links["host"].bandwidth == pytest.approx(24e9)


def test_without_a_gpu_the_file_asks_for_a_machine_to_extend(tmp_path):
    path = written(tmp_path, cpu_only())
    with pytest.raises(BadInput) as found:
        load_cluster(path)
    (problem,) = found.value.problems
    assert "gpu" in problem.message
    assert "extends" in problem.help


def test_measured_values_win_over_the_machine_that_is_extended(tmp_path):
    base, _ = load_node("dgx-a100-80g")
    node, provenance = load_node(written(tmp_path, cpu_only(), "dgx-a100-80g"))
    assert node.gpu == base.gpu
    assert node.links == base.links
    assert node.tiers["nvme"].drive_count == 1
    assert node.tiers["nvme"].read_bandwidth == pytest.approx(6e9)
    assert node.tiers["nvme"].via == base.tiers["nvme"].via
    assert node.cpu.adam_params_per_s == pytest.approx(5e9)
    assert node.cpu.core_bandwidth == pytest.approx(16e9), "16 bytes for each parameter"
    assert provenance["cpu.core_bandwidth"].kind == "derived"
    assert provenance["tiers.dram.read_bandwidth"].kind == "measured"
    assert provenance["links.host.bandwidth"] == load_node("dgx-a100-80g")[1]["links.host.bandwidth"]


def test_several_drives_are_what_they_do_at_once(tmp_path):
    node, _ = load_node(written(tmp_path, cpu_only(drives=3), "dgx-a100-80g"))
    tier = node.tiers["nvme"]
    assert (tier.drive_count, tier.capacity) == (3, 4.5e12)
    assert (tier.read_bandwidth, tier.write_bandwidth) == (pytest.approx(12e9), pytest.approx(3e9))


def test_a_network_file_system_is_no_tier_of_the_node(tmp_path):
    record = cpu_only()
    far = record.topology.model_copy(update={"folders": (folder(0, kind="network"),)})
    document = read(written(tmp_path, record.model_copy(update={"topology": far}))).data
    assert "nvme" not in document["tiers"]
    assert "network file system" in str(document["not_measured"])


def test_a_folder_whose_drives_are_not_seen_is_no_tier_and_that_is_told(tmp_path):
    record = cpu_only()
    hidden = folder(0, kind="unknown").model_copy(update={"filesystem": "overlay", "drives": ()})
    topology = record.topology.model_copy(update={"folders": (hidden,)})
    document = read(written(tmp_path, record.model_copy(update={"topology": topology}))).data
    assert "nvme" not in document["tiers"]
    assert "on overlay, and its drives are not seen" in str(document["not_measured"])


def test_a_gpu_with_another_way_to_its_host_is_not_held_against_a_slot():
    found = {one.measured.name: one for one in judgements(with_gpus(1, "NVIDIA GH200 480GB", 94.5 * GIB))}
    assert found[names.gpu(0, "host_to_device")].reference is None


def test_a_derived_value_says_so(tmp_path):
    one = measured(names.ADAM_RATE, "param/s", 5e9).model_copy(update={"kind": "derived"})
    _, provenance = load_node(written(tmp_path, with_results(cpu_only(), [one]), "dgx-a100-80g"))
    assert provenance["cpu.adam_params_per_s"].kind == "derived"


def test_a_value_has_its_spread_method_and_date(tmp_path):
    leaf = read(written(tmp_path, cpu_only())).data["tiers"]["nvme"]["read_bandwidth"]
    assert leaf["value"] == "6 GB/s"
    assert leaf["n"] == 7
    assert leaf["iqr"] == "60 MB/s"
    assert (leaf["min"], leaf["max"]) == ("5.94 GB/s", "6.06 GB/s")
    assert leaf["method"] == "planted"
    assert len(leaf["date"]) == len("2026-01-02")


def test_limits_of_a_container_are_those_of_the_machine(tmp_path):
    record = cpu_only()
    limited = record.topology.model_copy(
        update={"memory_limit_bytes": 64.0 * GIB, "memlock_limit_bytes": 8e6}
    )
    node, _ = load_node(written(tmp_path, record.model_copy(update={"topology": limited}), "dgx-a100-80g"))
    assert node.tiers["dram"].capacity == 64 * GIB
    assert node.memlock_limit == 8e6


def test_what_is_beside_the_machine_is_kept(tmp_path):
    shared = Contention(shared="PCI 0000:10:00.0", members=("a", "b"), evidence="topology")
    record = with_results(cpu_only(drives=2), [Waived(name="gpu", reason='no "driver": none\nat all')])
    document = read(written(tmp_path, record.model_copy(update={"contention": (shared,)}))).data
    assert document["not_measured"] == [{"name": "gpu", "reason": 'no "driver": none\nat all'}]
    assert document["environment"]["kernel"] == "6.8"
    assert [each["evidence"] for each in document["contention"]] == ["topology", "measured"]


@pytest.mark.parametrize("host", ["true", "1e5", "a: b", "#x", "\u00fc", "- x", "{", "'", "null"])
def test_any_name_of_a_host_makes_a_file_that_is_read(tmp_path, host):
    record = cpu_only()
    named = record.model_copy(update={"topology": record.topology.model_copy(update={"host": host})})
    assert load_node(written(tmp_path, named, "dgx-a100-80g"))[0].name.startswith(host)


def test_more_than_the_chip_can_do_is_impossible_and_not_used(tmp_path):
    record = with_results(with_gpus(1), [measured(names.gpu(0, "matmul.bf16"), "FLOP/s", 400e12)])
    assert verdicts(record)[names.gpu(0, "matmul.bf16")] == "impossible"
    path = written(tmp_path, record)
    # What the shipped part says of it stays.
    assert load_node(path)[0].gpu.matmul_flops_per_s["bf16"] == 271.2e12
    assert "more than can be" in str(read(path).data["not_measured"])


def test_a_read_faster_than_the_drives_link_is_impossible():
    # 16 GT/s x 4 lanes x 128/130 / 8 = 7.877 GB/s.
    assert slot_rate(LinkState(most_speed=16.0, width=4, most_width=4)) == pytest.approx(7.877e9, rel=1e-3)
    assert slot_rate(LinkState(most_speed=5.0, width=2, most_width=4)) == pytest.approx(1e9)
    name = names.storage("nvme0n1", "read_bandwidth")
    for rate, verdict in ((9e9, "impossible"), (7.6e9, "as expected"), (3e9, "suspicious")):
        assert verdicts(with_results(cpu_only(), [measured(name, "B/s", rate)]))[name] == verdict


def test_a_write_that_falls_is_suspicious():
    burst = measured(names.storage("nvme0n1", "write_burst_bandwidth"), "B/s", 6e9)
    record = with_results(cpu_only(), [burst])
    (one,) = [each for each in judgements(record) if each.measured.name.endswith("nvme0n1.write_bandwidth")]
    assert (one.verdict, one.why) == (
        "suspicious",
        "falls to 33% of the first seconds: a cache had taken those",
    )


def test_a_wide_spread_is_unstable():
    record = with_results(cpu_only(), [measured(names.DRAM_COPY, "B/s", 1e11, spread=0.3)])
    assert verdicts(record)[names.DRAM_COPY] == "unstable"


def test_an_array_that_writes_twice_is_not_held_against_the_sum_of_its_drives():
    record = cpu_only()
    mirrored = topology(drives=2).model_copy(
        update={
            "folders": (
                folder(0).model_copy(update={"drives": ("nvme0n1", "nvme1n1"), "through": ("md0 raid1",)}),
            )
        }
    )
    record = record.model_copy(update={"topology": mirrored})
    by_name = {one.measured.name: one for one in judgements(record)}
    assert by_name[names.storage("nvme0n1", "write_bandwidth")].reference is None
    assert by_name[names.storage("nvme0n1", "read_bandwidth")].reference == pytest.approx(2 * 7.45e9)


def test_what_is_slower_at_once_shares_something():
    (gpus,) = shares_measured(with_gpus(2))
    assert gpus == (
        "host links of all GPUs",
        ("gpu.0", "gpu.1"),
        "at once they reach 56% of what they do one by one",
    )
    (drives,) = shares_measured(cpu_only(drives=2))
    assert drives[1] == ("storage.nvme0n1", "storage.nvme1n1")
    free = with_results(with_gpus(2), [measured("gpu.all.host_to_device", "B/s", 49e9)])
    assert list(shares_measured(free)) == []


def test_without_a_data_sheet_of_its_own_a_part_is_held_against_the_machine_that_is_extended():
    base, _ = load_node("dgx-a100-80g")
    found = {one.measured.name: one for one in judgements(with_gpus(1, name="NVIDIA Z9"), base)}
    assert found[names.DRAM_COPY].reference == base.tiers["dram"].read_bandwidth
    assert found[names.DRAM_COPY].verdict == "suspicious"  # 200 of 409.6 GB/s
    assert found[names.gpu(0, "matmul.bf16")].reference == 312e12
    assert found[names.gpu(0, "hbm.copy_bandwidth")].reference == base.gpu.memory.bandwidth
    # Its slot is known, and nearer.
    assert found[names.gpu(0, "host_to_device")].reference == pytest.approx(31.5e9, rel=1e-2)
    # The drive's own data sheet is nearer than the machine's.
    assert found[names.storage("nvme0n1", "read_bandwidth")].reference == 7.45e9


def test_a_product_faster_than_the_peak_of_the_machine_that_is_extended_is_not_used(tmp_path):
    record = with_gpus(1, name="NVIDIA Z9")
    record = with_results(record, [measured(names.gpu(0, "matmul.bf16"), "FLOP/s", 900e12)])
    node, _ = load_node(written(tmp_path, record, "dgx-a100-80g"))
    assert node.gpu.matmul_flops_per_s["bf16"] == 271.2e12
    assert node.gpu.name == "NVIDIA Z9"


def test_a_machine_file_that_is_extended_is_found_from_everywhere(tmp_path, monkeypatch):
    (tmp_path / "base.yaml").write_text("extends: dgx-a100-80g\nname: Mine\n")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path / "below", cpu_only(), "base.yaml")
    assert "Mine" in load_node(path)[0].name


def test_wear_is_the_share_of_each_drives_endurance():
    # Two drives take half each, of 1.2 PB.
    found = dict(wears(cpu_only(drives=2), 240e9))
    assert list(found.values()) == [pytest.approx(120e9 / 1.2e15)] * 2
    other = topology().model_copy(update={"drives": (drive(0, model="Unknown"),)})
    assert list(wears(cpu_only().model_copy(update={"topology": other}), 240e9)) == []


@pytest.mark.parametrize(
    ("name", "memory_gib", "part"),
    [
        ("NVIDIA A100-SXM4-80GB", 79.25, "a100-sxm4-80g"),
        ("NVIDIA A100-SXM4-40GB", 39.4, "a100-sxm4-40g"),
        ("NVIDIA A100 80GB PCIe", 79.25, "a100-pcie-80g"),
        ("NVIDIA H100 80GB HBM3", 79.1, "h100-sxm5-80g"),
        ("NVIDIA H100 PCIe", 79.1, "h100-pcie-80g"),
        ("NVIDIA H100 NVL", 93.1, "h100-nvl-94g"),
        ("NVIDIA H200", 139.8, "h200-sxm-141g"),
        ("NVIDIA GH200 480GB", 94.5, "gh200-96g"),
        ("NVIDIA GeForce RTX 3090", 23.6, "rtx-3090"),
        ("NVIDIA GeForce RTX 3090 Ti", 23.6, "rtx-3090-ti"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 15.9, ""),
        ("Tesla V100-SXM2-32GB", 31.7, "v100-sxm2-32g"),
        ("NVIDIA A10G", 22.3, "a10g"),
        ("NVIDIA Z9", 80, ""),
        ("", 80, ""),
    ],
)
def test_a_gpu_is_known_by_name_and_memory(name, memory_gib, part):
    assert gpu_part(name, memory_gib * GIB) == part


@pytest.mark.parametrize(
    ("model", "part"),
    [
        ("Samsung SSD 990 PRO 2TB", "samsung-990-pro-2tb"),
        ("Samsung SSD 970 EVO 1TB", "samsung-970-evo-1tb"),
        ("Samsung SSD 970 EVO Plus 1TB", "samsung-970-evo-plus-1tb"),
        ("WD_BLACK SN850X 1000GB", "wd-black-sn850x-1tb"),
        ("Amazon EC2 NVMe Instance Storage", ""),
        ("", ""),
    ],
)
def test_a_drive_is_known_by_its_whole_name(model, part):
    assert drive_part(model) == part


@pytest.mark.parametrize("extends", ["", "dgx-a100-80g"])
def test_a_product_whose_peak_no_data_sheet_has_is_told_and_not_used(tmp_path, extends):
    product = measured(names.gpu(0, "matmul.fp32"), "FLOP/s", 19e12)
    path = written(tmp_path, with_results(with_gpus(1), [product]), extends)
    assert "fp32" not in load_node(path)[0].gpu.matmul_flops_per_s
    reasons = {each["name"]: each["reason"] for each in read(path).data["not_measured"]}
    assert reasons[product.name] == "19 TFLOP/s, but no data sheet has its peak rate: not used"


def test_a_product_that_is_over_its_peak_by_rounding_is_the_peak(tmp_path):
    record = with_results(with_gpus(1), [measured(names.gpu(0, "matmul.bf16"), "FLOP/s", 1.01 * 312e12)])
    assert load_node(written(tmp_path, record))[0].gpu.matmul_flops_per_s["bf16"] == 312e12


def test_a_gpu_is_known_by_the_memory_in_its_name(tmp_path):
    assert gpu_part("NVIDIA A100-SXM4-80GB", None) == "a100-sxm4-80g"
    assert gpu_part("NVIDIA A100-SXM4-40GB", None) == "a100-sxm4-40g"
    assert gpu_part("NVIDIA A100 80GB PCIe", None) == "a100-pcie-80g"
    # Its 480 GB are the host's.
    assert gpu_part("NVIDIA GH200 480GB", None) == ""


def test_a_rate_of_nothing_is_told_and_not_used(tmp_path):
    record = with_results(cpu_only(), [measured(names.DRAM_COPY, "B/s", 0.0)])
    path = written(tmp_path, record, "dgx-a100-80g")
    assert (
        load_node(path)[0].tiers["dram"].read_bandwidth
        == load_node("dgx-a100-80g")[0].tiers["dram"].read_bandwidth
    )
    assert "0 was measured" in str(read(path).data["not_measured"])


@pytest.mark.parametrize("host", ["a\nextends: dgx-h100", "a\x1b[31m", "a\u2028b: c", "a\rb: c"])
def test_no_name_of_a_host_ends_the_comment_that_it_stands_in(tmp_path, host):
    record = cpu_only()
    named = record.model_copy(update={"topology": record.topology.model_copy(update={"host": host})})
    assert set(read(written(tmp_path, named)).data) == set(read(written(tmp_path, record)).data)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"unit": "B/s"', '"unit": "FLOP/s"', "dram.copy_bandwidth is in B/s, not in FLOP/s"),
        ('"minimum": 198000000000.0', '"minimum": 3e11', "not between its minimum and its maximum"),
        ('"maximum": 202000000000.0', '"maximum": 1e11', "not between its minimum and its maximum"),
        ('"memory_bytes": 549755813888.0', '"memory_bytes": -4', "at least 0"),
        ('"cores": 32', '"cores": 0', "at least 1"),
        ('"memory_limit_bytes": null', '"memory_limit_bytes": 0', "greater than 0"),
        ('"memlock_limit_bytes": null', '"memlock_limit_bytes": -1', "at least 0"),
        ('"free_bytes": 1500000000000.0', '"free_bytes": -1', "at least 0"),
        ('"load": null', '"load": -2', "at least 0"),
        ('"median": 2.0', '"median": 1.5', "a whole number"),
        ('"maximum": 2.0', '"maximum": 1e12', "a whole number"),
    ],
)
def test_a_record_with_values_that_no_node_has_is_refused(tmp_path, before, after, said):
    text = dumps(with_gpus())
    assert before in text
    changed = text.replace(before, after, 1)
    if "e12" in after:
        changed = changed.replace('"median": 2.0', '"median": 1e12', 1)
    if "1.5" in after:
        changed = changed.replace('"minimum": 2.0', '"minimum": 1.0', 1)
    path = tmp_path / "r.json"
    path.write_text(changed)
    with pytest.raises(BadInput, match=said):
        load(path)
