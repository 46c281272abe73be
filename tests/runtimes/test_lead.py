"""Backward on the GPU does not begin before forward is launched: the thread has no lead over a step's end."""

from dataclasses import replace

import pytest

from ziplan.estimate import estimate
from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing, Plan
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.shared.compute import COMPUTE
from ziplan.runtimes.shared.launches import LAUNCHES
from ziplan.workload.load import load_workload

KEPT = Plan(dp_degree=8.0, activation_checkpointing=float(Checkpointing.NONE))


def amounts_of(chain):
    """Of launches, and of the GPU's products with matrices."""
    return {term: sum(d.amount for d in chain if d.term == term) for term in (LAUNCHES, COMPUTE)}


@pytest.mark.parametrize("name", ["deepspeed", "fsdp"])
@pytest.mark.parametrize("stage", [2.0, 3.0])
def test_the_gpu_s_backward_follows_the_launches_of_forward(name, stage):
    work = load_workload("qwen2.5-1.5b", {"sequence_length": 512, "precision": "bf16"})
    machine, runtime = load_cluster("dgx-a100-80g"), RUNTIMES[name]
    plan = runtime.settle(machine, work, replace(KEPT, zero_stage=stage))
    answer = estimate(machine, work, runtime, plan)
    last = [segment for segment in answer.segments if segment.name == "micro-step"][-1]
    amounts = [amounts_of(chain) for chain in last.chains]
    whole = {term: max(each[term] for each in amounts) for term in (LAUNCHES, COMPUTE)}
    (waiting,) = [each for each in amounts if each[LAUNCHES] and each[COMPUTE]]
    # Nothing is recomputed: of the FLOPs a third is forward's, of the launches' time more than half.
    assert waiting[COMPUTE] == pytest.approx(2 / 3 * whole[COMPUTE], rel=0.02)
    assert 0.5 * whole[LAUNCHES] < waiting[LAUNCHES] < whole[LAUNCHES]
    once = {id(d): d for chain in last.chains for d in chain}.values()
    assert sum(d.amount for d in once if d.term == COMPUTE) == pytest.approx(whole[COMPUTE])
