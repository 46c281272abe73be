"""Blocks of experts as one module: what DeepSpeed 0.19.8 gathered of small ones, and what follows from it."""

from dataclasses import replace

import pytest
from reading.asking import reading_of
from runtimes.toy import assert_alike, cluster, plan, workload

from ziplan.estimate import estimate
from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed.coordinator import Policy
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.fetches import fetches, fetches_of
from ziplan.runtimes.deepspeed.hooks import module_visits
from ziplan.runtimes.deepspeed.knobs import stated_knobs
from ziplan.runtimes.deepspeed.leaves import (
    BLOCKS,
    LEAF_CLASSES,
    forward_visits,
    in_modules,
    largest_gradients,
    leaf_block,
)
from ziplan.runtimes.deepspeed.stops import trace
from ziplan.runtimes.deepspeed.traits import traits_of
from ziplan.workload.families import FAMILIES
from ziplan.workload.load import load_model
from ziplan.workload.model import Model, Operator

NONE, FULL = int(Checkpointing.NONE), int(Checkpointing.FULL)
PERSISTENT = 100_000


def mixtral(layers=3):
    """Layers of 512 with four experts of 384, to which 2.36 of a layer's 3.15 million elements belong."""

    def linear(name, inputs, outputs):
        return Operator(name, "linear", inputs, outputs, count=layers)

    def norm(name, count=layers, block=True):
        return Operator(name, "norm", 512, 512, count=count, block=block)

    weights = ((512, 768), (384, 512))
    experts = Operator(
        "mlp.experts", "experts", 512, 512, layers, weights=weights, experts=4, active_share=0.5
    )
    operators = (
        Operator("embed_tokens", "embedding", 512, 1024, block=False),
        norm("input_layernorm"),
        linear("self_attn.q_proj", 512, 512),
        linear("self_attn.k_proj", 512, 256),
        linear("self_attn.v_proj", 512, 256),
        linear("self_attn.o_proj", 512, 512),
        norm("post_attention_layernorm"),
        linear("mlp.gate", 512, 4),
        experts,
        norm("norm", 1, False),
        Operator("lm_head", "linear", 512, 1024, block=False),
    )
    return Model("mixtral", "mixtral", layers, 512, 1024, 8, 4, 64, operators)


RUNS = {
    # (checkpointing, reentrant, prefetch, live, reuse): (elements gathered, most live but what persists)
    (NONE, False, 0, 1e9, 0): (20_971_520, 2_359_296),
    (NONE, False, 0, 1e9, 6.5e6): (15_204_352, 5_767_168),
    (FULL, False, 0, 1e9, 0): (23_330_816, 2_621_440),
    (FULL, False, 0, 1e9, 1e6): (18_874_368, 2_883_584),
    (FULL, False, 0, 1e9, 6.5e6): (15_728_640, 5_242_880),
    (FULL, False, 3.2e6, 6.4e6, 6.4e6): (15_990_784, 6_815_744),
    (FULL, True, 0, 1e9, 0): (30_408_704, 2_359_296),
    (FULL, True, 3.2e6, 6.4e6, 0): (24_379_392, 7_864_320),
    (FULL, True, 3.2e6, 6.4e6, 6.4e6): (15_990_784, 7_077_888),
}
"""One process, three layers, in a steady micro-step."""


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_gathers_a_block_as_deepspeed_gathered_it(run):
    mode, reentrant, *limits = run
    played = fetches(mixtral(), mode, reentrant, Policy(*limits, PERSISTENT, leaves=LEAF_CLASSES))
    assert (played.elements, played.peak_live) == RUNS[run]


def test_a_block_is_gathered_in_one_call():
    apart, whole = (
        fetches(mixtral(), NONE, False, Policy(0, 1e9, 0, PERSISTENT, leaves=leaves))
        for leaves in ((), LEAF_CLASSES)
    )
    assert (apart.elements, apart.peak_live) == (whole.elements, whole.peak_live)
    assert whole.largest_fetch == 4 * (512 * 768 + 384 * 512)
    assert apart.largest_fetch == whole.largest_fetch, "both tensors of the experts are one module's anyway"
    assert whole.calls == apart.calls, "the router persists"


@pytest.mark.parametrize("mode", [NONE, FULL])
@pytest.mark.parametrize("reuse", [0.0, 2.0, 30.0])
@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen2-57b-a14b", "qwen3-30b-a3b"])
def test_layers_are_extrapolated_as_played(name, reuse, mode):
    model = load_model(name)
    layer = model.largest_layer_params
    policy = Policy(layer, 2 * layer, reuse * layer, PERSISTENT, leaves=LEAF_CLASSES)
    every = [section.repeat for section in model.sections]
    assert_alike(fetches(model, mode, False, policy), fetches_of(model, every, mode, False, policy))


SHIPPED = ("mixtral-8x7b", "qwen2-57b-a14b", "qwen3-30b-a3b", "olmoe-1b-7b", "deepseek-v3", "gpt-oss-20b")


