"""Releases of DeepSpeed: which has which trait, and what a trait does to ledger and step."""

from dataclasses import replace

import pytest
from runtimes.toy import cluster, plan, workload

from ziplan.estimate import estimate
from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing, Placement
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed import knobs
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.fetches import fetches
from ziplan.runtimes.deepspeed.released import Released
from ziplan.runtimes.deepspeed.releases import PAPER_ENGINE, PYTORCH, RELEASED, VERSION, parsed
from ziplan.runtimes.deepspeed.traits import NEWEST, WINDOWS, Traits, traits_of
from ziplan.runtimes.megatron.released import Released as MegatronReleased
from ziplan.runtimes.terms import TO_THE_OPTIMIZER, UPDATED_COPY

WORK = workload()
P = WORK.model.params


def book(version, chosen, work=WORK):
    runtime, machine = Released(version), cluster(gpus=8)
    return runtime.ledger(Derivation(record=False), machine, work, runtime.settle(machine, work, chosen))


def line(version, chosen, tier, name, phase, work=WORK):
    lines = [one for one in book(version, chosen, work).lines if (one.tier, one.name) == (tier, name)]
    (found,) = [one for one in lines if phase in one.phases]
    return found.low, found.high


def step(version, chosen, **options):
    runtime, machine = Released(version, **options), cluster(gpus=8)
    return estimate(machine, WORK, runtime, runtime.settle(machine, WORK, chosen))


def in_turn_with_compute(version, chosen):
    """Terms of the last micro-step that the GPU waits for, with at least half of their amount."""
    (last,) = [one for one in step(version, chosen).segments if one.name == "micro-step" and one.repeats == 1]
    once = {id(demand): demand for chain in last.chains for demand in chain}.values()

    def amount(term, demands):
        return sum(demand.amount for demand in demands if demand.term == term)

    waited = max(last.chains, key=lambda chain: amount("compute", chain))
    terms = {demand.term for demand in waited if demand.amount > 0}
    return {term for term in terms if 2 * amount(term, waited) > amount(term, once)}


def test_the_newest_release_is_the_runtime_itself():
    assert RUNTIMES["deepspeed"].VERSION == VERSION
    # What is emitted asks for one thing that the release has off unless it is asked for.
    assert traits_of(VERSION) == NEWEST._replace(deals_gradients_out=0.0)
    assert set(WINDOWS) == set(Traits._fields)
    chosen = plan("dram", "dram", dp_degree=8.0)
    own = RUNTIMES["deepspeed"].ledger(Derivation(record=False), cluster(gpus=8), WORK, chosen)
    assert [(one.name, one.low, one.high) for one in book(VERSION, chosen).lines] == [
        (one.name, one.low, one.high) for one in own.lines
    ]


@pytest.mark.parametrize(
    ("trait", "has", "has_not"),
    [
        ("collectives_wait", "0.5.10", "0.6.0"),
        ("always_accumulates", "0.6.0", "0.5.10"),
        ("pins_master_weights", "0.14.1", "0.14.0"),
        ("steps_over_fp32_shard", "0.16.9", "0.17.0"),
        ("clones_on_gpu", "0.18.3", "0.18.2"),
        ("steps_to_initialize", "0.13.1", "0.13.2"),
        ("keeps_what_it_saves", "0.4.3", "0.4.4"),
        ("copies_by_tile", "0.8.3", "0.9.0"),
        ("reduces_to_all", "0.12.4", "0.12.3"),
        ("pins_by_default", "0.19.5", "0.19.3"),
        ("waits_for_gradients", "0.19.3", "0.19.5"),
        ("locks_swap_buffers", "0.19.4", "0.19.3"),
        ("casts_gradients_on_host", "0.15.3", "0.15.4"),
        ("stages_gradients", "0.16.2", "0.16.3"),
        ("chooses_to_pin", "0.10.1", "0.10.0"),
        ("pins_master_weights_by_choice", "0.18.3", "0.18.2"),
    ],
)
def test_a_trait_begins_and_ends_with_a_release(trait, has, has_not):
    assert getattr(traits_of(has), trait) == 1
    assert getattr(traits_of(has_not), trait) == 0


def test_releases_are_compared_as_numbers_and_months_name_the_newest():
    assert traits_of("0.10.0") == traits_of("0.9.2") != traits_of("0.10.1")
    assert traits_of("2021-05") == traits_of("0.3.16")
    assert traits_of("2022-02") == traits_of("0.5.10")
    assert traits_of("2022-03") == traits_of("0.6.0")
    assert [*RELEASED] == sorted(RELEASED, key=parsed)
    assert [*RELEASED.values()] == sorted(RELEASED.values())
    bounds = {bound for each in WINDOWS.values() for bound in (each.since, each.until) if bound}
    assert bounds <= set(RELEASED), "a month would name a release before or after the bound"


