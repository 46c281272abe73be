"""An update on the host: norms by one thread under FSDP2, temporaries that are handed out anew."""

import json
from dataclasses import replace

import pytest
from runtimes.toy import cluster, plan, toy, workload

from ziplan.estimate import estimate
from ziplan.hardware.processors import CORE_BANDWIDTH
from ziplan.hardware.rates import ADAM_BYTES
from ziplan.laws.law import Derivation
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed.released import Released
from ziplan.runtimes.deepspeed.releases import VERSION
from ziplan.runtimes.shared.fresh import (
    HUGE_PAGE_BYTES,
    HUGE_PAGE_FAULT_TIME,
    HUGE_PAGE_FREE_TIME,
    PAGE_BYTES,
    PAGE_FAULT_TIME,
    PAGE_FREE_TIME,
)
from ziplan.runtimes.terms import HOST_NORM, TEMPORARIES
from ziplan.simulate.step import simulate

FSDP, DEEPSPEED = RUNTIMES["fsdp"], RUNTIMES["deepspeed"]
CORE, THREADS = 10e9, 16
LARGE = toy(layers=1, hidden=4096, middle=4096, vocabulary=8192)
"""Its matrices are of 67 MB and more in fp32, its norms of a page or two."""


def machine(gpus=1, **cpu):
    made = cluster(gpus=gpus)
    known = {"cores": THREADS, "core_bandwidth": CORE, **cpu}
    return replace(made, node=made.node.model_copy(update={"cpu": made.node.cpu.model_copy(update=known)}))


def stepped(job, on=None, home="dram", **fields):
    on = on or machine()
    chosen = FSDP.settle(on, job, plan(home, home, zero_stage=3.0, **fields))
    return estimate(on, job, FSDP, chosen), chosen


@pytest.mark.parametrize("threads", [1, 4, 16])
@pytest.mark.parametrize(("master", "size"), [("fp32", 4), ("bf16", 2)])
def test_one_thread_takes_the_norm_however_many_there_are(threads, master, size):
    job = workload(master_precision=master, precision="bf16", optimizer_threads=threads)
    found, _ = stepped(job)
    assert found.terms[HOST_NORM] == pytest.approx(size * job.model.params / CORE)


def test_each_rank_takes_the_norm_of_its_shard_at_the_same_time():
    job = workload()
    one, two = (stepped(job, machine(gpus=ranks), dp_degree=float(ranks))[0] for ranks in (1, 2))
    assert two.terms[HOST_NORM] == pytest.approx(one.terms[HOST_NORM] / 2)


def test_gradients_that_are_not_clipped_are_neither_measured_nor_scaled():
    with_norm, _ = stepped(workload())
    without, _ = stepped(workload(gradient_clipping=False))
    assert stepped(workload(gradient_clipping=True))[0].terms == with_norm.terms
    assert HOST_NORM not in without.terms
    scaled = with_norm.terms["CPU optimizer"] - without.terms["CPU optimizer"]
    assert scaled == pytest.approx(2 * 4 / ADAM_BYTES * workload().model.params / 4e9)


def test_on_the_gpu_no_thread_of_the_host_reads_anything():
    found, _ = stepped(workload(), home="hbm")
    assert HOST_NORM not in found.terms
    assert TEMPORARIES not in found.terms


def test_where_nobody_stated_a_core_it_is_said_what_was_taken():
    found, _ = stepped(workload(), machine(core_bandwidth=None))
    assert found.terms[HOST_NORM] == pytest.approx(4 * workload().model.params / CORE_BANDWIDTH[0])
    assert "cpu.core_bandwidth" in {assumed.name for assumed in found.assumptions}


@pytest.mark.parametrize("threads", [1, 16])
def test_single_operators_make_a_root_and_a_quotient_page_by_page(threads):
    job = workload(LARGE, optimizer={"fused": False}, optimizer_threads=threads)
    large = sum(size * count for size, count, _ in LARGE.tensors if size > 4096 * 3)
    pages = 2 * 4 * large / PAGE_BYTES
    found, _ = stepped(job)
    assert found.terms[TEMPORARIES] == pytest.approx(
        pages * (PAGE_FAULT_TIME / threads + PAGE_FREE_TIME), rel=1e-3
    )
    assert TEMPORARIES not in stepped(workload(LARGE, optimizer_threads=threads))[0].terms, "fused"


def test_memory_of_small_tensors_is_kept_by_malloc():
    small = toy(layers=1, hidden=1024, middle=1024, vocabulary=1024)
    found, _ = stepped(workload(small, optimizer={"fused": False}))
    assert TEMPORARIES not in found.terms
    divided, _ = stepped(workload(LARGE, optimizer={"fused": False}), machine(gpus=8), dp_degree=8.0)
    assert TEMPORARIES not in divided.terms, "201 MB over eight ranks are less than 32 MiB each"


def test_sgd_with_weight_decay_makes_a_gradient_of_its_own():
    optimizer = {"kind": "sgd", "weight_decay": 0.1}
    decayed, _ = stepped(workload(LARGE, optimizer=optimizer))
    unfused, _ = stepped(workload(LARGE, optimizer={"fused": False}))
    assert decayed.terms[TEMPORARIES] == pytest.approx(unfused.terms[TEMPORARIES] / 2)
    assert TEMPORARIES not in stepped(workload(LARGE, optimizer={"kind": "sgd"}))[0].terms


