"""Every tensor of every family against the Hugging Face model of the same config."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload.models import built, shipped

from ziplan.workload.families import FAMILIES
from ziplan.workload.shapes import list_shapes, shape_config

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
}
"""Parameters as the checkpoints' own metadata count them."""


def hf_parameters(config):
    """Name to element count of every parameter of the Hugging Face model, shared ones once."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    # Token ids play no part in sizes, and GPT-2's default ones lie outside a small vocabulary.
    ids = {"bos_token_id": None, "eos_token_id": None}
    hf_config = transformers.AutoConfig.for_model(**{**config, **ids})
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(hf_config)
    model.tie_weights()
    return {name: tensor.numel() for name, tensor in model.named_parameters()}


def assert_same_tensors(model, config):
    theirs = hf_parameters(config)
    ours: Counter[int] = Counter()
    for elements, count, _ in model.tensors:
        ours[elements] += count
    assert ours == Counter(theirs.values())
    assert model.params == sum(theirs.values())
    in_layers = sum(size for name, size in theirs.items() if re.search(r"\.(layers|h)\.\d+\.", name))
    assert model.block_params == in_layers == model.layer_params * model.layer_count


@pytest.mark.parametrize("name", list_shapes())
@pytest.mark.slow
def test_shipped_shapes_have_the_tensors_of_the_real_model(name):
    assert_same_tensors(shipped(name), shape_config(name))


@pytest.mark.parametrize(("name", "params"), PUBLISHED.items())
def test_shipped_shapes_have_the_published_number_of_parameters(name, params):
    assert shipped(name).params == params


small = st.integers(1, 6)


@st.composite
def llama_like(draw):
    key_value_heads, groups, half_head = draw(small), draw(small), draw(small)
    heads = key_value_heads * groups
    config = {
        "model_type": draw(st.sampled_from(["llama", "mistral", "qwen2"])),
        "hidden_size": heads * draw(small) * 2,
        "intermediate_size": draw(st.integers(1, 99)),
        "num_hidden_layers": draw(small),
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
        "vocab_size": draw(st.integers(1, 99)),
        "tie_word_embeddings": draw(st.booleans()),
        "max_position_embeddings": 64,
    }
    if draw(st.booleans()):
        config["head_dim"] = 2 * half_head
    if config["model_type"] == "llama":
        config |= {"attention_bias": draw(st.booleans()), "mlp_bias": draw(st.booleans())}
    return config


@st.composite
def gpt2_like(draw):
    heads = draw(small)
    return {
        "model_type": "gpt2",
        "n_embd": heads * draw(small) * 2,
        "n_head": heads,
        "n_layer": draw(small),
        "n_positions": draw(st.integers(1, 99)),
        "vocab_size": draw(st.integers(1, 99)),
        "n_inner": draw(st.none() | st.integers(1, 99)),
        "tie_word_embeddings": draw(st.booleans()),
    }


@pytest.mark.slow
@settings(max_examples=40)
@given(config=llama_like() | gpt2_like())
def test_any_config_has_the_tensors_of_the_real_model(config):
    assert_same_tensors(built(config), config)


@pytest.mark.parametrize("name", ["gpt2", "llama-3.2-1b", "llama-2-7b", "mistral-7b", "qwen2.5-0.5b"])
@pytest.mark.slow
def test_operators_come_in_the_order_of_forward(name):
    """The order in which a forward pass calls the modules; what is not called is not there."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    layer_keys = {"n_layer": 1, "num_hidden_layers": 1}
    config = {key: layer_keys.get(key, value) for key, value in shape_config(name).items()}
    with torch.device("meta"):
        hf_model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
        called = []
        for module_name, module in hf_model.named_modules():
            if list(module.parameters(recurse=False)):
                short = re.sub(r"^(model|transformer)\.|(layers|h)\.0\.", "", module_name)
                module.register_forward_pre_hook(lambda *_, name=short: called.append(name))
        hf_model(torch.zeros(1, 4, dtype=torch.long))
    assert [operator.name for operator in shipped(name).operators] == called


def test_a_tied_head_computes_but_owns_nothing():
    tied = shipped("gpt2").operator("lm_head")
    assert (tied.params, tied.matmul_params, tied.shared_with) == (0, 768 * 50257, "wte")


def test_every_family_has_a_shipped_shape():
    assert {shipped(name).family for name in list_shapes()} == set(FAMILIES)
