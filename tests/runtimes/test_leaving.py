"""Gradients on their way from the GPU to the host's optimizer: cast where, pinned or not, waited for."""

from collections import Counter
from dataclasses import replace

import pytest
from reading.asking import reading_of
from runtimes.toy import cluster, plan, toy, workload

from ziplan.estimate import estimate
from ziplan.hardware.processors import cpu_optimizer_rate
from ziplan.hardware.rates import ADAM_BYTES
from ziplan.laws.law import Derivation
from ziplan.runtimes.deepspeed.configured import Configured
from ziplan.runtimes.deepspeed.knobs import PIN_MEMORY
from ziplan.runtimes.deepspeed.reading import settled_plan
from ziplan.runtimes.deepspeed.released import Released
from ziplan.runtimes.runtime import STAGED
from ziplan.runtimes.shared.fresh import PAGE_BYTES, PAGE_FAULT_TIME, PAGE_FREE_TIME, UNMAPPED_FROM
from ziplan.runtimes.terms import GRADIENT_PAGES, GRADIENTS_DOWN, GRADIENTS_UP, TO_THE_OPTIMIZER
from ziplan.simulate.step import simulate

CORE = 2e9
"""B/s that a core reads, so that it copies half of that."""

LINK = 20e9


def machine(core=CORE):
    made = cluster(gpus=2)
    cpu = made.node.cpu.model_copy(update={"core_bandwidth": core, "cores": 16, "adam_params_per_s": 4e9})
    return replace(made, node=made.node.model_copy(update={"cpu": cpu}))


def estimated(version, job, stage=3.0, zero=None, **changed):
    on, runtime = machine(), Released(version, zero=zero)
    chosen = plan("hbm", "dram", dp_degree=2.0, zero_stage=stage, **changed)
    return estimate(on, job, runtime, runtime.settle(on, job, chosen))


def sent(found, term=TO_THE_OPTIMIZER):
    """What the last micro-step has of a term, by resource; and what of it comes in turn with computation."""
    last = [one for one in found.segments if one.name == "micro-step"][-1]
    each = {id(demand): demand for chain in last.chains for demand in chain if demand.term == term}
    amounts = Counter()
    for demand in each.values():
        amounts[demand.resource] += demand.amount
    computing = max(last.chains, key=lambda chain: sum(d.amount for d in chain if d.term == "compute"))
    return amounts, sum(demand.amount for demand in computing if demand.term == term)


def passed(bytes_per_param, shard):
    """Seconds in which the node's processors pass so many bytes of each parameter of two shards."""
    return bytes_per_param / ADAM_BYTES * 2 * shard / cpu_optimizer_rate(machine().node, 2.0).value


def wide():
    """A model of which one matrix's shard is as large as what malloc hands back, in 16 bits."""
    return workload(toy(hidden=8192, middle=4096, vocabulary=64))


def test_a_host_that_casts_reads_what_one_thread_copied():
    job = workload()
    shard = job.model.params / 2
    found = estimated("0.13.3", job).terms
    staged, cast = 2 * shard / (CORE / 2), passed(2 + 4, shard)
    assert found[TO_THE_OPTIMIZER] == pytest.approx(staged + cast, rel=1e-3)
    assert not found.get(GRADIENT_PAGES), "small blocks are kept by malloc"


def test_the_thread_that_copies_is_handed_out_the_pages_of_large_tensors():
    job = wide()
    sizes = [(n * count / 2, n) for n, count, _ in job.model.trainable_tensors]
    large = sum(shards for shards, n in sizes if 2 * n / 2 >= UNMAPPED_FROM)
    assert 0 < large < job.model.params / 2
    pages = 2 * large / PAGE_BYTES
    found = estimated("0.13.3", job).terms[GRADIENT_PAGES]
    assert found == pytest.approx(pages * (PAGE_FAULT_TIME + PAGE_FREE_TIME), rel=1e-3)


def test_a_gpu_that_casts_sends_fp32_over_the_link():
    job = workload()
    for version in ("0.16.3", "0.19.8"):
        found = estimated(version, job)
        assert sent(found)[0] == {"dram.write": 4 * job.model.params / 2}
        assert not sent(found, GRADIENT_PAGES)[0]


def test_one_pinned_buffer_is_copied_from_once_more():
    job = workload()
    found = estimated("0.16.0", job).terms
    once_more = passed(2 * 4, job.model.params / 2)
    assert found[TO_THE_OPTIMIZER] == pytest.approx(4 * job.model.params / 2 / LINK + once_more, rel=1e-3)


def test_fp32_gradients_are_not_cast():
    job = workload(precision="fp32")
    assert +sent(estimated("0.13.3", job))[0] == {"dram.write": 4 * job.model.params / 2}


@pytest.mark.parametrize(("version", "waits"), [("0.5.10", 1), ("0.13.3", 1), ("0.19.3", 1), ("0.19.5", 0)])
def test_releases_that_wait_do_not_compute_meanwhile(version, waits):
    amounts, in_turn = sent(estimated(version, workload()))
    assert (in_turn > amounts.total() / 2) == bool(waits)


