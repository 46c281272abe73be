"""Updated parameters on their way back to the GPU: in stage 3 cast anew and copied by one thread."""

from dataclasses import replace

import pytest
from runtimes.toy import cluster, plan, workload

from ziplan.estimate import estimate
from ziplan.hardware.processors import staging_rate
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.shared.fresh import PAGE_BYTES, PAGE_FAULT_TIME, PAGE_FREE_TIME
from ziplan.runtimes.terms import UPDATED_COPY, UPDATED_PAGES
from ziplan.simulate.step import simulate

DEEPSPEED = RUNTIMES["deepspeed"]


def machine(**cpu):
    """Two GPUs of a node whose links carry more than a core copies."""
    made = cluster(gpus=2)
    return replace(made, node=made.node.model_copy(update={"cpu": made.node.cpu.model_copy(update=cpu)}))


def told(threads):
    job = workload()
    return replace(job, training=job.training.model_copy(update={"optimizer_threads": threads}))


def settled(on, stage, **changed):
    return DEEPSPEED.settle(on, workload(), plan("hbm", "dram", dp_degree=2.0, zero_stage=stage, **changed))


def test_in_stage_3_a_core_copies_what_a_link_could_carry_faster():
    on = machine(core_bandwidth=2e6, cores=16)
    assert staging_rate(on.node, on.node.tiers["dram"]).value == 1e6, (
        "a line is read, and the one that it goes to"
    )
    found = estimate(on, told("bound"), DEEPSPEED, settled(on, 3.0))
    returned = 2 * workload().model.params / 2
    assert found.terms[UPDATED_COPY] == pytest.approx(returned / 1e6)
    each = PAGE_FAULT_TIME / 8 + PAGE_FREE_TIME
    assert found.terms[UPDATED_PAGES] == pytest.approx(returned / PAGE_BYTES * each)


def test_below_stage_3_a_buffer_is_kept_that_is_pinned():
    on = machine(core_bandwidth=2e6, cores=16)
    found = estimate(on, told("bound"), DEEPSPEED, settled(on, 2.0))
    faster = estimate(machine(core_bandwidth=2e12, cores=16), told("bound"), DEEPSPEED, settled(on, 2.0))
    assert found.terms[UPDATED_COPY] == faster.terms[UPDATED_COPY]
    assert not found.terms.get(UPDATED_PAGES)


def test_a_link_slower_than_the_core_decides():
    on = machine(core_bandwidth=2e15, cores=16)
    kept = estimate(on, told("bound"), DEEPSPEED, settled(on, 2.0)).terms[UPDATED_COPY]
    assert estimate(on, told("bound"), DEEPSPEED, settled(on, 3.0)).terms[UPDATED_COPY] == kept


def test_over_a_coherent_link_the_gpu_reads_what_is_not_pinned():
    on = machine(core_bandwidth=2e6, cores=16)
    host = on.node.links["host"].model_copy(update={"coherent": True})
    one_table = replace(on, node=on.node.model_copy(update={"links": {**on.node.links, "host": host}}))
    chosen = settled(on, 3.0)
    kept = estimate(on, told("bound"), DEEPSPEED, settled(on, 2.0)).terms[UPDATED_COPY]
    assert estimate(one_table, told("bound"), DEEPSPEED, chosen).terms[UPDATED_COPY] == kept
    played = simulate(one_table, told("bound"), DEEPSPEED, chosen)
    assert "staging thread" not in {cause for _, cause in played.stages[-1].tally.stalls}


@pytest.mark.parametrize(
    ("threads", "cores", "each"),
    [("accelerate", 16, 1), (3, 16, 3), ("deepspeed", 16, 8), ("bound", 16, 8), ("accelerate", None, 1)],
)
def test_threads_that_run_at_once_take_pages(threads, cores, each):
    on = machine(core_bandwidth=2e9, cores=cores)
    found = estimate(on, told(threads), DEEPSPEED, settled(on, 3.0))
    pages = workload().model.params / PAGE_BYTES
    handed_out_by_all, taken_back_by_one = PAGE_FAULT_TIME / each, PAGE_FREE_TIME
    assert found.terms[UPDATED_PAGES] == pytest.approx(pages * (handed_out_by_all + taken_back_by_one))


def test_where_nobody_stated_cores_no_page_takes_time():
    on = machine(core_bandwidth=2e9, cores=None)
    assert not estimate(on, told(None), DEEPSPEED, settled(on, 3.0)).terms.get(UPDATED_PAGES)


def test_the_bytes_are_counted_once_and_the_played_step_waits_as_long():
    slow, fast = machine(core_bandwidth=2e6, cores=16), machine(core_bandwidth=2e15, cores=16)
    chosen = settled(slow, 3.0)
    one, other = (estimate(on, told("bound"), DEEPSPEED, chosen) for on in (slow, fast))
    assert one.traffic == other.traffic
    played = [simulate(on, told("bound"), DEEPSPEED, chosen) for on in (slow, fast)]
    longer = one.step_time - other.step_time
    assert longer > one.terms[UPDATED_COPY] - other.terms[UPDATED_COPY] > 0
    assert played[0].makespan - played[1].makespan == pytest.approx(longer, rel=1e-3)
