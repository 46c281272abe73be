"""The longest sample, packed samples: memory for the one, time for the other."""

from dataclasses import replace

import pytest
from runtimes.toy import HIDDEN, VOCABULARY, cluster, plan, toy, workload

from ziplan.errors import BadInput
from ziplan.estimate import estimate
from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.shared.compute import micro_step_flops
from ziplan.runtimes.shared.facts import Facts
from ziplan.workload.load import load_workload

LAYERS = 4
NONE = {"activation_checkpointing": float(Checkpointing.NONE)}


def settings(attention="flash", **lengths):
    return workload(toy(LAYERS), sequence_length=64, attention=attention, **lengths)


def answered(runtime, work):
    kind = RUNTIMES[runtime]
    return estimate(cluster(), work, kind, kind.settle(cluster(), work, plan(micro_batch_size=2.0, **NONE)))


@pytest.mark.parametrize("runtime", ["deepspeed", "fsdp", "ideal"])
def test_memory_is_for_the_longest_sample_and_time_for_the_usual_one(runtime):
    usual, longest = (answered(runtime, settings(**more)) for more in ({}, {"longest_sequence": 256}))
    assert longest.step_time == usual.step_time
    for name in ("activations", "logits and loss"):
        before, after = (
            next(line.high for line in answer.ledger.lines if line.name == name)
            for answer in (usual, longest)
        )
        assert after == pytest.approx(4 * before)
    states = [line.high for line in usual.ledger.lines if line.name == "optimizer state"]
    assert states == [line.high for line in longest.ledger.lines if line.name == "optimizer state"]


def test_checkpoints_on_the_host_are_those_of_the_longest_sample():
    work, kind = settings(longest_sequence=256), RUNTIMES["deepspeed"]
    homes = replace(plan().placement, checkpoints={"dram": 1.0})
    chosen = kind.settle(cluster(), work, plan(placement=homes))
    lines = kind.ledger(Derivation(), cluster(), work, chosen).lines
    (kept,) = (line.high for line in lines if line.name == "activation checkpoints")
    assert kept == 256 * LAYERS * 2 * HIDDEN


def attention_flops(work):
    facts = Facts(Derivation(), cluster(), work, plan(**NONE))
    matrices = LAYERS * (4 * HIDDEN**2 + 2 * HIDDEN * 4 * HIDDEN) + HIDDEN * VOCABULARY
    return micro_step_flops(facts) - 6 * matrices * 64


def test_packed_samples_attend_to_themselves():
    whole = 4 * 64 * HIDDEN * 64 * LAYERS * 0.5 * 3
    assert attention_flops(settings()) == pytest.approx(whole)
    assert attention_flops(settings(packing=True)) == pytest.approx(whole)
    packed = {"packing": True, "mean_sample_length": 16}
    assert attention_flops(settings(**packed)) == pytest.approx(whole / 4)
    assert attention_flops(settings("eager", **packed)) == pytest.approx(2 * whole)


FILE = "model: gpt2\ntraining:\n  sequence_length: 256\n  {}\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("longest_sequence: 128", "longest_sequence: 128 is less than sequence_length (256)"),
        ("longest_sequence: 2048", "longest_sequence: gpt2 takes sequences of up to 1,024 tokens"),
        ("mean_sample_length: 16", "mean_sample_length: counts where samples are packed"),
    ],
)
def test_lengths_that_contradict_each_other_are_refused(tmp_path, line, said):
    path = tmp_path / "model.yaml"
    path.write_text(FILE.format(line))
    with pytest.raises(BadInput) as refused:
        load_workload(str(path), {}, ())
    (problem,) = refused.value.problems
    assert problem.line == 4
    assert said in problem.message


def test_packed_sequences_have_one_length(tmp_path):
    path = tmp_path / "model.yaml"
    path.write_text(FILE.format("packing: true\n  longest_sequence: 512\n  mean_sample_length: 512"))
    with pytest.raises(BadInput) as refused:
        load_workload(str(path), {}, ())
    said = [problem.message for problem in refused.value.problems]
    assert any("packed sequences all have 256 tokens" in message for message in said)


def test_notes_say_what_the_settings_bring_about():
    def notes(**training):
        return load_workload("gpt2", {"sequence_length": 64, **training}, ()).notes

    assert not notes(precision="bf16")
    (convention,) = notes(precision="bf16", trainable={"frozen": ["mlp"]})
    assert "6P" in convention
    (skipped,) = notes(precision="fp16")
    assert "up to 17 first steps are skipped" in skipped
    (bound,) = notes(precision="bf16", packing=True)
    assert "an upper bound; say `mean_sample_length`" in bound
    (square,) = notes(precision="bf16", packing=True, attention="eager", mean_sample_length=8)
    assert "the whole square" in square
