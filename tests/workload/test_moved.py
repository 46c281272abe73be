"""Bytes that layers move and kernels that they are, against what PyTorch dispatches for Hugging Face's."""

from __future__ import annotations

import math
from dataclasses import astuple
from functools import lru_cache

import pytest
from workload.autograd import BATCH, SEQUENCE, set_dropout
from workload.hugging_face import TWO_STACKS, hf_config, hf_kind
from workload.models import built, shipped
from workload.test_activations import CONFIGS

from ziplan.workload.adapted import adapted
from ziplan.workload.kept import kept_bytes
from ziplan.workload.passes import Passes
from ziplan.workload.training import Adapters

pytestmark = pytest.mark.filterwarnings("ignore")

TOKENS = BATCH * SEQUENCE
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")

NO_KERNEL = {"detach", "_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty", "alias"}
NO_KERNEL |= {"new_empty_strided", "_reshape_alias", "lift_fresh", "is_same_size", "_local_scalar_dense"}
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "_grouped_mm"}

INTO_ZEROS = {"slice_backward", "select_backward"}
"""Operators that are two kernels: zeros, and a copy into them, which reads what it copies once more. So is
LayerNorm's backward: the gradients of weight and bias are a second kernel, over both its inputs."""

SCORES = (SEQUENCE, SEQUENCE)


def counter(torch):
    """A mode that counts what is dispatched while it is on."""
    mode = pytest.importorskip("torch.utils._python_dispatch").TorchDispatchMode

    class Counted(mode):
        moved = kernels = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            name = function.name().split("::")[1].split(".")[0]
            if not function.is_view and name not in NO_KERNEL:
                moved, kernels = cost(name, tensors(torch, args, kwargs), tensors(torch, out))
                self.moved, self.kernels = self.moved + moved, self.kernels + kernels
            return out

    return Counted()


def cost(name, taken, made):
    """(bytes, kernels) of one operator; products, fused attention and what has scores are kernels alone."""
    if "attention" in name:
        return 0, 3 if "backward" in name else 1
    if name in PRODUCTS or any(each.dim() > 2 and each.shape[-2:] == SCORES for each in (*taken, *made)):
        return 0, 1
    once = sum(size_of(each) for each in (*taken, *made))
    if name in INTO_ZEROS:
        return once + size_of(taken[0]), 2
    if name == "native_layer_norm_backward":
        return once + size_of(taken[0]) + size_of(taken[1]), 2
    return once, 1


def tensors(torch, *values):
    leaves = torch.utils._pytree.tree_leaves(values)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def size_of(tensor):
    """Bytes of what it holds: what is repeated by a stride of 0 is read once."""
    sides = [n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or n == 1]
    return math.prod(sides) * tensor.element_size()