def test_huge_pages_cost_what_zeroing_them_takes():
    job = workload(LARGE, optimizer={"fused": False})
    small, huge = (stepped(job, machine(huge_pages=pages))[0].terms[TEMPORARIES] for pages in (False, True))
    each = HUGE_PAGE_FAULT_TIME / THREADS + HUGE_PAGE_FREE_TIME
    as_many = HUGE_PAGE_BYTES / PAGE_BYTES * (PAGE_FAULT_TIME / THREADS + PAGE_FREE_TIME)
    assert huge / small == pytest.approx(each / as_many)
    assert huge < small / 5


def test_the_played_step_waits_as_long_and_no_more_bytes_are_counted():
    job = workload(LARGE, optimizer={"fused": False})
    quiet = workload(LARGE, optimizer={"fused": False}, gradient_clipping=False)
    on = machine()
    (one, chosen), (other, _) = stepped(job, on), stepped(quiet, on)
    assert one.traffic == other.traffic
    longer = simulate(on, job, FSDP, chosen).makespan - simulate(on, quiet, FSDP, chosen).makespan
    assert longer == pytest.approx(one.step_time - other.step_time, rel=1e-6)


def held(answer, on, job, runtime, name):
    book = runtime.ledger(Derivation(record=False), on, job, answer)
    return sum(line.high for line in book.lines if (line.tier, line.name) == ("dram", name))


def test_what_single_operators_make_of_the_largest_tensor_is_held_while_they_do():
    on, job = machine(gpus=2), workload(LARGE, optimizer={"fused": False})
    _, chosen = stepped(job, on, dp_degree=2.0)
    largest = max(size for size, _, _ in LARGE.tensors)
    assert held(chosen, on, job, FSDP, "temporaries of the update") == 2 * 4 * largest
    assert not held(chosen, on, workload(LARGE), FSDP, "temporaries of the update")


@pytest.mark.parametrize("stage", [2.0, 3.0])
def test_deepspeed_steps_with_pytorchs_adamw_where_that_is_asked_for(stage):
    """84 bytes of operators, and the 14 of unscaling and casting; one flat tensor for a rank."""
    on = machine(core_bandwidth=1e12)
    jobs = workload(LARGE, optimizer={"fused": False}, optimizer_threads=4), workload(LARGE)
    chosen = DEEPSPEED.settle(on, jobs[0], plan("hbm", "dram", zero_stage=stage))
    found, kernel = (estimate(on, job, DEEPSPEED, chosen) for job in jobs)
    assert found.terms["CPU optimizer"] == pytest.approx(98 / ADAM_BYTES * LARGE.params / 4e9)
    assert kernel.terms["CPU optimizer"] == pytest.approx(42 / ADAM_BYTES * LARGE.params / 4e9)
    each = PAGE_FAULT_TIME / 4 + PAGE_FREE_TIME
    assert found.terms[TEMPORARIES] == pytest.approx(2 * 4 * LARGE.params / PAGE_BYTES * each, rel=1e-3)
    assert TEMPORARIES not in kernel.terms
    assert held(chosen, on, jobs[0], DEEPSPEED, "temporaries of the update") == pytest.approx(
        2 * 4 * LARGE.params, rel=1e-3
    )


@pytest.mark.parametrize("fused", [True, False])
def test_what_is_emitted_asks_for_it(fused):
    on, job = machine(), workload(optimizer={"fused": fused})
    chosen = DEEPSPEED.settle(on, job, plan("hbm", "dram", zero_stage=3.0))
    config = json.loads(DEEPSPEED.emit(on, job, chosen, "/drives", "none")["ds_config.json"])
    assert config["optimizer"]["params"].get("torch_adam") == (None if fused else True)
    chosen = FSDP.settle(on, job, plan("dram", "dram", zero_stage=3.0))
    assert f"fused={fused})" in FSDP.emit(on, job, chosen)["fsdp_setup.py"]


@pytest.mark.parametrize(
    ("fields", "version", "passes"),
    [
        ({"stage": 2.0, "clipping": False}, VERSION, 34),
        ({"stage": 2.0, "clipping": True}, VERSION, 42),
        ({"stage": 2.0, "clipping": None}, VERSION, 42),
        ({"stage": 3.0, "clipping": False}, VERSION, 42),
        ({"stage": 2.0, "clipping": False}, "0.19.5", 42),
    ],
)
def test_deepspeed_multiplies_gradients_by_one_but_below_stage_3_of_late(fields, version, passes):
    runtime, on = Released(version), machine(core_bandwidth=1e12)
    job = workload(gradient_clipping=fields["clipping"])
    chosen = runtime.settle(on, job, plan("hbm", "dram", zero_stage=fields["stage"]))
    found = estimate(on, job, runtime, chosen).terms["CPU optimizer"]
    assert found == pytest.approx(passes / ADAM_BYTES * job.model.params / 4e9)


@pytest.mark.parametrize(("clipping", "norm"), [(None, 1.0), (True, 1.0), (False, 0.0)])
def test_the_config_clips_unless_it_is_said_not_to(clipping, norm):
    on, job = machine(), workload(gradient_clipping=clipping)
    chosen = DEEPSPEED.settle(on, job, plan("hbm", "dram", zero_stage=3.0))
    emitted = json.loads(DEEPSPEED.emit(on, job, chosen, "/drives", "none")["ds_config.json"])
    assert emitted["gradient_clipping"] == norm
