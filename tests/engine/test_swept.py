"""Passes over gradients and over what a rank owns, against what the real engine dispatches."""

import json

import pytest

from engine import nursery
from ziplan.hardware.profiles import load_cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.swept import beside_the_update, swept_each_time, swept_once
from ziplan.runtimes.deepspeed.traits import traits_of
from ziplan.workload.load import load_workload

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SHAPE = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4}
SHAPE |= {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 1024}
RANKS = 4


def facts_of(folder, stage, steps):
    (folder / "config.json").write_text(json.dumps({**SHAPE, "tie_word_embeddings": False}))
    training = {"sequence_length": 4, "precision": "bf16"}
    work = load_workload(str(folder / "config.json"), training)
    plan = Plan(dp_degree=float(RANKS), zero_stage=float(stage), accumulation_steps=float(steps))
    return Facts(
        Derivation(record=False), load_cluster("dgx-a100-80g"), work, plan, traits=traits_of("0.19.8")
    )


def counted(folder, stage, steps):
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": steps,
        "zero_optimization": {"stage": stage, "overlap_comm": True, "reduce_bucket_size": 10**7},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "bf16": {"enabled": True},
    }
    (found,) = nursery.run("engine.swept", [{"config": config, "model": SHAPE, "world": RANKS}], folder)
    return found


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_step_passes_through_memory_what_is_predicted(tmp_path, stage):
    f, found = facts_of(tmp_path, stage, 1), counted(tmp_path, stage, 1)
    # Rank 0 owns less than the rank that the law is of, which tensors of others reach into.
    owned = f.trained if stage == 0 else f.trained / RANKS
    assert found["last"] == pytest.approx(swept_each_time(f).amount + swept_once(f, 1.0).amount, rel=0.03)
    assert found["step"] == pytest.approx(owned * beside_the_update(f), rel=0.02)


def test_stage_2_adds_up_what_it_owns_a_part_of(tmp_path):
    """A second micro-step adds to the gradients of the first, the mean of both is what the law gives."""
    f, found = facts_of(tmp_path, 2, 2), counted(tmp_path, 2, 2)
    assert (found["first"] + found["last"]) / 2 == pytest.approx(swept_each_time(f).amount, rel=0.04)