def dispatched(config, attention="flash", dropout=False):
    """What all operators of one micro-step move and how many kernels they are, as a GPU runs them."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = made_model(torch, config, attention, dropout)
    inputs = {"input_ids": torch.randint(3, config["vocab_size"], (BATCH, SEQUENCE)), "use_cache": False}
    if config["model_type"] in TWO_STACKS:
        inputs["decoder_input_ids"] = inputs["input_ids"]
    with counter(torch) as forward:
        out = model(**inputs).logits
    with counter(torch) as backward:
        out.backward(torch.ones_like(out))
    return Passes(forward.moved / TOKENS, backward.moved / TOKENS, forward.kernels, backward.kernels)


def made_model(torch, config, attention, dropout):
    settings = hf_config(config)
    settings._attn_implementation = {"flash": "sdpa", "eager": "eager"}[attention]
    if any(key in config for key in ("num_local_experts", "num_experts", "n_routed_experts")):
        settings._experts_implementation = "grouped_mm"
    set_dropout(settings, dropout, attention)
    return hf_kind(config).from_config(settings).to(torch.bfloat16).train()


@lru_cache
def of_a_layer(name, attention="flash", dropout=False, width=1):
    """What one more layer comes to."""
    config = CONFIGS[name] if width == 1 else widened(CONFIGS[name])
    fewer, more = (
        dispatched({**config, **{key: count for key in LAYERS if key in config}}, attention, dropout)
        for count in (1, 3)
    )
    return (more + -1 * fewer) * 0.5


def widened(config):
    """The same with layers of twice the width."""
    twice = ("hidden_size", "n_embd", "d_model", "intermediate_size")
    return {**config, **{key: 2 * config[key] for key in twice if key in config}}


def counted(config, attention="flash", dropout=False):
    return kept_bytes(built(config), attention, "bf16", dropout).written


EXACT = ("llama", "llama-mha", "mistral", "qwen2", "qwen3", "smollm3", "granite", "gpt2", "gpt2-gelu")
EXACT += ("gemma", "gemma3_text", "starcoder2", "gpt_bigcode", "cohere", "cohere2")
"""Whose bytes are those dispatched, but for statistics, weights and cosines, whatever their width."""

NEAR = (
    "phi",
    "gpt_neox",
    "gptj",
    "stablelm",
    "opt",
    "falcon",
    "glm4",
    "phi3",
    "mixtral",
    "olmoe",
    "qwen3_moe",
)
NEAR += ("olmo2", "granitemoe", "minimax_m2")


QUICK = ("llama", "gpt2", "gemma", "starcoder2")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in EXACT]
)
def test_a_layer_moves_what_pytorch_dispatches(name):
    found, ours = of_a_layer(name), counted(CONFIGS[name])
    assert (ours.forward, ours.backward) == pytest.approx((found.forward, found.backward), rel=0.02)
    assert ours.forward_kernels == pytest.approx(found.forward_kernels, rel=0.16)
    assert ours.backward_kernels == pytest.approx(found.backward_kernels, rel=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("name", NEAR)
def test_others_are_counted_to_an_eighth(name):
    found, ours = of_a_layer(name), counted(CONFIGS[name])
    assert astuple(ours) == pytest.approx(astuple(found), rel=0.125)


def of_a_later_layer(name):
    """What is counted for one more layer, where the first ones are not like the others."""
    one, many = (counted({**CONFIGS[name], "num_hidden_layers": layers}) * layers for layers in (1, 41))
    return (many + -1 * one) * (1 / 40)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v3", "glm4_moe", "glm4_moe-normed"])
def test_experts_after_dense_layers_are_counted_to_an_eighth(name):
    """Their router takes fp32 and chooses among groups, beside experts that every token goes to."""
    assert astuple(of_a_later_layer(name)) == pytest.approx(astuple(of_a_layer(name)), rel=0.125)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_wider_layer_moves_more_with_as_many_kernels(name):
    found, ours = of_a_layer(name, width=2), counted(widened(CONFIGS[name]))
    assert (ours.forward, ours.backward) == pytest.approx((found.forward, found.backward), rel=0.02)
    assert found.forward_kernels == of_a_layer(name).forward_kernels


@pytest.mark.parametrize("name", ["llama-mha", "gpt2-gelu", "starcoder2"])
def test_eager_attention_copies_what_its_products_take(name):
    found, ours = of_a_layer(name, "eager"), counted(CONFIGS[name], "eager")
    assert (ours.forward, ours.backward) == pytest.approx((found.forward, found.backward), rel=0.05)
    assert ours.forward_kernels == pytest.approx(found.forward_kernels, rel=0.06)


def test_dropout_is_a_kernel_and_a_mask_each():
    config = CONFIGS["gpt2-gelu"]
    on, off = (counted(config, dropout=each) for each in (True, False))
    dropped = 2 * (2 + 2 + 1) * 128
    assert astuple(on + -1 * off) == (dropped, dropped, 2, 2)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt2-xl", "mixtral-8x7b"])
def test_fused_kernels_are_fewer_and_move_less(name):
    kept = kept_bytes(shipped(name), "flash", "bf16")
    for fused, written in zip(astuple(kept.fused), astuple(kept.written), strict=True):
        assert 0 < fused < written


def test_an_adapter_is_two_more_products_scaled_and_added():
    """Of rank 8 beside one linear: nothing but the adapter's own weights gets a gradient."""
    base = built(CONFIGS["llama"])
    whole = kept_bytes(base, "flash", "bf16").written
    ours = kept_bytes(adapted(base, Adapters(lora_rank=8, targets=("q_proj",))), "flash", "bf16").written
    assert ours.forward_kernels == whole.forward_kernels + 4
    assert ours.forward == whole.forward + 5 * 2 * 128
    assert ours.backward_kernels == whole.backward_kernels - 7 + 4 + 1 + 1
