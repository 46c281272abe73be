"""Megatron on a machine of round rates."""

from runtimes.toy import cluster, plan, toy, workload

from ziplan.estimate import estimate
from ziplan.runtimes import RUNTIMES

MEGATRON = RUNTIMES["megatron"]
WORK = workload(toy(8, 8192, 32768, 51200), sequence_length=2048, precision="fp16")


def box(nodes=1, gpus=8):
    """The machine of round rates, whose GPU has them in 16 bits of either kind."""
    rates = dict.fromkeys(("fp16", "bf16", "fp32"), "100 TFLOP/s")
    gpu = {"name": "Chip", "memory": {"capacity": "640 GB"}, "peak_flops_per_s": rates}
    return cluster(nodes, gpus, hbm="640 GB", gpu=gpu | {"sustained_flops_per_s": rates})


def asked(machine=None, work=WORK, runtime=MEGATRON, **fields):
    """The estimate of a plan on one node of 8 GPUs; the batch goes through one replica."""
    machine = machine or box()
    chosen = MEGATRON.settle(machine, work, plan(**{"zero_stage": 0.0, **fields}))
    return estimate(machine, work, runtime, chosen)


def held(answer, name):
    (line,) = [line for line in answer.ledger.lines if line.name == name]
    return line.low, line.high
