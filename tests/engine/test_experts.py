"""Blocks of experts that DeepSpeed takes as one module (leaves), against the real engine."""

from itertools import product

import pytest

from engine.covering import covering
from engine.harness import World
from engine.limits import KINDS, Limits, compared
from engine.planned import Case, check
from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.hooks import module_visits
from ziplan.runtimes.deepspeed.leaves import BLOCKS, LEAF_CLASSES, largest_gradients

pytestmark = [pytest.mark.engine, pytest.mark.slow]

COMMON = {"hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4}
COMMON |= {"vocab_size": 1024, "max_position_embeddings": 64, "tie_word_embeddings": False}
COMMON |= {"num_experts_per_tok": 2}
MODELS = {
    "mixtral": {"intermediate_size": 384, "num_local_experts": 4},
    # An MLP that every token takes beside the experts, and a gate for it.
    "qwen2_moe": {"intermediate_size": 1024, "moe_intermediate_size": 256, "num_experts": 4}
    | {"shared_expert_intermediate_size": 512},
    # Experts in every second layer alone: the MLP of the others has the same name and is no leaf.
    "qwen3_moe": {"intermediate_size": 1024, "moe_intermediate_size": 256, "num_experts": 4}
    | {"head_dim": 64, "decoder_sparse_step": 2},
    # No leaf by itself: the router and the experts are modules by themselves.
    "olmoe": {"intermediate_size": 256, "num_experts": 4, "pad_token_id": None},
}
NOTHING = Limits(0, 1e9, 0)
LIMITS = {
    "nothing": NOTHING,
    "a block kept": Limits(0, 1e9, 1e6),
    "two layers kept": Limits(0, 1e9, 6.5e6),
    "all kept": Limits(0, 1e9, 1e9),
    "a layer ahead": Limits(3.2e6, 6.4e6, 0),
    "a layer ahead, two kept": Limits(3.2e6, 6.4e6, 6.4e6),
    "a part ahead": Limits(1e6, 4e6, 0),
    "a part ahead, a layer kept": Limits(1e6, 4e6, 3e6),
    "all ahead": Limits(5e7, 1e9, 1e9),
}
FEW = [
    ("mixtral", "non_reentrant", 1, "two layers kept"),
    ("mixtral", "reentrant", 2, "a layer ahead"),
    ("qwen2_moe", "non_reentrant", 2, "a layer ahead, two kept"),
    ("qwen2_moe", "none", 1, "a part ahead"),
    ("qwen3_moe", "reentrant", 1, "a block kept"),
    ("qwen3_moe", "non_reentrant", 2, "nothing"),
    ("olmoe", "non_reentrant", 1, "a layer ahead, two kept"),
]
MORE = covering(list(product(MODELS, KINDS, (1, 2), LIMITS)), 2, FEW)
"""So many that any two values meet; all 216 were run once and are as played."""


def shape_of(name):
    return {"model_type": name, **COMMON, **MODELS[name]}


@pytest.mark.parametrize(("name", "kind", "steps", "limits"), FEW)
def test_gathers_what_was_played(tmp_path, name, kind, steps, limits):
    compared(tmp_path, shape_of(name), kind, steps, LIMITS[limits])


@pytest.mark.engine_all
@pytest.mark.parametrize(("name", "kind", "steps", "limits"), MORE)
def test_gathers_what_was_played_of_more(tmp_path, name, kind, steps, limits):
    compared(tmp_path, shape_of(name), kind, steps, LIMITS[limits])


@pytest.mark.parametrize(
    ("name", "classes"),
    [("olmoe", ("OlmoeSparseMoeBlock",)), ("mixtral", ("OlmoeSparseMoeBlock",)), ("mixtral", LEAF_CLASSES)],
)
def test_leaves_are_what_the_config_says(tmp_path, name, classes):
    """Gradients of a leaf are all there before the first is reduced, those of other modules one by one."""
    zero = {"leaf_module": {"classes": list(classes)}}
    model, done, _ = compared(tmp_path, shape_of(name), "non_reentrant", 1, NOTHING, classes, **zero)
    assert done.peak["whole_gradient_elements"] == largest_gradients(model, classes)
    whole = any(BLOCKS[name].class_name.endswith(each.rpartition(".")[2]) for each in classes)
    experts = model.operator("mlp.experts")
    assert (largest_gradients(model, classes) > max(experts.tensors)) is whole


@pytest.mark.parametrize("tiers", [("dram", "dram"), ("nvme", "nvme")], ids="-".join)
@pytest.mark.parametrize("name", [name for name in MODELS if name != "olmoe"])
def test_a_plan_s_config_moves_and_holds_what_was_predicted(tmp_path, name, tiers):
    shape = shape_of(name)
    fields = {"prefetch_depth": 1, "accumulation_steps": 2}
    case = Case(tmp_path, shape, World(2), tiers, Checkpointing.FULL, **fields)
    check(case)
    assert case.done.last["gathered_elements"] == 2 * case.fetched.elements
    live = case.lines("hbm", "gathered parameters") * case.ranks_per_node
    assert 2 * case.done.peak["live_elements"] == live
    facts = Facts(Derivation(record=False), case.cluster, case.workload, case.plan)
    assert case.done.last["reached_modules"] == 2 * sum(module_visits(facts))
    held = case.gpu("gradient of the largest tensor")[1]
    assert 2 * case.done.peak["whole_gradient_elements"] == held


def test_the_list_is_deepspeed_s_own():
    from deepspeed.runtime.zero.leaf_module_config import DEFAULT_LEAF_MODULE_CLASSES

    assert tuple(DEFAULT_LEAF_MODULE_CLASSES) == LEAF_CLASSES


@pytest.mark.parametrize("family", BLOCKS)
def test_blocks_are_made_as_transformers_makes_them(family):
    """Their class, and the modules in them that have parameters, in the order in which they are made."""
    import importlib

    import torch
    from transformers import AutoConfig

    block = BLOCKS[family]
    module, _, name = block.class_name.rpartition(".")
    made = getattr(importlib.import_module(f"transformers.models.{module}"), name)
    small = {"hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 64, "num_hidden_layers": 2}
    with torch.device("meta"):
        built = made(AutoConfig.for_model(family, **small))
    own = [part for part, each in built.named_children() if any(True for _ in each.parameters())]
    assert tuple(own) == block.made
    assert not list(built.parameters(recurse=False))
