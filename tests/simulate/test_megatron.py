"""Megatron's step as it is played."""

import pytest
from runtimes.toy import cluster, plan, toy, workload

from ziplan.runtimes import RUNTIMES

MEGATRON = RUNTIMES["megatron"]


@pytest.mark.parametrize("degrees", [{"dp_degree": 1.0, "tp_degree": 8.0}, {"dp_degree": 8.0}])
def test_a_stage_without_work_is_not_played(degrees):
    """A single replica exchanges no gradients: nothing is there to draw, or to put into a trace."""
    chosen = plan(zero_stage=1.0, **degrees)
    stages = MEGATRON.step_schedule(cluster(gpus=8), workload(toy()), chosen).stages
    assert all(stage.works(1) for stage in stages)
    exchanges = any(stage.name == "gradient exchange" for stage in stages)
    assert exchanges == (degrees["dp_degree"] > 1)
