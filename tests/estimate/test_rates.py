"""What one rank gets of each resource while all ranks work, reckoned by hand."""

from dataclasses import replace

import pytest
from runtimes.drawn import with_tier
from runtimes.toy import cluster

from ziplan.errors import BadInput
from ziplan.estimate.rates import Rates
from ziplan.hardware.profiles import load_cluster
from ziplan.hardware.rates import UNKNOWN
from ziplan.laws.law import Derivation
from ziplan.runtimes import RUNTIMES


def rates(machine, ranks=None, runtime="ideal", precision="bf16"):
    return Rates(Derivation(), machine, precision, RUNTIMES[runtime], ranks or float(machine.gpu_count))


def changed(machine, **update):
    return replace(machine, node=machine.node.model_copy(update=update))


def shared_host(machine, users):
    links = machine.node.links
    host = links["host"].model_copy(update={"shared_by": users})
    return changed(machine, links={**links, "host": host})


def test_host_memory_is_reached_over_ones_own_link():
    """200 GB/s of DRAM for 8 ranks are 25 each; a link gives 20."""
    assert rates(cluster(gpus=8)).of("dram.read") == 20e9
    assert rates(cluster(gpus=16)).of("dram.read") == 200e9 / 16
    assert rates(cluster(gpus=16), ranks=1.0).of("dram.read") == 20e9, "one rank pulls alone"


def test_a_shared_link_is_split_among_those_at_work():
    assert rates(shared_host(cluster(gpus=8), 4)).of("dram.read") == 5e9
    assert rates(shared_host(cluster(gpus=8), 4), ranks=2.0).of("dram.read") == 10e9


def test_drives_are_the_whole_nodes():
    """5 GB/s read and 2 GB/s written by 4 ranks."""
    machine = cluster(gpus=4)
    assert rates(machine).of("nvme.read") == 1.25e9
    assert rates(machine).of("nvme.write") == 0.5e9
    assert rates(machine).of("nvme.swap_read") == 1.25e9
    assert rates(cluster(nodes=8, gpus=4)).of("nvme.swap_write") == 0.5e9, "each node has its own"


def test_one_process_swaps_no_faster_than_its_software():
    fast = with_tier(cluster(), "nvme", read_bandwidth=40e9, write_bandwidth=40e9)
    assert rates(fast).of("nvme.swap_read") == 40e9
    assert rates(fast, runtime="deepspeed").of("nvme.swap_read") == RUNTIMES["deepspeed"].SWAP_LIMIT


def test_gpu_memory_is_each_ones_own():
    assert rates(cluster(gpus=8)).of("hbm.read") == 2e12


def test_gathers_cross_the_fabric_and_between_nodes_the_nodes_network():
    assert rates(cluster()).of("gather") == float("inf")
    assert rates(cluster(gpus=8)).of("gather") == 300e9
    assert rates(cluster(nodes=2, gpus=8)).of("gather") == 50e9


def test_without_a_fabric_gpus_exchange_over_the_host():
    machine = changed(cluster(gpus=4), fabric=None)
    found = rates(machine)
    assert found.of("gather") == 20e9
    assert found.assumptions["fabric"].value == 20e9


def test_nodes_without_a_network_are_refused():
    with pytest.raises(BadInput, match="no network between them") as refused:
        rates(changed(cluster(nodes=2), network=None)).of("gather")
    (problem,) = refused.value.problems
    assert "--set 'links.network={bandwidth: 100 Gbit/s}' --set network=network" in problem.help


def test_an_unstated_write_rate_is_taken_as_the_read_rate_and_said():
    found = rates(with_tier(cluster(), "nvme", write_bandwidth=None))
    assert found.of("nvme.swap_write") == 5e9
    assert found.assumptions["tiers.nvme.write_bandwidth"].high == 5e9


def test_a_measured_rate_needs_no_assumption():
    found = rates(cluster())
    assert (found.of("gpu"), found.of("cpu_optimizer")) == (100e12, 4e9)
    assert not found.assumptions


def test_a_peak_rate_is_taken_in_part_and_said_so():
    gpu = cluster().node.gpu.model_copy(update={"sustained_flops_per_s": {}})
    found = rates(changed(cluster(), gpu=gpu))
    sustained = found.of("gpu")
    (said,) = found.assumptions.values()
    assert said.value == sustained < 200e12
    assert said.low < said.value < said.high


def test_a_rate_in_fp32_that_nobody_stated_is_unknown():
    gpu = cluster().node.gpu.model_copy(
        update={"peak_flops_per_s": {"fp16": 200e12}, "sustained_flops_per_s": {}}
    )
    found = rates(changed(cluster(), gpu=gpu), precision="fp32")
    assert found.of("gpu") == UNKNOWN
    assert found.unknown == {"gpu": "gpu.peak_flops_per_s.fp32"}


def test_a_precision_that_the_gpu_lacks_is_refused():
    with pytest.raises(BadInput, match="no known rate for precision fp16"):
        rates(cluster(), precision="fp16").of("gpu")


