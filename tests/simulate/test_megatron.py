"""Megatron's step as it is played."""

import pytest
from runtimes.toy import cluster, plan, toy, workload

from ziplan.estimate import estimate
from ziplan.hardware.profiles import load_cluster
from ziplan.runtimes import RUNTIMES
from ziplan.simulate.step import simulate

MEGATRON = RUNTIMES["megatron"]


@pytest.mark.parametrize("degrees", [{"dp_degree": 1.0, "tp_degree": 8.0}, {"dp_degree": 8.0}])
def test_a_stage_without_work_is_not_played(degrees):
    """A single replica exchanges no gradients: nothing is there to draw, or to put into a trace."""
    chosen = plan(zero_stage=1.0, **degrees)
    stages = MEGATRON.step_schedule(cluster(gpus=8), workload(toy()), chosen).stages
    assert all(stage.works(1) for stage in stages)
    exchanges = any(stage.name == "gradient exchange" for stage in stages)
    assert exchanges == (degrees["dp_degree"] > 1)


@pytest.mark.parametrize("machines", ["dgx-a100-80g", "2x dgx-a100-80g"])
@pytest.mark.parametrize(
    ("stage", "homes"),
    [(2.0, ("hbm", "hbm")), (2.0, ("hbm", "dram")), (3.0, ("hbm", "hbm")), (3.0, ("dram", "dram"))],
)
@pytest.mark.parametrize("micro_steps", [1.0, 2.0, 8.0])
def test_deepspeeds_stages_are_played_as_they_are_estimated(machines, stage, homes, micro_steps):
    """Sums hide behind backward, and only the last micro-step hands gradients to the optimizer."""
    on, job = load_cluster(machines), workload(toy(hidden=1536, middle=6144, vocabulary=32000))
    ranks = on.gpu_count / 4
    chosen = plan(*homes, zero_stage=stage, tp_degree=4.0, dp_degree=ranks, accumulation_steps=micro_steps)
    settled = MEGATRON.settle(on, job, chosen)
    played = simulate(on, job, MEGATRON, settled).makespan
    assert played == pytest.approx(estimate(on, job, MEGATRON, settled).step_time, rel=0.06)
