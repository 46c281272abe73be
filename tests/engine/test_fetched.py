"""What stage 3 fetches and holds under any limits, against the real engine: elements, gathers, most live."""

from itertools import product

import pytest

from engine.covering import covering
from engine.limits import KINDS, Limits, compared

pytestmark = [pytest.mark.engine, pytest.mark.slow]

STACKS = {"d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 8}
STACKS |= {"vocab_size": 1024, "decoder_start_token_id": 0, "pad_token_id": 0}
MODELS = {
    # A function between two matrices, nothing after the last one.
    "llama": {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 4}
    | {"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1024, "max_position_embeddings": 64},
    # Dropout after each half: backward needs its mask before it reaches the last matrix.
    "gpt2": {"model_type": "gpt2", "n_embd": 512, "n_layer": 4, "n_head": 8, "vocab_size": 2048}
    | {"n_positions": 512},
    # The MLP looks at its last weight. Embeddings come between stacks and stay until backward ends.
    "t5": {"model_type": "t5", "feed_forward_proj": "gated-gelu", **STACKS},
    "t5 without dropout": {"model_type": "t5", "feed_forward_proj": "relu", "dropout_rate": 0.0, **STACKS},
    # Dropout that is no module.
    "opt": {"model_type": "opt", "hidden_size": 512, "ffn_dim": 2048, "num_hidden_layers": 3}
    | {"num_attention_heads": 8, "vocab_size": 1024, "max_position_embeddings": 512}
    | {"word_embed_proj_dim": 512, "pad_token_id": None},
}
LIMITS = {
    "nothing": Limits(0, 1e9, 0),
    "kept": Limits(0, 1e9, 6e6),
    # Fewer elements than a matrix has: whatever is reached reads one ahead.
    "one ahead": Limits(0.3e6, 1e9, 0),
    "a few ahead": Limits(0.8e6, 1e9, 2e6),
    "little live": Limits(1e6, 3e6, 0),
    "a layer ahead": Limits(3.2e6, 6.4e6, 6.4e6),
    "live alone": Limits(5e7, 4e6, 0),
    "all": Limits(5e7, 1e9, 1e9),
}
FEW = [
    ("llama", "non_reentrant", 1, "one ahead"),
    ("gpt2", "non_reentrant", 2, "nothing"),
    ("t5", "non_reentrant", 1, "nothing"),
    ("t5", "reentrant", 2, "one ahead"),
    ("t5 without dropout", "non_reentrant", 1, "a few ahead"),
    ("opt", "non_reentrant", 1, "little live"),
]
MORE = covering(list(product(MODELS, KINDS, (1, 2), LIMITS)), 2, FEW)


def check(folder, name, kind, steps, limits):
    dropout = False if "without" in name else None
    _, done, played = compared(folder, MODELS[name], kind, steps, limits, dropout=dropout)
    assert done.last["gather_calls"] == steps * played.calls


@pytest.mark.parametrize(("name", "kind", "steps", "limits"), FEW)
def test_fetches_what_was_played(tmp_path, name, kind, steps, limits):
    check(tmp_path, name, kind, steps, LIMITS[limits])


@pytest.mark.engine_all
@pytest.mark.parametrize(("name", "kind", "steps", "limits"), MORE)
def test_fetches_what_was_played_of_more(tmp_path, name, kind, steps, limits):
    check(tmp_path, name, kind, steps, LIMITS[limits])
