"""What driver, NCCL and allocator take of a GPU beside all tensors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from runtimes.toy import cluster, plan, workload

from ziplan.laws.law import Derivation
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.shared import memory
from ziplan.study.records import TrainingEntry


def lines(machine, gpus, runtime="deepspeed", **training):
    real, work, chosen = RUNTIMES[runtime], workload(**training), plan(dp_degree=float(gpus))
    book = real.ledger(Derivation(record=False), machine, work, real.settle(machine, work, chosen))
    return {line.name: (line.low, line.high) for line in book.lines if line.tier == "hbm"}


@pytest.mark.parametrize("runtime", ["deepspeed", "fsdp"])
def test_segments_that_grow_leave_less_unused(runtime):
    machine = cluster(gpus=8, hbm="80 GB")
    emitted, default = (
        lines(machine, 8, runtime, expandable_segments=grow)["allocator slack"] for grow in (True, False)
    )
    assert emitted == (0, pytest.approx(0.04 * 80e9))
    assert default == (0, pytest.approx(0.065 * 80e9))


def test_published_runs_took_the_allocator_as_it_comes():
    entry = TrainingEntry(sequence_length=16, precision="bf16", attention="flash")
    assert (entry.expandable_segments, entry.pinned_rounding) == (False, True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("A100 SXM4 80 GB", memory.COLLECTIVE_BUFFERS),
        ("H100 SXM5 80 GB", memory.HOPPER_BUFFERS),
        ("B200 SXM 180 GB", memory.HOPPER_BUFFERS),
        ("RTX PRO 6000 Blackwell", memory.COLLECTIVE_BUFFERS),
    ],
)
def test_nvlink_of_hopper_takes_more_channels(name, expected):
    machine = cluster(gpus=8)
    gpu = machine.node.gpu.model_copy(update={"name": name})
    machine = replace(machine, node=machine.node.model_copy(update={"gpu": gpu}))
    assert lines(machine, 8)["collective buffers"] == expected


def test_one_gpu_has_no_group():
    assert lines(cluster(), 1)["collective buffers"] == (0, 0)


def test_without_a_fabric_groups_take_the_least():
    machine = cluster(gpus=2, fabric=None)
    assert lines(machine, 2)["collective buffers"] == memory.COLLECTIVE_BUFFERS
