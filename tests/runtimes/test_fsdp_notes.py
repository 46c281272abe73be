"""What is said of a plan under FSDP2: padding of few rows over many ranks."""

from dataclasses import replace

import pytest
from runtimes.toy import plan

from ziplan.hardware.profiles import load_cluster
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.fsdp.groups import groups, padding
from ziplan.runtimes.fsdp.notes import notes
from ziplan.solve.problem import Problem
from ziplan.solve.search import solve
from ziplan.workload.families import activation_bytes
from ziplan.workload.load import load_model
from ziplan.workload.training import Training, Workload


def work(name, **training):
    model = load_model(name)
    settings = Training(sequence_length=2048, **training)
    return Workload(model, settings, "bf16", activation_bytes(model, "flash", "bf16"))


@pytest.mark.parametrize(("ranks", "times"), [(8, None), (16, "1.97"), (64, "7.76")])
def test_experts_fewer_than_ranks_are_told_of(ranks, times):
    """Eight experts over 16 ranks take two rows for one: 45.1e9 of 46.7e9 parameters are theirs."""
    said = notes(work("mixtral-8x7b"), plan(dp_degree=float(ranks)))
    assert bool(said) == (times is not None)
    if times:
        assert f"{times} times the model's parameters" in said[0]
        assert "mlp.experts has 8 rows" in said[0]


@pytest.mark.parametrize(("name", "ranks"), [("mixtral-8x7b", 16.0), ("llama-3.1-8b", 48.0)])
def test_padding_is_what_is_held_beyond_the_model(name, ranks):
    model = load_model(name)
    added = sum(each.elements for each in padding(model, ranks))
    assert groups(model, ranks).all == pytest.approx(model.params + added)


def test_an_answer_has_the_note():
    machine = replace(load_cluster("dgx-a100-80g"), nodes=2)
    problem = Problem(machine, work("mixtral-8x7b", global_batch_size=32), RUNTIMES["fsdp"])
    assert any("shard_placement_fn" in note for note in solve(problem, 0).notes)
    other = replace(problem, runtime=RUNTIMES["deepspeed"])
    assert not any("shard_placement_fn" in note for note in solve(other, 0).notes)