@pytest.mark.parametrize("name", SHIPPED)
def test_a_family_with_experts_has_its_block(name):
    """All that is in it is told apart from the rest of a layer: one module more or less for each."""
    model = load_model(name)
    block = BLOCKS[model.family]
    whole, apart = (
        forward_visits(model, leaves)[0] for leaves in ((block.class_name.rpartition(".")[2],), ())
    )
    inside = sum(o.count for o in model.operators if block.place(o) >= 0)
    assert apart - whole == inside - model.operator(f"{block.name}.experts").count


def test_every_block_is_of_a_family():
    assert set(BLOCKS) <= set(FAMILIES)


def test_what_the_list_does_not_name_is_visited_module_by_module():
    model = load_model("olmoe-1b-7b")
    assert leaf_block(model, LEAF_CLASSES) is None
    named = ("transformers.models.olmoe.modeling_olmoe.OlmoeSparseMoeBlock",)
    assert leaf_block(model, named) == leaf_block(model, ("OlmoeSparseMoeBlock",)) == BLOCKS["olmoe"]
    inside, outside = forward_visits(model, LEAF_CLASSES)
    assert forward_visits(model, named) == (inside - model.layer_count, outside)


def test_a_dense_layer_of_the_same_model_is_no_leaf():
    dense = (Operator("mlp.gate_proj", "linear", 8, 8), Operator("mlp.down_proj", "linear", 8, 8))
    assert in_modules(dense, BLOCKS["qwen2_moe"]) == [(0,), (1,)]


def test_a_block_s_modules_come_in_the_order_in_which_they_are_made():
    (layer,) = load_model("qwen2-57b-a14b").sections[1].layers
    (block,) = [places for places in in_modules(layer, BLOCKS["qwen2_moe"]) if len(places) > 1]
    assert [layer[place].name.removeprefix("mlp.") for place in block] == [
        *("gate", "experts", "shared_expert.gate_proj", "shared_expert.up_proj", "shared_expert.down_proj"),
        "shared_expert_gate",
    ]


WORK = replace(workload(mixtral()), model=mixtral())
CHOSEN = plan("dram", "dram", dp_degree=8.0)


def facts(version="0.19.8", **fields):
    derivation = Derivation(record=False)
    return Facts(derivation, cluster(gpus=8), WORK, replace(CHOSEN, **fields), traits=traits_of(version))


def test_before_0_18_no_block_is_a_leaf_by_itself():
    new, old = facts(), facts("0.17.0")
    assert (new.knobs.leaves, old.knobs.leaves) == (LEAF_CLASSES, ())
    # Of a layer 7 and 8 modules, three sweeps; outside of them 3, twice.
    assert sum(module_visits(new)) == 3 * 3 * 7 + 2 * 3
    assert sum(module_visits(old)) == 3 * 3 * 8 + 2 * 3
    alone = sum(module_visits(facts(activation_checkpointing=float(NONE))))
    assert alone == 2 * 3 * 7 + 2 * 3


def test_stops_are_the_visits_and_share_out_all_the_work():
    total = 1e12
    for version in ("0.19.8", "0.17.0"):
        asked = facts(version)
        micro = trace(asked, total)
        assert len(micro.stops) == sum(module_visits(asked))
        assert sum(stop.flops for stop in micro.stops) == pytest.approx(total)
    whole = [stop for stop in trace(facts(), total).stops if stop.name == "layer 1 mlp backward"]
    assert [stop.gradients for stop in whole] == [(2048, 4 * 512 * 768, 4 * 384 * 512)]


def test_gradients_of_a_leaf_are_there_all_at_once():
    """Below stage 3 nothing is a leaf, and a tensor's are reduced by themselves."""
    block = 512 * 4 + 4 * (512 * 768 + 384 * 512)
    assert largest_gradients(mixtral(), LEAF_CLASSES) == block
    assert largest_gradients(mixtral(), ()) == 4 * 512 * 768
    held = {}
    for stage in (2.0, 3.0):
        deepspeed, machine = RUNTIMES["deepspeed"], cluster(gpus=8)
        settled = deepspeed.settle(machine, WORK, plan("hbm", "dram", dp_degree=8.0, zero_stage=stage))
        lines = estimate(machine, WORK, deepspeed, settled).ledger.lines
        held[stage] = next(line.high for line in lines if line.name == "gradient of the largest tensor")
    assert held == {2.0: 2 * 4 * 512 * 768, 3.0: 2 * block}


@pytest.mark.parametrize(
    "classes", ["MixtralSparseMoeBlock", ["MixtralSparseMoeBlock"], ["OlmoeSparseMoeBlock"]]
)
def test_the_leaves_of_a_config_that_exists_are_its_own(tmp_path, classes):
    zero = {"stage": 3, "leaf_module": {"classes": classes}}
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero}
    settings = reading_of(tmp_path, config).settings
    own = (classes,) if isinstance(classes, str) else tuple(classes)
    assert settings.leaf_classes == own
    limits = stated_knobs(settings, CHOSEN, "nvme")
    assert (leaf_block(mixtral(), limits.leaves) is None) is (own == ("OlmoeSparseMoeBlock",))
