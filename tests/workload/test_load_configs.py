"""What is said of a config whose values no model of its family has; none is a crash."""

from __future__ import annotations

import contextlib
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from workload.loads import A100, CONFIG, LENGTH, refused
from workload.models import built, problems_of
from workload.small import SMALL

from ziplan.errors import BadInput
from ziplan.workload.families import FAMILIES
from ziplan.workload.load import load_workload


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"num_attention_heads": -4}, "num_attention_heads"),
        ({"num_attention_heads": 5, "num_key_value_heads": 5}, "num_attention_heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"num_key_value_heads": 8}, "num_key_value_heads"),
        ({"hidden_size": 10**30}, "hidden_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"head_dim": 0}, "head_dim"),
        ({"head_dim": "16"}, "head_dim"),
        ({"attention_bias": "no"}, "attention_bias"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings"),
        ({"hidden_act": 3}, "hidden_act"),
        ({"max_position_embeddings": -1}, "max_position_embeddings"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"model_type": ["llama"]}, "model_type"),
        ({"model_type": None}, "model_type"),
        ({"model_type": "qwen2", "num_key_value_heads": None}, "num_key_value_heads"),
    ],
)
def test_values_that_no_model_has(change, key):
    assert list(problems_of({**CONFIG, **change})) == [key]


def test_the_text_part_of_a_model_of_more_kinds_is_pointed_at(write):
    whole = {"model_type": "gemma3", "text_config": {**CONFIG, "model_type": "gemma3_text"}}
    _, said = refused(write("config.json", whole))
    assert "its text part is (gemma3_text)" in said


@pytest.mark.parametrize("family", FAMILIES)
def test_a_missing_number_is_named_and_nothing_else(family):
    for key in SMALL[family]:
        problems = problems_of({other: v for other, v in SMALL[family].items() if other != key})
        assert list(problems) in ([], [key])
    vocabulary = "num_hidden_layers" if family == "vit" else "vocab_size"
    assert list(problems_of({**SMALL[family], vocabulary: None})) == [vocabulary]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("wrong", [-1, 1.5, "4", [], {}, True, 10**30])
def test_a_number_that_no_model_has_is_named(family, wrong):
    for key, value in SMALL[family].items():
        if type(value) is int and not (key == "first_k_dense_replace" and wrong is True):
            assert key in problems_of({**SMALL[family], key: wrong}) or key in UNREAD[family]


UNREAD = defaultdict(
    set,
    gptj={"rotary_dim"},
    cohere2={"head_dim"},
    deepseek_v2={"num_key_value_heads", "n_group", "topk_group"},
    deepseek_v3={"num_key_value_heads", "n_group", "topk_group"},
    bloom=set(),
    glm4_moe={"n_group", "topk_group"},
    falcon={"intermediate_size", "max_position_embeddings"},
    qwen2_moe={"intermediate_size"},
)
"""Keys of a family's configs that its parameters do not depend on."""


@pytest.mark.parametrize(
    ("family", "change", "key"),
    [
        ("mixtral", {"num_experts_per_tok": 5}, "num_experts_per_tok"),
        ("qwen3_moe", {"mlp_only_layers": "all"}, "mlp_only_layers"),
        ("qwen2_moe", {"mlp_only_layers": [True]}, "mlp_only_layers"),
        ("deepseek_v3", {"first_k_dense_replace": -1}, "first_k_dense_replace"),
        ("t5", {"feed_forward_proj": "doubly-gated-gelu"}, "feed_forward_proj"),
        ("bart", {"decoder_attention_heads": 8}, "decoder_attention_heads"),
        ("bart", {"tie_word_embeddings": False}, "tie_word_embeddings"),
        ("bert", {"tie_word_embeddings": False}, "tie_word_embeddings"),
        ("bert", {"add_cross_attention": True}, "add_cross_attention"),
        ("roberta", {"is_decoder": True}, "is_decoder"),
        ("phi", {"qk_layernorm": True}, "qk_layernorm"),
        ("stablelm", {"qk_layernorm": True}, "qk_layernorm"),
        ("falcon", {"parallel_attn": False}, "parallel_attn"),
        ("falcon", {"num_kv_heads": 3}, "num_kv_heads"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gptj", {"n_head": 5}, "n_head"),
        ("bloom", {"n_head": 5}, "n_head"),
        ("opt", {"num_attention_heads": 5}, "num_attention_heads"),
        ("vit", {"patch_size": 5}, "patch_size"),
        ("vit", {"id2label": 3, "num_labels": None}, "id2label"),
    ],
)
def test_what_a_family_does_not_take(family, change, key):
    assert list(problems_of({**SMALL[family], **change})) == [key]


def test_other_names_of_the_same_thing():
    old = {"model_type": "bloom", "n_embed": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    assert built({**old, "vocab_size": 50}) == built(SMALL["bloom"])
    labels = {"id2label": {str(label): "x" for label in range(10)}, "num_labels": None}
    assert built({**SMALL["vit"], **labels}) == built(SMALL["vit"])
    falcon = {key: value for key, value in SMALL["falcon"].items() if key != "num_kv_heads"}
    assert built({**falcon, "n_head_kv": 2}) == built(SMALL["falcon"])


def test_a_stated_head_size_frees_the_width():
    assert not problems_of({**CONFIG, "hidden_size": 66, "head_dim": 16})


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers())
)
keys = st.sampled_from([*sorted({key for config in SMALL.values() for key in config}), "n_inner", "head_dim"])


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=30)
@given(config=st.dictionaries(keys, scalars))
def test_no_config_is_a_crash(family, config):
    problems_of({**SMALL[family], **config, "model_type": family})


values = st.recursive(
    scalars, lambda inner: st.dictionaries(keys | st.just("sequence_length"), inner), max_leaves=6
)
model_files = st.fixed_dictionaries(
    {}, optional={"model": values, "shape": values, "training": values, "name": values}
)


@given(content=model_files)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_model_file_is_a_crash(content, write):
    with contextlib.suppress(BadInput):
        load_workload(write("model.yaml", content), LENGTH, A100)
