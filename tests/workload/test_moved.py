"""What modules as written move, against what PyTorch dispatches for layers of Transformers' models."""

from __future__ import annotations

import math

import pytest
from workload.hugging_face import hf_config, hf_kind

from ziplan.workload.config import model_of
from ziplan.workload.kept import kept_bytes

WIDTH, TOKENS = 128, 96
DECODER = {
    "hidden_size": WIDTH,
    "intermediate_size": 344,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 50,
    "max_position_embeddings": TOKENS,
}
SHAPES = {
    "llama": DECODER,
    "mistral": {**DECODER, "num_key_value_heads": 1, "sliding_window": None},
    "qwen2": DECODER,
    "gemma": {**DECODER, "head_dim": 64, "hidden_activation": "gelu_pytorch_tanh"},
    "phi": {**DECODER, "hidden_act": "gelu_new"},
    "gpt2": {"n_embd": WIDTH, "n_head": 2, "n_positions": TOKENS, "vocab_size": 50},
}

IN_PLACE = {"view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze"}
IN_PLACE |= {"squeeze", "split", "split_with_sizes", "detach", "alias", "as_strided", "_reshape_alias"}
IN_PLACE |= {"unbind", "empty", "empty_like", "new_empty", "new_empty_strided", "lift_fresh", "is_same_size"}
"""Operations that move nothing."""

PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}


def dispatched(config, layers):
    """(bytes in forward, in backward) of all operations but products and attention, per token."""
    torch = pytest.importorskip("torch")
    mode = pytest.importorskip("torch.utils._python_dispatch").TorchDispatchMode
    leaves = torch.utils._pytree.tree_leaves

    class Counted(mode):
        moved = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            name = function.name().split("::")[1].split(".")[0]
            if name not in IN_PLACE | PRODUCTS and "attention" not in name:
                tensors = [leaf for leaf in leaves((args, kwargs, out)) if isinstance(leaf, torch.Tensor)]
                self.moved += sum(size_of(tensor) for tensor in tensors)
            return out

    def size_of(tensor):
        """Bytes of what it holds: what is repeated by a stride of 0 is read once."""
        sides = [n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride]
        return math.prod(sides) * tensor.element_size()

    settings = hf_config({**config, "num_hidden_layers": layers, "n_layer": layers})
    settings._attn_implementation, settings.use_cache = "sdpa", False
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout"):
        if hasattr(settings, name):
            setattr(settings, name, 0.0)
    torch.set_num_threads(1)
    model = hf_kind(config).from_config(settings).to(torch.bfloat16).train()
    with Counted() as forward:
        out = model.base_model(input_ids=torch.zeros(1, TOKENS, dtype=torch.long)).last_hidden_state
    with Counted() as backward:
        out.backward(torch.ones_like(out))
    return forward.moved / TOKENS, backward.moved / TOKENS


@pytest.mark.parametrize("family", SHAPES)
def test_a_layer_moves_what_pytorch_dispatches(family):
    config = {"model_type": family, **SHAPES[family]}
    one, three = dispatched(config, 1), dispatched(config, 3)
    named = {**config, "num_hidden_layers": 2, "n_layer": 2}
    model = model_of(family, named, lambda *problem: pytest.fail(str(problem)))
    kept = kept_bytes(model, "flash", "bf16", dropout=False)
    for counted, first, third in zip((kept.moved_forward, kept.moved_backward), one, three, strict=True):
        assert counted == pytest.approx((third - first) / 2, rel=0.2)


@pytest.mark.parametrize("family", SHAPES)
def test_dropout_moves_its_mask_besides(family):
    config = {"model_type": family, **SHAPES[family], "num_hidden_layers": 2, "n_layer": 2}
    model = model_of(family, config, lambda *problem: pytest.fail(str(problem)))
    without, on = (kept_bytes(model, "flash", "bf16", dropout=each) for each in (False, True))
    dropped = 5 * 2 * WIDTH if on.masks else 0
    assert on.moved_forward - without.moved_forward == dropped
    assert on.moved_backward - without.moved_backward == dropped
