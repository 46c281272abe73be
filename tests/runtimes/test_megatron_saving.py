"""What a node's host holds while the slices of a tensor-parallel group are saved."""

import pytest
from runtimes.toy import cluster, plan, toy, workload

from ziplan.estimate import estimate
from ziplan.runtimes import RUNTIMES

WORK = workload(toy(8, 8192, 32768, 51200), sequence_length=2048, precision="fp16")


@pytest.mark.parametrize(("nodes", "replicas"), [(1, 2), (4, 8), (8, 16)])
def test_the_first_node_saves_every_slice_however_many_replicas_there_are(nodes, replicas):
    """16 bits of every parameter, once: four slices of a fourth each, on whatever node rank 0 is."""
    rates = dict.fromkeys(("fp16", "bf16", "fp32"), "100 TFLOP/s")
    gpu = {"name": "Chip", "memory": {"capacity": "640 GB"}, "peak_flops_per_s": rates}
    machine = cluster(nodes, 8, hbm="640 GB", gpu=gpu | {"sustained_flops_per_s": rates})
    chosen = plan("hbm", "dram", dp_degree=float(replicas), tp_degree=4.0, zero_stage=2.0)
    runtime = RUNTIMES["megatron"]
    answer = estimate(machine, WORK, runtime, runtime.settle(machine, WORK, chosen))
    (line,) = (one for one in answer.ledger.lines if one.name == "weights to be saved")
    assert line.high == pytest.approx(2 * WORK.model.params, rel=1e-3)
