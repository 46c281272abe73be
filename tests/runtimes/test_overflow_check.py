"""What is infinite or no number among fp16 gradients, which stage 3 looks for where it keeps them."""

from dataclasses import replace

import pytest
from runtimes.toy import cluster, plan, workload

from ziplan.estimate import estimate
from ziplan.hardware.rates import ADAM_BYTES
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed.overflow import CHECK_RATE, CHECKED_BYTES, MADE_BYTES
from ziplan.runtimes.deepspeed.released import Released
from ziplan.runtimes.deepspeed.releases import VERSION
from ziplan.runtimes.shared.fresh import PAGE_BYTES, PAGE_FAULT_TIME, PAGE_FREE_TIME
from ziplan.runtimes.terms import OVERFLOW
from ziplan.simulate.step import simulate

RANKS, CORES, ADAM = 2, 16, 4e9
P = workload().model.params


def machine(cores=CORES):
    made = cluster(gpus=RANKS)
    rates = {"fp16": 100e12, "bf16": 100e12, "fp32": 20e12}
    gpu = made.node.gpu.model_copy(update={"peak_flops_per_s": rates, "sustained_flops_per_s": rates})
    cpu = made.node.cpu.model_copy(update={"cores": cores, "core_bandwidth": 1e12})
    return replace(made, node=made.node.model_copy(update={"cpu": cpu, "gpu": gpu}))


def spent(precision="fp16", stage=3.0, optimizer="dram", version=VERSION, threads="bound", cores=CORES):
    runtime, on = Released(version), machine(cores)
    job = workload(precision=precision, optimizer_threads=threads)
    chosen = runtime.settle(on, job, plan("hbm", optimizer, dp_degree=float(RANKS), zero_stage=stage))
    return estimate(on, job, runtime, chosen).terms.get(OVERFLOW, 0.0)


@pytest.mark.parametrize(("threads", "each"), [("accelerate", 1), (4, 4), ("bound", 8)])
def test_operators_take_their_bytes_and_what_threads_compute_and_new_memory(threads, each):
    moved = CHECKED_BYTES / ADAM_BYTES * P / ADAM
    computed = P / RANKS / (each * CHECK_RATE)
    pages = MADE_BYTES * P / RANKS / PAGE_BYTES
    made = pages * (PAGE_FAULT_TIME / each + PAGE_FREE_TIME)
    assert spent(threads=threads) == pytest.approx(moved + computed + made)


def test_with_one_thread_it_takes_more_than_the_update():
    """2.1 ns and a thousandth of a page of 1.15 us, where a core of 15 GB/s updates one in 1.1 ns."""
    each = spent(threads="accelerate") * RANKS / P
    assert each > 2 * 16 / 15e9


@pytest.mark.parametrize(
    "unlike",
    [{"precision": "bf16"}, {"stage": 2.0}, {"optimizer": "hbm"}, {"version": "0.12.4"}],
    ids=str,
)
def test_nothing_is_looked_through_on_the_host_otherwise(unlike):
    assert spent() > 0
    assert spent(**unlike) == 0


def test_the_release_that_began_it_does_it():
    assert spent(version="0.12.6") == spent()


def test_where_nobody_stated_cores_its_bytes_are_counted_alone():
    assert spent(threads=None, cores=None) == pytest.approx(CHECKED_BYTES / ADAM_BYTES * P / ADAM)


def test_an_optimizer_on_nvme_has_its_gradients_on_the_host_too():
    assert spent(optimizer="nvme") == pytest.approx(spent())


def test_the_played_step_waits_as_long():
    runtime, on = RUNTIMES["deepspeed"], machine()
    few, many = (workload(precision="fp16", optimizer_threads=threads) for threads in ("accelerate", "bound"))
    chosen = runtime.settle(on, few, plan("hbm", "dram", dp_degree=float(RANKS), zero_stage=3.0))
    played = [simulate(on, job, runtime, chosen).makespan for job in (few, many)]
    reckoned = [estimate(on, job, runtime, chosen) for job in (few, many)]
    assert played[0] - played[1] == pytest.approx(reckoned[0].step_time - reckoned[1].step_time, rel=1e-6)
    assert reckoned[0].terms[OVERFLOW] > reckoned[1].terms[OVERFLOW]
