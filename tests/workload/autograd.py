"""What autograd keeps for the layers of a Hugging Face model, measured with hooks on saved tensors."""

from __future__ import annotations

import re

import pytest
from workload.hugging_face import HEADS, TWO_STACKS, hf_config, hf_kind

LAYER_NAME = re.compile(r"\.(layers?|h|blocks?)\.\d+$")
BATCH, SEQUENCE = 2, 96

NO_ATTENTION_DROPOUT = {
    *("cohere", "cohere2", "deepseek_v2", "deepseek_v3", "gemma", "gemma2", "gemma3_text", "gpt_oss"),
    *("granite", "granitemoe", "llama", "llama4_text", "mistral", "mixtral", "olmo", "olmo2", "olmoe", "phi"),
    *("phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3"),
    *("ernie4_5", "glm", "glm4", "glm4_moe", "minimax_m2", "olmo3", "seed_oss"),
}
"""Families trained without dropout inside attention, though their configs have a place for it."""


def measured_bytes_per_token(
    config, attention, precision, dropout, monkeypatch, prepared=lambda model: model
):
    """Bytes kept for a layer, per token: the mean over layers, what layers share left out."""
    torch = pytest.importorskip("torch")
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    settings = hf_config(config)
    settings._attn_implementation = {"flash": "sdpa", "eager": "eager"}[attention]
    settings._experts_implementation = "eager"
    set_dropout(settings, dropout, attention)
    _mask_like_a_gpu(torch, monkeypatch)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = prepared(hf_kind(config).from_config(settings).to(dtype).train())
    own = (*model.parameters(), *model.buffers())
    parameters = {tensor.untyped_storage().data_ptr() for tensor in own}
    tokens = BATCH * tokens_of(config)
    watched = [_Watch(torch, module, parameters, tokens) for module in _layers(model)]
    model(**_inputs(torch, config, dtype))
    return sum(watch.bytes for watch in watched) / len(watched) / tokens


def kept_when_compiled(config):
    """Bytes kept for a layer, per token, where torch.compile divides each into forward and backward."""
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    two, six = (_kept_of_compiled(torch, {**config, "num_hidden_layers": count}) for count in (2, 6))
    return (six - two) / 4 / BATCH / SEQUENCE


def _kept_of_compiled(torch, config):
    settings = hf_config(config)
    model = hf_kind(config).from_config(settings, attn_implementation="sdpa", dtype=torch.bfloat16).train()
    for layer in _layers(model):
        layer.compile(backend="aot_eager_decomp_partition")
    kept, parameters = {}, {each.untyped_storage().data_ptr() for each in model.parameters()}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.base_model(input_ids=torch.zeros((BATCH, SEQUENCE), dtype=torch.long), use_cache=False)
    return sum(size for size, _ in kept.values())


def _layers(model):
    layers = [module for name, module in model.named_modules() if LAYER_NAME.search(name)]
    inner = {id(part) for layer in layers for part in layer.modules() if part is not layer}
    return [layer for layer in layers if id(layer) not in inner]


class _Watch:
    """Adds up what is kept while a layer computes."""

    def __init__(self, torch, layer, parameters, tokens):
        self.torch, self.parameters, self.tokens = torch, parameters, tokens
        self.kept, self.shared = {}, set()
        layer.register_forward_pre_hook(self._enter, with_kwargs=True)
        layer.register_forward_hook(self._leave)

    def _enter(self, layer, arguments, named):
        first = arguments[0] if arguments else named["hidden_states"]
        others = [*arguments[1:], *(value for key, value in named.items() if key != "hidden_states")]
        self.shared = {
            tensor.untyped_storage().data_ptr() for other in others for tensor in self._tensors(other)
        } - {first.untyped_storage().data_ptr()}
        self.hooks = self.torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)
        self.hooks.__enter__()

    def _leave(self, *_):
        self.hooks.__exit__(None, None, None)

    def _tensors(self, value):
        if isinstance(value, self.torch.Tensor):
            return [value]
        return (
            [tensor for part in value for tensor in self._tensors(part)] if isinstance(value, tuple) else []
        )

    def _pack(self, tensor):
        storage = tensor.untyped_storage()
        # What has fewer elements than there are tokens is kept once for all of them.
        if storage.data_ptr() not in self.parameters | self.shared and tensor.numel() >= self.tokens:
            self.kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    @property
    def bytes(self):
        """Bytes kept, each storage once."""
        return sum(size for size, _ in self.kept.values())


def set_dropout(settings, dropout, attention):
    for key, value in vars(settings).items():
        if isinstance(value, (int, float)) and re.search(r"(pdrop|dropout|dropout_prob|dropout_rate)$", key):
            # The CPU has no flash kernel with dropout; a GPU's keeps a seed only.
            inside = "att" in key and (attention == "flash" or settings.model_type in NO_ATTENTION_DROPOUT)
            setattr(settings, key, 0.1 if dropout and not inside else 0.0)


def _mask_like_a_gpu(torch, monkeypatch):
    """Dropout as a GPU does it, with a mask of one byte an element (the CPU's has the values' type)."""

    def dropout(values, p=0.5, training=True, inplace=False):
        return torch.native_dropout(values, p, True)[0] if training and p else values

    monkeypatch.setattr(torch.nn.functional, "dropout", dropout)


def tokens_of(config):
    """Tokens of one sequence."""
    side = config["image_size"] // config["patch_size"] if config["model_type"] == "vit" else 0
    return side**2 + 1 if side else SEQUENCE


def _inputs(torch, config, dtype):
    if config["model_type"] == "vit":
        return {
            "pixel_values": torch.randn(BATCH, 3, config["image_size"], config["image_size"], dtype=dtype)
        }
    token_ids = torch.randint(3, config["vocab_size"], (BATCH, SEQUENCE))
    inputs = {"input_ids": token_ids}
    if config["model_type"] in TWO_STACKS:
        inputs["decoder_input_ids"] = token_ids
    elif config["model_type"] not in HEADS:
        inputs["use_cache"] = False
    return inputs
