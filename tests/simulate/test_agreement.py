"""The played step against the estimate, which neither knows of: alike where no link is shared.

One fill (what stands before the first compute) and one drain (what is left after the last) is all
that may lie between them, a micro-step where the runtime ends one before it begins the next.
"""

import pytest
from runtimes.toy import cluster, plan, toy, workload
from simulate.two import machine, work
from simulate.two import plan as small

from ziplan.estimate import estimate
from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.terms import TO_THE_OPTIMIZER
from ziplan.simulate.step import simulate
from ziplan.solve import Problem, best_plan
from ziplan.workload.load import load_workload

LAYERS = 16


def both(machine, workload, runtime, chosen):
    run = machine, workload, RUNTIMES[runtime], chosen
    return simulate(*run).makespan, float(estimate(*run).step_time)


@pytest.mark.parametrize("steps", [1.0, 3.0, 20.0, 300.0])
@pytest.mark.parametrize(
    ("slow", "fetch"), [({}, 0.5), ({"nvme": "1 MB/s"}, 4.0), ({"fabric": "1 MB/s"}, 2.0)]
)
def test_ideal_layers_that_wait_for_compute_for_drives_or_for_the_fabric(steps, slow, fetch):
    """Equal layers, nothing shared: all that differs is the first fetch and the last gradient (0.1 s)."""
    tiers = machine().node.model_dump(mode="json", exclude_none=True)["tiers"]
    links = {"host": {"bandwidth": "20 MB/s"}, "fabric": {"bandwidth": slow.get("fabric", "4 MB/s")}}
    tiers["nvme"]["read_bandwidth"] = slow.get("nvme", "8 MB/s")
    for tier in tiers.values():
        for key in ("capacity", "read_bandwidth", "write_bandwidth"):
            if not isinstance(tier.get(key, ""), str):
                tier[key] = f"{tier[key]} B/s" if key != "capacity" else f"{tier[key]} B"
    box = machine(tiers=tiers, links={**links, "net": {"bandwidth": "4 MB/s"}})
    chosen = small("nvme", "dram", accumulation_steps=steps)
    played, estimated = both(box, work(LAYERS), "ideal", chosen)
    # In the backward sweep compute hides what in the forward sweep it does not, so the sum over a
    # micro-step is no bound there: each sweep has its own.
    per_sweep = max(fetch, 1.0) * LAYERS + max(fetch, 3.0) * LAYERS
    update = 2.0 * LAYERS / 2
    assert played == pytest.approx(steps * per_sweep + update, abs=fetch + 0.1 + steps * 1.0)
    assert played >= estimated * (1 - 1e-9)
    if fetch <= 1.0:
        assert played - estimated <= fetch + 0.1 + 1e-6


@pytest.mark.parametrize("homes", [("hbm", "hbm"), ("dram", "dram")])
def test_deepspeed_within_one_fill_and_one_drain_of_each_micro_step(homes):
    """Compute hides everything else but the first fetch and the last bucket of each micro-step."""
    machine, job = cluster(gpus=4), workload(toy(24, 4096, 16384), sequence_length=4096)
    chosen = plan(*homes, dp_degree=4.0, prefetch_depth=1.0, accumulation_steps=4.0)
    run = machine, job, RUNTIMES["deepspeed"], chosen
    simulation, told = simulate(*run), estimate(*run)
    micro_steps = simulation.stages[:2]
    edges = sum(stage.tally.stalled for stage in micro_steps)
    # A layer's parameters and gradients over the host link and the fabric.
    layer = 2 * job.model.largest_layer_params
    fill_and_drain = 3 * layer / 4 / 20e9 + 2 * layer / 300e9
    assert edges <= 4 * fill_and_drain
    # The last micro-step's copies of gradients go on beside backward; the estimate puts them after it.
    estimated = float(told.step_time) - told.terms.get(TO_THE_OPTIMIZER, 0.0)
    assert abs(simulation.makespan - estimated) <= 4 * fill_and_drain


def test_deepspeed_adds_up_what_nvme_lets_it_not_hide():
    """Reads, copies, gathers and compute in turn: only the reduction of gradients is beside them."""
    machine, job = cluster(gpus=4), workload(toy(24, 4096, 16384), sequence_length=4096)
    chosen = plan(
        "nvme",
        "hbm",
        dp_degree=4.0,
        activation_checkpointing=float(Checkpointing.NONE),
        param_buffer_count=40.0,
    )
    played, estimated = both(machine, job, "deepspeed", chosen)
    assert played == pytest.approx(estimated, rel=0.01)


def test_fsdp_within_one_fill_and_one_drain_of_each_micro_step():
    machine, job = cluster(gpus=4), workload(toy(24, 4096, 16384), sequence_length=4096)
    played, estimated = both(
        machine, job, "fsdp", plan(dp_degree=4.0, prefetch_depth=1.0, accumulation_steps=4.0)
    )
    layer = 2 * job.model.largest_layer_params
    assert abs(played - estimated) <= 4 * 2 * layer / 300e9 + 1e-9


@pytest.mark.parametrize("name", ["rtx-4090-x8", "rtx-3090-x4", "aws-g6e.48xlarge"])
def test_a_table_that_a_step_begins_with_is_waited_for(name):
    """A fifth of Llama 3.2 1B is its table of words, gathered before anything computes."""
    machine = load_cluster(name)
    job = load_workload("llama-3.2-1b", {"sequence_length": 2048}, machine.node.gpu.peak_flops_per_s)
    best = best_plan(Problem(machine, job, RUNTIMES["deepspeed"], fixed={"zero_stage": 3.0})).plan
    played, estimated = both(machine, job, "deepspeed", best)
    assert played == pytest.approx(estimated, rel=0.04)
