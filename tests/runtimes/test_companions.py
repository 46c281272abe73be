"""Several models in one job: whose lines count when, by sums worked out by hand; what a frozen one does."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtimes.drawn import machines, situations, workloads
from runtimes.several import ROLES, beside, with_companions
from runtimes.toy import cluster, plan, toy, workload

from ziplan.errors import BadInput
from ziplan.estimate import estimate
from ziplan.laws.law import Derivation
from ziplan.plan import Placement
from ziplan.runtimes import RUNTIMES, deepspeed, fsdp
from ziplan.runtimes.deepspeed.knobs import PERSISTENCE_THRESHOLD
from ziplan.runtimes.runtime import COLLECTIVE, PHASES, RUNNING, TRAINING, Ledger
from ziplan.runtimes.shared.companions import EARLIER_GRADIENTS, ONCE, engines, job_ledger
from ziplan.runtimes.terms import GRADIENT_COPIES
from ziplan.solve.grid import Grid

SEVERAL = tuple(name for name in RUNTIMES if name != "megatron")
"""Runtimes that a job of several models is planned with."""

# By hand: ledgers of a few round lines.

MAIN = [
    ("parameters", RUNNING, 10, 10),
    ("flattening", ("init",), 0, 20),
    ("read whole", ("load",), 30, 30),
    ("gradients", ("backward", "step"), 4, 4),
    ("activations", ("forward", "backward"), 6, 8),
    ("temporary", ("step",), 2, 3),
    ("copy to be saved", ("save",), 5, 5),
    ("GPU context", ("load", *RUNNING), 1, 2),
    ("allocator slack", TRAINING, 0, 1),
]
OTHER = [
    ("parameters", RUNNING, 7, 7),
    ("read whole", ("load",), 25, 25),
    ("activations of one layer", ("forward",), 3, 9),
    ("GPU context", ("load", *RUNNING), 1, 2),
    ("allocator slack", TRAINING, 0, 1),
]
CRITIC = [
    ("parameters", RUNNING, 2, 2),
    ("read whole", ("load",), 4, 4),
    ("gradients", ("backward", "step"), 1, 1),
    ("activations", ("forward", "backward"), 2, 3),
    ("temporary", ("step",), 6, 6),
    ("copy to be saved", ("save",), 1, 1),
]


def by_hand(*others, main=MAIN):
    """The ledger of a job: others are (role, lines)."""
    books = {"main": main, **dict(others)}
    models = {name: replace(toy(), name=name) for name in books}
    work = workload(models["main"])
    made = [beside(role, models[role], work.activations) for role, _ in others]
    # A head of one value does not change a model's name.
    work = replace(work, companions=tuple(made))

    def ledger(derivation, machine, asked, chosen):
        book = Ledger(derivation)
        for name, phases, low, high in books[asked.model.name]:
            book.add(name, "hbm", phases, float(high), low=float(low))
        return book

    found = engines(deepspeed, cluster(), work, plan())
    return job_ledger(ledger, Derivation(), cluster(), work, plan(), found)


def need(book):
    return {phase: book.need("hbm", phase) for phase in PHASES}


def test_one_model_alone_is_as_it_was():
    assert need(by_hand()) == {
        "load": (31, 32),
        "init": (11, 32),
        "forward": (17, 21),
        "backward": (21, 25),
        "step": (17, 20),
        "save": (16, 17),
    }


def test_a_reward_model_works_when_the_trained_one_does_not():
    """States of both; of activations 6 to 8 of one or 3 to 9 of the other: those that may be more."""
    found = need(by_hand(("reward", OTHER)))
    # Loading: 30 alone, or 25 beside 10 parameters that stand already.
    assert found["load"] == (10 + 25 + 1, 10 + 25 + 2)
    # Making: 20 of flattening beside the first's 10, or both models' parameters, of which the first is more.
    assert found["init"] == (10 + 1, 10 + 20 + 2)
    assert found["forward"] == (10 + 7 + 3 + 1, 10 + 7 + 9 + 2 + 1)
    assert found["backward"] == (10 + 7 + 4 + 6 + 1, 10 + 7 + 4 + 8 + 2 + 1)
    assert found["step"] == (10 + 7 + 4 + 2 + 1, 10 + 7 + 4 + 3 + 2 + 1)
    assert found["save"] == (10 + 7 + 5 + 1, 10 + 7 + 5 + 2)


@pytest.mark.parametrize("role", ["reference", "teacher"])
def test_a_model_in_the_loss_may_work_beside_the_kept_activations(role):
    """At the least one after the other, and then the larger: 6. At the most both: 8 and 9."""
    assert need(by_hand((role, OTHER)))["forward"] == (10 + 7 + 6 + 1, 10 + 7 + 8 + 9 + 2 + 1)


def test_a_critic_has_gradients_and_a_step_of_its_own():
    """Gradients of both outlast their sweeps; of temporaries of the step the critic's 6 count alone."""
    found = need(by_hand(("critic", CRITIC)))
    assert found["load"] == (30 + 1, 30 + 2)
    assert found["backward"] == (10 + 2 + 4 + 1 + 6 + 1, 10 + 2 + 4 + 1 + 8 + 3 + 2 + 1)
    assert found["step"] == (10 + 2 + 4 + 1 + 6 + 1, 10 + 2 + 4 + 1 + 6 + 2 + 1)
    assert found["save"] == (10 + 2 + 5 + 1, 10 + 2 + 5 + 2)


