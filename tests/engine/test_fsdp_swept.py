"""Passes through the GPU's memory around gathers and sums, against what the real FSDP dispatches."""

import json
from collections import Counter

import pytest

from engine import nursery
from ziplan.estimate import estimate
from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing, Plan
from ziplan.runtimes import fsdp
from ziplan.runtimes.fsdp.released import FSDP1, Released
from ziplan.runtimes.terms import GRADIENT_PASSES, PACKED, SUMMED, UNPACKED, UPDATE_PASSES
from ziplan.workload.load import load_workload

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SHAPE = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4}
SHAPE |= {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 1024}
SHAPE |= {"tie_word_embeddings": False}

ASKED_BY = {
    "_get_param_all_gather_inputs": PACKED,
    "foreach_all_gather": PACKED,
    "all_gather_inputs": PACKED,
    "_use_low_precision_shard": PACKED,
    "wait_for_unshard": PACKED,
    "foreach_all_gather_copy_out": UNPACKED,
    "foreach_reduce_scatter_copy_in": GRADIENT_PASSES,
    "autograd": GRADIENT_PASSES,
    "foreach_reduce": SUMMED,
    "_reduce_grad": SUMMED,
    "_cast_grad_to_param_dtype": SUMMED,
    "_accumulate_sharded_grad": SUMMED,
}
"""The term of what a function of FSDP's moves; what clipping asks for is left."""


PASSES = (PACKED, UNPACKED, GRADIENT_PASSES, SUMMED, UPDATE_PASSES)


def predicted(folder, world, steps, precision, flat, frozen):
    (folder / "config.json").write_text(json.dumps(SHAPE))
    settings = {"sequence_length": 4, "precision": precision}
    if frozen:
        settings["trainable"] = {"frozen": frozen}
    work = load_workload(str(folder), settings)
    machine = load_cluster("dgx-a100-80g", [("gpu.peak_flops_per_s.fp32", "19.5 TFLOP/s")])
    fields = {"activation_checkpointing": Checkpointing.NONE, "accumulation_steps": float(steps)}
    runtime = Released(FSDP1) if flat else fsdp
    found = estimate(machine, work, runtime, Plan(dp_degree=float(world), zero_stage=3.0, **fields))
    amounts = Counter()
    for segment in found.segments:
        once = {id(demand): demand for chain in segment.chains for demand in chain}
        for demand in once.values():
            amounts[demand.term] += segment.repeats * demand.amount
    return amounts


def counted(folder, world, steps, precision, flat, frozen):
    dtype = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[precision]
    job = {"model": SHAPE, "world": world, "steps": steps, "dtype": dtype, "flat": flat, "frozen": frozen}
    (found,) = nursery.run("engine.fsdp_swept", [job], folder)
    amounts = Counter()
    for name, amount in found.items():
        amounts[ASKED_BY.get(name, UPDATE_PASSES)] += amount
    return amounts


@pytest.mark.parametrize("flat", [False, True], ids=["FSDP2", "FSDP1"])
@pytest.mark.parametrize(
    ("world", "steps", "precision"), [(4, 1, "bf16"), (4, 3, "bf16"), (2, 1, "bf16"), (4, 1, "fp32")]
)
def test_passes_through_memory_what_is_predicted(tmp_path, flat, world, steps, precision):
    same(tmp_path, world, steps, precision, flat)


def test_one_rank_copies_what_others_gather_and_sum(tmp_path):
    same(tmp_path, 1, 2, "bf16", flat=False)


@pytest.mark.parametrize("world", [2, 4])
def test_fp16_is_divided_before_and_after(tmp_path, world):
    """The last pass is not counted here: unscaling is GradScaler's."""
    same(tmp_path, world, 1, "fp16", flat=False, terms=PASSES[:-1])


def test_what_is_frozen_is_gathered_uncast_and_never_summed(tmp_path):
    same(tmp_path, 4, 1, "bf16", flat=False, frozen=("gate_proj", "down_proj", "lm_head"))


def same(folder, world, steps, precision, flat, terms=PASSES, frozen=()):
    found = counted(folder, world, steps, precision, flat, frozen)
    expected = predicted(folder, world, steps, precision, flat, frozen)
    assert {term: found[term] for term in terms} == pytest.approx(
        {term: expected[term] for term in terms}, rel=0.02
    )
