"""Windows of attention: read as transformers reads them, counted pair by pair, timed where a kernel skips."""

import pytest
from runtimes.toy import cluster, plan
from workload.hugging_face import hf_config
from workload.models import built, problems_of, shipped

from ziplan.estimate import estimate
from ziplan.laws.counts import chunked_share, windowed_share
from ziplan.runtimes import RUNTIMES
from ziplan.workload.families import FAMILIES, activation_bytes
from ziplan.workload.load import list_shapes, load_workload
from ziplan.workload.shapes import shape_config
from ziplan.workload.training import Training, Workload
from ziplan.workload.windows import RULES

WINDOWED = [name for name in list_shapes() if shape_config(name)["model_type"] in RULES]


def told(config):
    """(tokens, layers) of the windows of transformers' own config."""
    made = hf_config(config)
    tokens = getattr(made, "attention_chunk_size", None) or getattr(made, "sliding_window", None)
    kinds = (
        getattr(made, "layer_types", None) or (["sliding"] if tokens else ["full"]) * made.num_hidden_layers
    )
    seen = sum(kind != "full_attention" for kind in kinds) if tokens else 0
    return [(tokens, seen)] if seen else []


@pytest.mark.parametrize("name", WINDOWED)
def test_shipped_shapes_have_the_windows_of_transformers(name):
    assert [window[:2] for window in shipped(name).windows] == told(shape_config(name))


@pytest.mark.parametrize("model_type", RULES)
def test_a_config_that_says_nothing_has_those_of_transformers(model_type):
    name = next(name for name in list_shapes() if shape_config(name)["model_type"] == model_type)
    keys = ("sliding_window", "attention_chunk_size")
    silent = {key: value for key, value in shape_config(name).items() if key not in keys}
    assert [window[:2] for window in built(silent).windows] == told(silent)


def test_every_family_with_a_window_in_transformers_has_a_rule():
    transformers = pytest.importorskip("transformers")
    # Local layers of GPT-Neo are computed whole and masked; BART and others call other things windows.
    known = {*RULES, "gpt_neo", "smollm3"}
    for model_type in FAMILIES:
        names = vars(transformers.AutoConfig.for_model(model_type))
        if {"sliding_window", "attention_chunk_size", "window_size"} & set(names):
            assert model_type in known


@pytest.mark.parametrize(
    ("model_type", "keys", "seen"),
    [
        ("qwen2.5-0.5b", {"sliding_window": 64}, []),
        ("qwen2.5-0.5b", {"use_sliding_window": True, "max_window_layers": 20}, [(4096, 4)]),
        ("qwen2.5-0.5b", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 24}, []),
        ("gemma-3-1b", {"layer_types": ["full_attention"] * 25 + ["sliding_attention"]}, [(512, 1)]),
        ("gemma-3-1b", {"sliding_window_pattern": 2}, [(512, 13)]),
        ("mistral-7b", {"sliding_window": None}, []),
        ("mixtral-8x7b", {"sliding_window": 4096}, [(4096, 32)]),
    ],
)
def test_keys_of_a_config(model_type, keys, seen):
    assert [window[:2] for window in built({**shape_config(model_type), **keys}).windows] == seen


@pytest.mark.parametrize(
    ("keys", "key", "message"),
    [
        ({"sliding_window": "4k"}, "sliding_window", "expected a whole number"),
        ({"sliding_window": -1}, "sliding_window", "at least 1"),
        ({"layer_types": "full_attention"}, "layer_types", "expected a list"),
        (
            {"layer_types": ["linear_attention"] * 26},
            "layer_types",
            "'full_attention' or 'sliding_attention'",
        ),
        ({"layer_types": ["full_attention"]}, "layer_types", "1 entries for 26 layers"),
    ],
)
def test_what_is_wrong_with_them(keys, key, message):
    assert message in problems_of({**shape_config("gemma-3-1b"), **keys})[key]


@pytest.mark.parametrize(("window", "length"), [(1, 64), (16, 64), (63, 64), (64, 64), (100, 64)])
def test_pairs_are_those_of_a_mask(window, length):
    """Counted one by one, a pair of a token with itself for a half: a triangle is half a square."""
    rows = [min(row, window) for row in range(1, length + 1)]
    pairs = sum(rows) - length / 2
    share = windowed_share(window_length=window, sequence_length=length)
    assert share == pytest.approx(pairs / (length**2 / 2), abs=1 / length)


def test_pairs_of_chunks_are_those_of_a_mask():
    rows = [row % 16 + 0.5 for row in range(64)]
    assert chunked_share(window_length=16, sequence_length=64) == pytest.approx(sum(rows) / (64**2 / 2))


def attention(name, length, how="flash"):
    """FLOPs of attention in a micro-step: those that no matrix of the model has."""
    model = shipped(name)
    training = Training(sequence_length=length, attention=how)
    work = Workload(model, training, "bf16", activation_bytes(model, how, "bf16"))
    answer = estimate(cluster(), work, RUNTIMES["deepspeed"], plan(activation_checkpointing=0.0))
    return answer.hardware_flops - 6.0 * model.matmul_params * length


@pytest.mark.parametrize(
    ("name", "length", "share"),
    [
        ("olmo-3-7b", 4096, 1.0),
        ("olmo-3-7b", 16384, 1 / 4 + 3 / 4 * 7 / 16),
        ("gpt-oss-20b", 4096, 1 / 2 + 1 / 2 * (1 / 32) * (2 - 1 / 32)),
        ("llama-4-scout-text", 32768, 1 / 4 + 3 / 4 * 1 / 4),
    ],
)
def test_a_flash_kernel_skips_what_no_window_shows(name, length, share):
    model = shipped(name)
    whole = 3 * 4 * 0.5 * length**2 * model.attention_width * model.layer_count
    assert attention(name, length) == pytest.approx(share * whole, rel=1e-6)
    assert attention(name, length, "eager") == pytest.approx(2 * whole, rel=1e-6)


@pytest.mark.parametrize(("length", "said"), [(4096, False), (16384, True)])
def test_it_is_said_that_a_kernel_has_to_skip(length, said):
    notes = load_workload("olmo-3-7b", {"sequence_length": length}, {"bf16": 1.0}).notes
    assert any("24 of 32 see 4,096 tokens" in note for note in notes) == said