def test_earlier_models_stand_while_a_later_one_is_made():
    """Reference, critic, reward in this order: the last one is loaded beside all the parameters before it."""
    found = need(by_hand(("reference", OTHER), ("critic", CRITIC), ("reward", OTHER)))
    assert found["load"] == (10 + 7 + 2 + 25 + 1, 10 + 7 + 2 + 25 + 2)
    assert found["save"] == (10 + 7 + 2 + 7 + 5 + 1, 10 + 7 + 2 + 7 + 5 + 2)


def test_gradients_that_wait_for_more_micro_steps_stand_in_forward():
    waiting = (EARLIER_GRADIENTS, ("forward",), 4, 4)
    book = by_hand(("critic", [*CRITIC, waiting]), main=[*MAIN, waiting])
    assert need(book)["forward"] == (10 + 2 + 4 + 4 + 6 + 1, 10 + 2 + 4 + 4 + 8 + 3 + 2 + 1)


def test_lines_go_by_the_name_of_their_model():
    names = {line.name for line in by_hand(("reward", OTHER)).lines}
    assert {"parameters", "reward: parameters", "reward: activations of one layer"} <= names
    assert "reward: GPU context" not in names


def test_lines_that_a_process_has_once_are_called_so():
    """A renamed line would be counted once for each model."""
    books = [
        runtime.ledger(
            Derivation(False),
            cluster(),
            workload(data_workers=2),
            runtime.settle(cluster(), workload(), plan()),
        )
        for runtime in (deepspeed, fsdp)
    ]
    for book in books:
        assert set(ONCE) <= {line.name for line in book.lines}
    assert EARLIER_GRADIENTS in {line.name for book in books for line in book.lines}


# Runtimes.


def job(runtime, roles, tiers=("hbm", "hbm"), offload="auto", work=None, gpus=4, **fields):
    machine, work = cluster(gpus=gpus), with_companions(work or workload(), roles, offload)
    chosen = runtime.settle(machine, work, plan(*tiers, **{"dp_degree": float(gpus), **fields}))
    return estimate(machine, work, runtime, chosen)


def line(answer, name, tier="hbm"):
    (found,) = (each for each in answer.ledger.lines if (each.name, each.tier) == (name, tier))
    return found.high