def test_the_cpu_optimizer_without_a_measurement_is_bound_by_memory():
    cpu = cluster().node.cpu.model_copy(update={"adam_params_per_s": None})
    bound = rates(changed(cluster(), cpu=cpu))
    assert bound.of("cpu_optimizer") == pytest.approx(0.22 * 200e9 / 28), "the middle of four"
    said = bound.assumptions["cpu.adam_params_per_s"]
    assert (said.low, said.high) == pytest.approx((0.15 * 200e9 / 28, 0.43 * 200e9 / 28))
    blind = rates(with_tier(changed(cluster(), cpu=cpu), "dram", read_bandwidth=None))
    assert blind.of("cpu_optimizer") == pytest.approx(32e9 / 9.6, rel=0.01), "a whole node's, not a socket's"
    said = blind.assumptions["cpu.adam_params_per_s"]
    assert said.low == pytest.approx(72.7e9 / 4 / 10, rel=0.01)
    assert said.high == pytest.approx(8e9 / 0.769, rel=0.01)


def test_one_processor_has_its_memory_to_itself():
    cpu = cluster().node.cpu.model_copy(update={"adam_params_per_s": None, "sockets": 1})
    found = rates(changed(cluster(), cpu=cpu))
    assert found.of("cpu_optimizer") == pytest.approx(0.57 * 200e9 / 28), "as Grace"
    said = found.assumptions["cpu.adam_params_per_s"]
    assert (said.low, said.high) == pytest.approx((0.22 * 200e9 / 28, 0.57 * 200e9 / 28))


def test_an_update_is_timed_by_the_law_that_limits_it():
    cpu = cluster().node.cpu.model_copy(update={"adam_params_per_s": None})
    for machine, law, seconds in (
        (cluster(), "cpu_adam_time", 1.0),
        (changed(cluster(), cpu=cpu), "cpu_adam_time_by_bandwidth", 28 * 4e9 / (0.22 * 200e9)),
    ):
        kept = Derivation()
        assert rates(machine).update_time(kept, "CPU optimizer", 4e9) == pytest.approx(seconds)
        assert [step.law.function.__name__ for step in kept.steps] == [law]


def test_assumed_rates_can_be_taken_at_their_ends():
    cpu = cluster().node.cpu.model_copy(update={"adam_params_per_s": None})
    machine = changed(cluster(), cpu=cpu)
    ends = [
        Rates(Derivation(), machine, "bf16", RUNTIMES["ideal"], 1.0, end) for end in ("low", "value", "high")
    ]
    found = [each.of("cpu_optimizer") for each in ends]
    assert found == pytest.approx([share * 200e9 / 28 for share in (0.15, 0.22, 0.43)])
    assert {each.of("gpu") for each in ends} == {100e12}, "a measured rate has no ends"


def test_memory_of_a_data_sheet_is_not_reached_whole():
    """Kernels that read and write reach some 0.87 of it; what somebody measured or states is what it is."""
    sheet = load_cluster("dgx-a100-80g")
    stated = load_cluster("dgx-a100-80g", [("tiers.hbm.read_bandwidth", "2.039 TB/s")])
    assert rates(sheet).of("hbm.read") == pytest.approx(0.87 * 2.039e12)
    assert rates(stated).of("hbm.read") == 2.039e12
    assert rates(sheet).of("dram.read") == rates(stated).of("dram.read"), "of the GPU alone"


def test_the_share_of_a_data_sheets_memory_bandwidth_is_said():
    name = "tiers.hbm.read_bandwidth"
    sheet = rates(load_cluster("dgx-a100-80g"))
    stated = rates(load_cluster("dgx-a100-80g", [(name, "2 TB/s")]))
    assert sheet.of("hbm.read")
    assert stated.of("hbm.read")
    assert name not in {each.name for each in stated.said()}
    (said,) = (each for each in sheet.said() if each.name == name)
    assert said.value == sheet.of("hbm.read")
    assert (said.low, said.high) == pytest.approx((0.85 * 2.039e12, 0.89 * 2.039e12))
    assert said.source.startswith("0.87 of the data sheet's 2.039 TB/s, ")


def test_products_run_at_rates_of_their_own_that_follow_the_sustained_one():
    found = rates(cluster())
    assert found.of("gpu_matrix") == pytest.approx(106.95e12)
    assert found.of("gpu_attention") == pytest.approx(0.4258 * 106.95e12)
    bare = changed(cluster(), gpu=cluster().node.gpu.model_copy(update={"sustained_flops_per_s": {}}))
    for end in ("low", "value", "high"):
        at_end = Rates(Derivation(), bare, "bf16", RUNTIMES["ideal"], 1.0, end)
        assert at_end.of("gpu_matrix") == pytest.approx(1.0695 * at_end.of("gpu")), "assumed with it"
    best = cluster().node.gpu.model_copy(update={"matmul_flops_per_s": {"bf16": 101e12}})
    assert rates(changed(cluster(), gpu=best)).of("gpu_matrix") == 101e12


def test_products_are_no_faster_than_the_peak_and_unknown_with_the_sustained_rate():
    fast = cluster().node.gpu.model_copy(update={"peak_flops_per_s": {"bf16": 102e12}})
    assert rates(changed(cluster(), gpu=fast)).of("gpu_matrix") == 102e12
    blank = cluster().node.gpu.model_copy(
        update={"peak_flops_per_s": {"fp16": 200e12}, "sustained_flops_per_s": {}}
    )
    found = rates(changed(cluster(), gpu=blank), precision="fp32")
    assert found.of("gpu_attention") == UNKNOWN
    assert found.unknown == {"gpu_attention": "gpu.peak_flops_per_s.fp32"}
