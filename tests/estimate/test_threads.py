"""An update on the host with few threads: limited by what a core reads, never faster than all cores."""

from dataclasses import replace

import pytest
from runtimes.toy import cluster, plan, workload

from ziplan.estimate import estimate
from ziplan.estimate.rates import Rates
from ziplan.hardware.processors import THREADS, cpu_optimizer_rate, thread_count
from ziplan.laws.law import Derivation
from ziplan.runtimes import RUNTIMES
from ziplan.simulate.step import simulate


def node(gpus=8, bandwidth=200e9, **cpu):
    """A node whose memory bandwidth decides how fast all cores update, unless `cpu` says."""
    machine = cluster(gpus=gpus).node
    tiers = {
        **machine.tiers,
        "dram": machine.tiers["dram"].model_copy(update={"read_bandwidth": bandwidth}),
    }
    told = {"adam_params_per_s": None, **cpu}
    return machine.model_copy(update={"cpu": machine.cpu.model_copy(update=told), "tiers": tiers})


@pytest.mark.parametrize(
    ("threads", "cores", "ranks", "each"),
    [
        (3, None, 8, 3),
        ("torchrun", 64, 8, 1),
        ("torchrun", 64, 1, 64),
        ("torchrun", None, 1, None),
        ("accelerate", None, 1, 1),
        ("deepspeed", 64, 8, 64),
        ("bound", 64, 8, 8),
        (None, 64, 8, 8),
        (None, 4, 8, 1),
        (None, None, 8, None),
    ],
)
def test_what_starts_a_run_says_how_many_threads_a_rank_has(threads, cores, ranks, each):
    assert thread_count(threads, cores, ranks) == each


def test_few_threads_update_what_their_cores_read():
    """8 ranks of one thread at 3 GB/s and 16 B a parameter: 1.5e9 a second; all cores 1.57e9."""
    machine = node(core_bandwidth=3e9, cores=64)
    few, many = cpu_optimizer_rate(machine, 8, "torchrun"), cpu_optimizer_rate(machine, 8)
    assert few.value == pytest.approx(8 * 3e9 / 16)
    assert few.threads == 8
    assert many.value == pytest.approx(0.22 * 200e9 / 28), "64 threads"
    assert not many.threads
    assert cpu_optimizer_rate(machine, 8, 2).value == many.value, "16 threads would update 3e9"
    assert cpu_optimizer_rate(machine, 8, "deepspeed").value == many.value
    assert cpu_optimizer_rate(machine, 1, "accelerate").value == pytest.approx(3e9 / 16)


def test_more_threads_than_cores_read_no_more():
    machine = node(core_bandwidth=1.6e9, cores=4)
    assert cpu_optimizer_rate(machine, 8, "deepspeed").value == pytest.approx(4 * 1.6e9 / 16)


def test_a_measured_rate_of_all_cores_is_the_most():
    machine = node(core_bandwidth=16e9, cores=64, adam_params_per_s=2e9)
    assert cpu_optimizer_rate(machine, 1, 1).value == pytest.approx(1e9)
    assert cpu_optimizer_rate(machine, 1, 3).value == cpu_optimizer_rate(machine, 1).value == 2e9


def test_ends_of_what_is_assumed_of_all_cores_still_bound_few_threads():
    machine = node(bandwidth=300e9, core_bandwidth=3e9, cores=64)
    found = cpu_optimizer_rate(machine, 8, "torchrun")
    assert found.at("low") == found.at("high") == found.value, "DRAM carries 1.61e9 at the least"
    slow = cpu_optimizer_rate(node(core_bandwidth=3e9, cores=64), 8, "torchrun")
    assert slow.at("low") == pytest.approx(0.15 * 200e9 / 28)
    assert slow.at("high") == slow.value == pytest.approx(1.5e9)


def test_where_nobody_stated_what_a_core_reads_a_published_one_is_assumed():
    found = cpu_optimizer_rate(node(gpus=2, bandwidth=400e9), 2, 1)
    assert found.assumed.name == "cpu.core_bandwidth"
    assert found.value == pytest.approx(2 * 14.5e9 / 16)
    assert found.at("low") == pytest.approx(2 * 10.9e9 / 16)
    assert found.at("high") == pytest.approx(2 * 21.8e9 / 16)
    assert cpu_optimizer_rate(node(gpus=8), 8, 1).assumed.name == "cpu.adam_params_per_s", "enough of them"


def test_an_update_of_few_threads_is_timed_by_their_law():
    machine = replace(cluster(gpus=8), node=node(core_bandwidth=3e9, cores=64))
    kept = Derivation()
    rates = Rates(Derivation(), machine, "bf16", RUNTIMES["ideal"], 8.0, threads="torchrun")
    assert rates.update_time(kept, "CPU optimizer", 3e9) == pytest.approx(2.0)
    assert [step.law.function.__name__ for step in kept.steps] == ["cpu_adam_time_by_threads"]


def told(threads):
    job = workload(sequence_length=512)
    return replace(job, training=job.training.model_copy(update={"optimizer_threads": threads}))


@pytest.mark.parametrize("runtime", ["deepspeed", "fsdp"])
def test_estimate_and_played_step_both_wait_for_few_threads_and_say_so(runtime):
    machine = replace(cluster(gpus=8), node=node(core_bandwidth=1e9, cores=64))
    home = "dram" if runtime == "fsdp" else "hbm"
    made = RUNTIMES[runtime].settle(machine, told(None), plan(home, "dram", dp_degree=8.0))
    few, bound = (estimate(machine, told(each), RUNTIMES[runtime], made) for each in ("torchrun", None))
    ratio = (0.22 * 200e9 / 28) / (8 * 1e9 / 16)
    assert few.terms["CPU optimizer"] == pytest.approx(ratio * bound.terms["CPU optimizer"])
    assert THREADS in {each.name for each in few.assumptions}
    assert THREADS not in {each.name for each in bound.assumptions}
    slow, fast = (simulate(machine, told(each), RUNTIMES[runtime], made) for each in ("torchrun", None))
    longer = slow.makespan - fast.makespan
    assert longer == pytest.approx(few.step_time - bound.step_time, rel=0.02)
    assert THREADS in {each.name for each in slow.assumptions}