@pytest.mark.parametrize(("stage", "version"), [(3.0, "0.19.8"), (3.0, "0.9.3"), (2.0, "0.19.8")])
def test_what_is_not_pinned_one_thread_copies(stage, version):
    job = workload()
    pinned, loose = (
        estimated(version, job, stage, {PIN_MEMORY: pins}, accumulation_steps=2.0) for pins in (1, 0)
    )
    for term in (GRADIENTS_DOWN, GRADIENTS_UP):
        amounts, in_turn = sent(loose, term)
        direction = "dram.read" if term == GRADIENTS_UP else "dram.write"
        kept = sent(pinned, term)[0]
        assert {r.replace(direction, direction + STAGED): amount for r, amount in kept.items()} == amounts
        assert in_turn == amounts.total() > 0
    assert loose.step_time > 1.5 * pinned.step_time


def test_below_stage_3_releases_without_a_choice_pin():
    job = workload()
    for version, chooses in (("0.10.0", False), ("0.10.1", True)):
        terms = [estimated(version, job, 2.0, {PIN_MEMORY: pins}).terms for pins in (1, 0)]
        assert (terms[0] != terms[1]) == chooses


def stated(folder, on, job, **zero):
    """(step time, makespan) under a config with these keys of `zero_optimization`."""
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 2,
        "bf16": {"enabled": True},
        "zero_optimization": zero,
    }
    reading = reading_of(folder, config, ranks=2, trainer="none")
    chosen, runtime = settled_plan(reading, on, job).plan, Configured(reading.settings)
    return estimate(on, job, runtime, chosen).step_time, simulate(on, job, runtime, chosen).makespan


def test_a_config_without_pinned_memory_is_played_as_it_is_estimated(tmp_path):
    job, on = workload(), machine()
    (fast, played_fast), (slow, played_slow) = (
        stated(tmp_path, on, job, stage=3, offload_optimizer={"device": "cpu", "pin_memory": pins})
        for pins in (True, False)
    )
    assert slow > 1.5 * fast
    assert played_slow / played_fast == pytest.approx(slow / fast, rel=0.03)


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("device", ["none", "cpu"])
@pytest.mark.parametrize("dealt_out", [True, False])
def test_what_is_not_overlapped_is_not_played_beside_backward(tmp_path, stage, device, dealt_out):
    job, on = workload(), machine()
    keys = {"stage": stage, "offload_optimizer": {"device": device}, "round_robin_gradients": dealt_out}
    found, played = stated(tmp_path, on, job, **keys, overlap_comm=False, reduce_bucket_size=4_000_000)
    assert played == pytest.approx(found, rel=0.01)
    beside = stated(tmp_path, on, job, **keys, overlap_comm=True, reduce_bucket_size=4_000_000)
    assert played > beside[1]


@pytest.mark.parametrize("device", ["none", "cpu"])
def test_stage_3_sums_and_copies_on_the_computing_stream_where_it_does_not_overlap(tmp_path, device):
    """Layers so large that neither the Python thread nor a link alone makes the step."""
    job, on = workload(toy(24, 4096, 16384), sequence_length=4096), cluster(gpus=16)
    keys = {"stage": 3, "offload_optimizer": {"device": device}, "reduce_bucket_size": 50_000_000}
    (beside, played_beside), (found, played) = (
        stated(tmp_path, on, job, **keys, overlap_comm=overlaps) for overlaps in (True, False)
    )
    assert found > 1.01 * beside
    assert played == pytest.approx(found, rel=0.01)
    assert played_beside == pytest.approx(beside, rel=0.01)


def host_lines(version, job, stage, pins):
    on = machine()
    runtime = Released(version, zero={PIN_MEMORY: pins})
    chosen = plan("hbm", "dram", dp_degree=2.0, accumulation_steps=2.0, zero_stage=stage)
    book = runtime.ledger(Derivation(record=False), on, job, runtime.settle(on, job, chosen))
    return {one.name: one for one in book.lines if one.tier == "dram"}


@pytest.mark.parametrize(
    ("version", "stage", "whatever"),
    [
        ("0.19.8", 2.0, set()),
        ("0.19.8", 3.0, set()),
        ("0.18.2", 2.0, {"pinned master weights"}),
        ("0.16.0", 3.0, {"staging of last gradients"}),
    ],
)
def test_what_is_not_pinned_is_not_rounded_up(version, stage, whatever):
    job = workload()
    lines, loose = (host_lines(version, job, stage, pins) for pins in (1, 0))
    pinned = {name for name, one in lines.items() if one.pinned and one.low}
    assert {"fp32 gradients", *whatever} < pinned
    for name in pinned - whatever:
        one = loose[name]
        assert (one.pinned, one.low, one.high) == (False, lines[name].low, lines[name].low)
    for name in whatever:
        assert loose[name].pinned


def test_the_buffer_of_staged_gradients_is_the_largest_shard_in_fp32():
    job = workload()
    line = host_lines("0.16.0", job, 3.0, 1)["staging of last gradients"]
    largest = max(count for count, _, _ in job.model.trainable_tensors)
    assert line.low == 2 * 4 * -(-largest // 2)
    assert "staging of last gradients" not in host_lines("0.16.3", job, 3.0, 1)


def test_an_nvme_optimizer_without_pinned_memory_waits_for_its_copies(tmp_path):
    job, on = workload(), machine()
    base = {"stage": 3, "offload_param": {"device": "none"}}
    fast, slow = (
        stated(
            tmp_path,
            on,
            job,
            **base,
            offload_optimizer={"device": "nvme", "nvme_path": str(tmp_path), "pin_memory": pins},
        )[0]
        for pins in (True, False)
    )
    assert slow > fast