def test_what_is_not_trained_is_sharded_in_stage_3_and_nothing_else():
    answer = job(deepspeed, ["reference"])
    params = answer.workload.model.params
    assert line(answer, "reference: parameters") == pytest.approx(2 * params / 4, rel=0.001)
    held = {each.name for each in answer.ledger.lines if each.name.startswith("reference: ") and each.high}
    assert not held & {f"reference: {name}" for name in ("gradients", "gradient shard", "master weights")}
    assert not held & {f"reference: {name}" for name in ("optimizer state", "reduce buckets")}


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_below_stage_3_it_is_whole_on_every_gpu(stage):
    answer = job(deepspeed, ["reference"], zero_stage=float(stage))
    assert line(answer, "reference: parameters") == 2 * answer.workload.model.params


@pytest.mark.parametrize("stage", [2, 3])
def test_its_offload_makes_an_engine_of_stage_3(stage):
    answer = job(deepspeed, ["reference", "critic"], offload="cpu", zero_stage=float(stage))
    params = answer.workload.model.params
    assert line(answer, "reference: parameters") == 0
    first = line(answer, "reference: parameters as first partitioned", "dram")
    assert first == pytest.approx(2 * params, rel=0.001)
    assert line(answer, "critic: parameters") == 0
    assert line(answer, "critic: optimizer state") > 0


def test_its_parameters_may_stay_on_the_gpu_where_the_plan_offloads():
    answer = job(deepspeed, ["reference"], ("nvme", "dram"), offload="none")
    assert line(answer, "reference: parameters") > 0
    assert line(answer, "reference: parameter files", "nvme") == 0
    assert line(answer, "parameter files", "nvme") > 0


def demanded(answer, term):
    """Work of a term in one step, the hops of its collectives aside."""
    found = 0.0
    for segment in answer.segments:
        once = {id(demand): demand for chain in segment.chains for demand in chain}
        asked = (d.amount for d in once.values() if d.term == term and d.resource != COLLECTIVE)
        found += segment.repeats * sum(asked)
    return found


@pytest.mark.parametrize("runtime", [deepspeed, fsdp, RUNTIMES["ideal"]])
def test_it_runs_forward_alone(runtime):
    """2 FLOPs for each parameter that multiplies a token; attention's forward: 4 x width x half the pairs."""
    answer = job(runtime, ["reference"], gpus=1, micro_batch_size=2.0, accumulation_steps=3.0)
    model, tokens = answer.workload.model, 2 * 16
    scores = 4 * model.layer_count * 16 * model.attention_width * 0.5 * tokens
    flops = demanded(answer, "reference: compute") + demanded(answer, "reference: attention")
    assert flops == 3 * (2 * model.matmul_params * tokens + scores)
    for term in ("gradient reduce", *GRADIENT_COPIES, "GPU optimizer", "CPU optimizer", "gradient stream"):
        assert demanded(answer, f"reference: {term}") == 0


def test_it_is_fetched_once_a_micro_step():
    answer = job(deepspeed, ["reference"], ("dram", "dram"), gpus=1, accumulation_steps=3.0)
    small = sum(n * count for n, count, _ in answer.workload.model.tensors if n <= PERSISTENCE_THRESHOLD)
    assert demanded(answer, "reference: parameter copy") == 3 * 2 * (answer.workload.model.params - small)


def test_fsdp_gathers_it_once_a_micro_step():
    answer = job(fsdp, ["reference"])
    padded = answer.workload.model.params  # rows and norms divide evenly by 4
    assert demanded(answer, "reference: gather") == 2 * padded * 3 / 4


def test_a_critic_steps_as_the_model_does():
    answer = job(deepspeed, ["critic"], ("hbm", "dram"))
    head = answer.workload.model.d_model * (answer.workload.model.vocab_size - 1)
    ratio = (answer.workload.model.params - head) / answer.workload.model.params
    assert demanded(answer, "critic: CPU optimizer") == pytest.approx(
        ratio * demanded(answer, "CPU optimizer")
    )
    assert demanded(answer, "critic: gradient copy to optimizer") > 0


