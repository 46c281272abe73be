"""Pipelines of Megatron: what a stage holds, passes on and waits for."""

import pytest
from runtimes.megatron_runs import MEGATRON, WORK, asked, box, held
from runtimes.toy import toy, workload

from ziplan.errors import BadInput
from ziplan.runtimes.megatron.released import Released
from ziplan.runtimes.terms import GRADIENT_PASSES
from ziplan.simulate.step import simulate


def test_a_stage_holds_its_layers_and_the_larger_end():
    outer = WORK.model.params - WORK.model.block_params
    alone, staged = (asked(pp_degree=degree).ledger for degree in (1.0, 4.0))
    whole, part = (
        sum(line.high for line in book.lines if line.name == "optimizer state") for book in (alone, staged)
    )
    assert whole == pytest.approx(16 * WORK.model.params)
    assert part == pytest.approx(16 * (WORK.model.block_params / 4 + outer / 2), rel=1e-4)


def test_the_first_stage_keeps_as_many_micro_batches_as_there_are_stages():
    kept = [
        held(asked(pp_degree=stages, accumulation_steps=steps), "activations")[1]
        for stages, steps in ((1.0, 8.0), (4.0, 8.0), (4.0, 2.0), (4.0, 1.0))
    ]
    assert kept[1] == pytest.approx(kept[0])
    assert kept[2] == pytest.approx(kept[0] / 2)
    assert kept[3] == pytest.approx(kept[0] / 4)


def in_micro_steps(vocabulary=51200, **fields):
    """Seconds of a step of 12 micro-steps but for the optimizer, and its terms."""
    work = workload(toy(8, 8192, 32768, vocabulary), sequence_length=2048, precision="fp16")
    answer = asked(work=work, accumulation_steps=12.0, **fields)
    return answer.step_time - answer.terms["GPU optimizer"], answer.terms


def test_every_micro_batch_waits_for_the_stage_with_the_head():
    """Two layers in each of four stages, the head in the last one: 12 times that one, 3 times the others."""
    whole, alone = in_micro_steps()
    head = 2 * (whole - in_micro_steps(25600)[0]) / 12
    layers = whole / 12 - head
    staged, terms = in_micro_steps(pp_degree=4.0)
    passed = terms["stage to stage"] / 12
    assert terms["uneven stages"] == pytest.approx(12 * 3 / 4 * head)
    assert terms["pipeline bubble"] == pytest.approx(3 * (layers / 4 + passed))
    assert staged == pytest.approx(12 * (layers / 4 + head + passed) + terms["pipeline bubble"])
    assert not {"pipeline bubble", "uneven stages"} & set(alone)


def test_interleaved_stages_wait_less_and_pass_on_more():
    """Each of four stages in two pieces of one layer: half the bubble of layers, each piece is sent."""
    (_, whole), (_, pieces) = in_micro_steps(pp_degree=4.0), in_micro_steps(pp_degree=4.0, vpp_degree=2.0)
    passed = whole["stage to stage"] / 12
    assert pieces["stage to stage"] == pytest.approx(2 * 12 * passed)
    assert pieces["pipeline bubble"] == pytest.approx(
        (whole["pipeline bubble"] - 3 * passed) / 2 + 3 * passed
    )
    assert pieces["uneven stages"] == pytest.approx(whole["uneven stages"])


def test_in_deepspeeds_pipeline_autograd_adds_gradients_up():
    """11 of 12 micro-batches add: two gradients read and the sum written, 2 bytes each, of a quarter."""
    fields = {"pp_degree": 4.0, "accumulation_steps": 12.0, "zero_stage": 1.0}
    own, other = asked(**fields), asked(runtime=Released("2022-02"), **fields)
    added = own.terms.get(GRADIENT_PASSES, 0.0), other.terms[GRADIENT_PASSES]
    outer = (WORK.model.params - WORK.model.block_params) / 2
    params = WORK.model.block_params / 4 + outer
    assert added == (0.0, pytest.approx(11 * 6 * params / 2e12, rel=1e-4))
    waited = other.terms["pipeline bubble"] - own.terms["pipeline bubble"]
    assert waited == pytest.approx(3 / 12 * added[1])


def test_interleaved_stages_keep_more_micro_batches():
    """1 + (p - 1) / (p v) of the whole model's (arXiv:2205.05198 sec 4.2.3); all where they are few."""
    kept = [
        held(asked(pp_degree=4.0, vpp_degree=pieces, accumulation_steps=steps), "activations")[1]
        for pieces, steps in ((1.0, 8.0), (2.0, 8.0), (2.0, 4.0))
    ]
    assert kept[1] == pytest.approx(kept[0] * (1 + 3 / 8))
    assert kept[2] == pytest.approx(kept[0])


def test_the_bubble_computes_nothing():
    """FLOPs do not depend on how a model is divided, and all GPUs' are counted."""
    whole = asked(accumulation_steps=12.0).hardware_flops
    assert asked(pp_degree=4.0, accumulation_steps=12.0).hardware_flops == pytest.approx(whole)
    assert asked(tp_degree=8.0, accumulation_steps=12.0).hardware_flops == pytest.approx(whole)
    staged = asked(pp_degree=2.0, tp_degree=4.0, accumulation_steps=12.0)
    assert staged.hardware_flops_per_s_per_gpu == pytest.approx(whole / staged.step_time / 8)


def test_between_nodes_a_node_sends_what_its_replicas_pass_on():
    machine = box(2)
    for replicas, tensor in ((1.0, 8.0), (2.0, 4.0)):
        answer = asked(machine, dp_degree=replicas, tp_degree=tensor, pp_degree=2.0, accumulation_steps=4.0)
        passed = answer.segments[0].chains[0][-2]
        assert (passed.term, passed.resource) == ("stage to stage", "network")
        assert passed.amount == pytest.approx(replicas * 2 * 2048 * 8192 * 2)


@pytest.mark.parametrize("pieces", [1.0, 2.0])
def test_the_simulator_agrees(pieces):
    machine = box(2)
    fields = {
        "dp_degree": 2.0,
        "tp_degree": 4.0,
        "pp_degree": 2.0,
        "accumulation_steps": 4.0,
        "zero_stage": 1.0,
        "vpp_degree": pieces,
    }
    answer = asked(machine, **fields)
    assert simulate(machine, WORK, MEGATRON, answer.plan).makespan == pytest.approx(
        answer.step_time, rel=1e-9
    )
    with pytest.raises(BadInput, match="nothing to choose"):
        simulate(machine, WORK, MEGATRON, answer.plan, owner_broadcast=True)
