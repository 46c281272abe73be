"""Backward on the GPU does not begin before forward is launched: the thread has no lead over a step's end."""

from dataclasses import replace

import pytest

from ziplan.estimate import estimate
from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.shared.compute import COMPUTE
from ziplan.runtimes.shared.launches import LAUNCHES
from ziplan.simulate.step import simulate
from ziplan.workload.load import load_workload

KEPT = Plan(dp_degree=8.0, activation_checkpointing=float(Checkpointing.NONE))
RECOMPUTED = replace(KEPT, activation_checkpointing=float(Checkpointing.FULL))


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
    waiting = max((each for each in amounts if each[LAUNCHES]), key=lambda each: each[COMPUTE])
    # Nothing is recomputed: of the FLOPs a third is forward's, of the launches' time more than half.
    assert waiting[COMPUTE] == pytest.approx(2 / 3 * whole[COMPUTE], rel=0.02)
    assert 0.5 * whole[LAUNCHES] < waiting[LAUNCHES] < whole[LAUNCHES]
    once = {id(d): d for chain in last.chains for d in chain}.values()
    assert sum(d.amount for d in once if d.term == COMPUTE) == pytest.approx(whole[COMPUTE])


@pytest.mark.parametrize("name", ["deepspeed", "fsdp"])
def test_a_layer_is_launched_again_when_backward_reaches_it(name):
    """What comes before backward is forward's alone, whatever is recomputed."""
    work = load_workload("qwen2.5-1.5b", {"sequence_length": 512, "precision": "bf16"})
    machine, runtime = load_cluster("dgx-a100-80g"), RUNTIMES[name]
    before, whole = [], []
    for plan in (KEPT, RECOMPUTED):
        chosen = runtime.settle(machine, work, replace(plan, zero_stage=2.0 + (name == "fsdp")))
        last = [s for s in estimate(machine, work, runtime, chosen).segments if s.name == "micro-step"][-1]
        amounts = [amounts_of(chain) for chain in last.chains]
        before += {each[LAUNCHES] for each in amounts if each[LAUNCHES] and each[COMPUTE]}
        whole.append(max(each[LAUNCHES] for each in amounts))
    kept, recomputed = before
    assert kept == recomputed
    assert whole[1] - whole[0] == pytest.approx(kept, rel=0.1)  # but for the kernels outside of layers


def test_a_small_step_with_recomputation_is_as_long_as_it_is_played():
    work = load_workload("qwen2.5-1.5b", {"sequence_length": 512, "precision": "bf16"})
    machine, runtime = load_cluster("rtx-4090-desktop"), RUNTIMES["deepspeed"]
    plan = replace(RECOMPUTED, dp_degree=1.0, zero_stage=0.0, accumulation_steps=4.0)
    run = machine, work, runtime, runtime.settle(machine, work, plan)
    assert float(estimate(*run).step_time) == pytest.approx(simulate(*run).makespan, rel=0.02)


@pytest.mark.parametrize(
    ("machine", "nodes", "model", "tokens", "home", "steps"),
    [
        ("dgx-a100-80g", 4, "llama-3.1-8b", 512, "hbm", 1.0),
        ("dgx-a100-80g", 1, "llama-3.1-8b", 512, "hbm", 4.0),
        ("rtx-4090-desktop", 1, "qwen2.5-1.5b", 512, "dram", 4.0),
        ("rtx-4090-desktop", 1, "qwen2.5-1.5b", 4096, "dram", 4.0),
    ],
)
@pytest.mark.parametrize("checkpointing", [Checkpointing.NONE, Checkpointing.FULL])
def test_a_step_of_stage_3_is_as_long_as_it_is_played(
    machine, nodes, model, tokens, home, steps, checkpointing
):
    """Gradients come after forward and its hooks, and those of the last bucket when all is computed."""
    work = load_workload(model, {"sequence_length": tokens, "precision": "bf16"})
    site, runtime = replace(load_cluster(machine), nodes=nodes), RUNTIMES["deepspeed"]
    plan = Plan(
        dp_degree=float(site.gpu_count),
        zero_stage=3.0,
        placement=Placement({"hbm": 1.0}, {home: 1.0}, {home: 1.0}, {"hbm": 1.0}),
        accumulation_steps=steps,
        activation_checkpointing=float(checkpointing),
        prefetch_depth=1.0,
        sub_group_params=1e9,
    )
    run = site, work, runtime, runtime.settle(site, work, plan)
    assert float(estimate(*run).step_time) == pytest.approx(simulate(*run).makespan, rel=0.045)


@pytest.mark.parametrize(
    ("model", "tokens", "stage", "homes", "steps"),
    [
        ("llama-3.1-8b", 512, 1.0, ("hbm", "hbm"), 1.0),
        ("llama-3.1-8b", 512, 2.0, ("hbm", "hbm"), 4.0),
        ("llama-3.1-8b", 512, 2.0, ("hbm", "dram"), 4.0),
        ("llama-3.1-70b", 2048, 3.0, ("dram", "dram"), 4.0),
    ],
)
def test_a_step_that_its_network_holds_up_is_as_long_as_it_is_played(model, tokens, stage, homes, steps):
    """Averages wait for the sums before them, copies of host parameters for the gathers before them."""
    work = load_workload(model, {"sequence_length": tokens, "precision": "bf16"})
    site, runtime = replace(load_cluster("dgx-h100"), nodes=2), RUNTIMES["deepspeed"]
    params, optimizer = ({home: 1.0} for home in homes)
    plan = Plan(
        dp_degree=float(site.gpu_count),
        zero_stage=stage,
        placement=Placement(params, optimizer, optimizer, {"hbm": 1.0}),
        accumulation_steps=steps,
        activation_checkpointing=float(Checkpointing.NONE),
        prefetch_depth=1.0,
        sub_group_params=1e9,
    )
    run = site, work, runtime, runtime.settle(site, work, plan)
    assert float(estimate(*run).step_time) == pytest.approx(simulate(*run).makespan, rel=0.01)