def test_a_share_of_the_optimizer_on_the_host_is_the_main_models_alone():
    """DeepSpeed's `ratio` is settled beside all that the other models hold; theirs is on the host whole."""
    both = {"hbm": 0.5, "dram": 0.5}
    homes = Placement({"hbm": 1.0}, both, both, {"hbm": 1.0})
    work = workload(toy(24, 4096, 16384, 32000))

    def share(roles):
        machine, asked = cluster(gpus=4, hbm="26 GB"), with_companions(work, roles)
        made = plan(dp_degree=4.0, placement=homes, sub_group_params=1e8)
        chosen = deepspeed.settle(machine, asked, made)
        return chosen.placement.optimizer["dram"], estimate(machine, asked, deepspeed, chosen)

    alone, _ = share([])
    beside_others, answer = share(["reference", "critic"])
    assert 0 < alone < beside_others <= 1
    assert answer.memory["hbm"].high <= answer.memory["hbm"].available
    assert line(answer, "critic: optimizer state") == 0


def test_an_offload_needs_a_host():
    machine = cluster()
    tiers = {"hbm": machine.node.tiers["hbm"]}
    bare = replace(machine, node=machine.node.model_copy(update={"tiers": tiers}))
    with pytest.raises(BadInput, match="reference: offload: cpu"):
        engines(deepspeed, bare, with_companions(workload(), ["reference"], "cpu"), plan())


def test_each_model_has_a_config_and_a_folder_of_its_own():
    """An engine that swaps parameters empties the folder that it is given."""
    work = with_companions(workload(), ROLES)
    chosen = deepspeed.settle(cluster(), work, plan("nvme", "nvme"))
    files = deepspeed.emit(cluster(), work, chosen, nvme_path="/drives/")
    assert {f"ds_config_{role}.json" for role in ROLES} < set(files)
    folders = [
        text.split('"nvme_path": "')[1].split('"')[0] for name, text in files.items() if "ds_c" in name
    ]
    assert folders == ["/drives/", *(f"/drives/{role}" for role in ROLES)]
    for role in ROLES:
        assert f"config='ds_config_{role}.json'" in files["launch.sh"]
        assert ("optimizer" in files[f"ds_config_{role}.json"]) is (role == "critic")


@settings(derandomize=True, max_examples=60, deadline=None)
@given(situations(SEVERAL), st.lists(st.sampled_from(ROLES), min_size=1, max_size=3, unique=True))
def test_more_models_never_need_less(situation, roles):
    runtime, machine, work, _ = situation
    several = with_companions(work, roles)
    chosen = runtime.settle(machine, several, situation[3])
    alone = estimate(machine, work, runtime, chosen)
    together = estimate(machine, several, runtime, chosen)
    for tier, memory in together.memory.items():
        assert memory.high >= alone.memory[tier].high * (1 - 1e-12)
        assert memory.low <= memory.high
    for each in together.ledger.lines:
        assert 0 <= each.low <= each.high * (1 + 1e-12), each.name
    assert not together.step_time < alone.step_time


@settings(derandomize=True, max_examples=25, deadline=None)
@given(machines(), workloads(), st.sampled_from(SEVERAL), st.data())
def test_a_plan_in_a_grid_is_that_plan_alone(machine, work, name, data):
    runtime, work = RUNTIMES[name], with_companions(work, ["reference", "critic", "reward"])
    grid = Grid(tuple(runtime.axes(machine, work)), {"dp_degree": float(machine.gpu_count)})
    every = estimate(machine, work, runtime, runtime.settle(machine, work, grid.plans()), record=False)
    place = tuple(data.draw(st.integers(0, length - 1)) for length in grid.shape)
    alone = estimate(machine, work, runtime, runtime.settle(machine, work, grid.plan(place)))
    for tier, memory in alone.memory.items():
        for phase, ends in memory.phases.items():
            there = (np.broadcast_to(end, grid.shape)[place] for end in every.memory[tier].phases[phase])
            assert tuple(there) == pytest.approx(ends, rel=1e-12), (tier, phase)
    assert np.broadcast_to(every.step_time, grid.shape)[place] == pytest.approx(alone.step_time, nan_ok=True)