@pytest.mark.parametrize("version", ["", "newest", "0.9", "2021-13", "v0.9.2", "0. 9.2", "0.-9.2", "1" * 99])
def test_what_is_no_release_is_refused(version):
    with pytest.raises(ValueError, match="is no release"):
        traits_of(version)


@pytest.mark.parametrize(
    ("version", "said"),
    [("0.99.0", f"write {VERSION}"), ("2099-01", f"write {VERSION}"), ("2019-12", "before 2020-02")],
)
def test_releases_that_nobody_has_read_are_refused(version, said):
    with pytest.raises(ValueError, match=said):
        traits_of(version)


@pytest.mark.parametrize("released", [Released, MegatronReleased])
def test_pytorch_alone_has_no_stages_and_no_offload(released):
    machine = cluster(gpus=8)

    def said(stage, gpus, params="hbm", optimizer="hbm", **fields):
        chosen = plan(params, optimizer, zero_stage=stage, dp_degree=gpus, **fields)
        reasons = released(PYTORCH).refusals(machine, WORK, chosen)
        return [reason.path for reason in reasons if "PyTorch alone" in reason]

    assert said(0.0, 8.0) == said(1.0, 1.0) == []
    assert said(2.0, 8.0) == said(3.0, 1.0) == [("zero_stage",)]
    assert said(2.0, 1.0, optimizer="dram") == [("placement", "optimizer")]


def test_before_0_6_gathers_and_gradients_stand_in_the_way():
    chosen = plan("hbm", "dram", dp_degree=8.0, prefetch_depth=1.0)
    sent = {"gather", "gradient reduce", "gradient copy to optimizer"}
    assert sent <= in_turn_with_compute("0.5.10", chosen)
    last = {"gradient reduce", "gradient copy to optimizer"}
    assert sent & in_turn_with_compute("0.6.0", chosen) == last, "held with the copies behind it"


def test_the_papers_engine_reads_ahead_of_nvme():
    chosen = plan("nvme", "nvme", dp_degree=8.0)
    moved = {"gather", "parameter copy", "parameter read"}
    assert moved <= in_turn_with_compute("0.3.16", chosen)
    assert moved <= in_turn_with_compute("0.6.0", chosen)
    assert not moved & in_turn_with_compute(PAPER_ENGINE, chosen)


def test_the_papers_engine_loads_parameters_three_times_and_keeps_fewer():
    chosen = plan("dram", "dram", dp_degree=8.0, activation_checkpointing=float(Checkpointing.FULL))
    paper, release = (
        line(each, chosen, "hbm", "gathered parameters", "backward") for each in (PAPER_ENGINE, "0.3.16")
    )
    assert paper[0] < release[0]
    assert step(PAPER_ENGINE, chosen).traffic["gather"][0] > step("0.3.16", chosen).traffic["gather"][0]


def test_gradients_are_kept_off_the_gpu_only_where_they_are_accumulated():
    chosen = plan("dram", "dram", dp_degree=8.0)
    again = replace(chosen, accumulation_steps=2.0)
    name = "gradient accumulation buffer"
    assert line("0.5.10", chosen, "dram", name, "step") == (0, 0)
    assert line("0.5.10", again, "dram", name, "step")[0] == 2 * P
    assert line("0.6.0", chosen, "dram", name, "step")[0] == 2 * P


BELOW = plan("hbm", "dram", dp_degree=8.0, zero_stage=2.0)


def test_the_fp32_shard_passes_through_the_gpu_for_a_while():
    shard = 4 * P / 8
    assert line("0.16.9", BELOW, "hbm", "fp32 shard on its way back", "step") == (shard, shard)
    for version in ("0.14.0", "0.17.0"):
        assert line(version, BELOW, "hbm", "fp32 shard on its way back", "step") == (0, 0)


def test_moments_were_made_beside_gradients_that_were_not_freed():
    """hf-9996: 234 GB of host memory for 11.3e9 parameters, which nothing else accounts for."""
    name = "fp32 gradients before they are pinned"
    assert line("0.13.1", BELOW, "dram", name, "init") == (0, 4 * P)
    assert line("0.13.2", BELOW, "dram", name, "init") == (0, 0)
    stage3 = plan("hbm", "dram", dp_degree=8.0)
    assert line("0.13.1", stage3, "dram", name, "init") == (0, 0)


def test_weights_that_were_gathered_to_be_saved_stayed():
    training = WORK.training.model_copy(update={"saving": "gathered"})
    work = type(WORK)(WORK.model, training, WORK.precision, WORK.activations)
    chosen = plan("dram", "dram", dp_degree=8.0)
    name = "weights gathered to be saved"
    assert line("0.4.3", chosen, "hbm", name, "save", work) == (2 * P, 2 * P)
    assert line("0.4.4", chosen, "hbm", name, "save", work) == (0, 0)
    assert line("0.4.3", chosen, "hbm", name, "save") == (0, 0)


def test_what_was_pinned_before_pytorch_1_11_is_as_large_as_it_was_asked_to_be():
    training = WORK.training.model_copy(update={"pinned_rounding": True})
    work = type(WORK)(WORK.model, training, WORK.precision, WORK.activations)
    chosen = plan("dram", "dram", dp_degree=8.0)
    exact, rounded = (
        line(each, chosen, "dram", "fp32 gradients", "step", work) for each in ("0.5.10", "0.6.0")
    )
    assert exact == (4 * P, 4 * P)
    assert rounded[0] == 4 * P < rounded[1]


def test_checkpoints_that_are_waited_for_are_not_pinned():
    fields = {"dp_degree": 8.0, "activation_checkpointing": float(Checkpointing.FULL)}
    chosen = replace(plan("hbm", "dram", **fields), placement=Placement(*({"hbm": 1.0},) * 3, {"dram": 1.0}))
    pinned = {
        version: [one.pinned for one in book(version, chosen).lines if one.name == "activation checkpoints"]
        for version in ("0.16.9", VERSION)
    }
    assert pinned == {"0.16.9": [False], VERSION: [True]}


def test_updated_parameters_go_back_beside_the_update_as_long_as_tiles_did():
    assert UPDATED_COPY in step("0.12.6", BELOW).terms
    assert UPDATED_COPY not in step("0.6.0", BELOW).terms


def test_without_overlap_gradients_take_turns_with_compute():
    """Stage 3 of that release waits for each copy of the last micro-step as it is."""
    many = replace(BELOW, accumulation_steps=4.0)
    beside, in_turn = step("0.6.0", many), step("0.6.0", many, overlap_comm=False)
    assert in_turn.terms[TO_THE_OPTIMIZER] == pytest.approx(in_turn.busy[TO_THE_OPTIMIZER])
    assert in_turn.step_time > beside.step_time
    divided = plan("hbm", "dram", dp_degree=8.0)
    assert step("0.6.0", divided, overlap_comm=False).step_time == step("0.6.0", divided).step_time


@pytest.mark.parametrize(("version", "whole"), [("0.18.2", True), ("0.18.3", False), (VERSION, False)])
def test_layers_that_are_recomputed_whole_are_fetched_as_such(version, whole):
    machine = cluster(gpus=8)
    chosen = plan("dram", "dram", dp_degree=8.0)
    facts = Facts(Derivation(record=False), machine, WORK, chosen, traits=traits_of(version))
    assert facts.stops_early == 1 - whole
    again = facts.knobs._replace(reuse_distance=0.0)
    policy = knobs.policy(WORK.model, chosen, again)
    expected = fetches(WORK.model, int(Checkpointing.FULL), whole, policy).elements
    assert knobs.plays(WORK.model, chosen, again)(lambda fetched, _: fetched.elements) == expected


def test_megatrons_slices_over_stage_3_have_the_traits_of_the_deepspeed_under_them():
    runtime, machine = MegatronReleased("0.5.10"), cluster(gpus=8)
    chosen = replace(plan("dram", "dram", dp_degree=4.0), tp_degree=2.0)
    settled = runtime.settle(machine, WORK, chosen)
    old, new = (
        each.ledger(Derivation(record=False), machine, WORK, settled)
        for each in (runtime, RUNTIMES["megatron"])
    )
    kept = [
        max(one.low for one in each.lines if one.name == "gradient accumulation buffer")
        for each in (old, new)
    ]
    assert kept[0] == 0 < kept[1]
    alone = replace(plan(dp_degree=4.0), tp_degree=2.0, zero_stage=1.0)
    assert runtime.program(Derivation(record=False), machine, WORK, alone) == RUNTIMES["megatron"].program(
        Derivation(record=False), machine, WORK, alone
    )
