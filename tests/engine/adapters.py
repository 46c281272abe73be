"""Frozen parts and low-rank adapters of a model that is trained in a test."""

from __future__ import annotations

import torch


class LoraLinear(torch.nn.Module):
    """A frozen linear and its adapter, as PEFT computes them."""

    def __init__(self, base_layer, rank):
        super().__init__()
        self.base_layer = base_layer
        dtype = base_layer.weight.dtype
        self.lora_A = torch.nn.Linear(base_layer.in_features, rank, bias=False, dtype=dtype)
        self.lora_B = torch.nn.Linear(rank, base_layer.out_features, bias=False, dtype=dtype)

    def forward(self, values):
        return self.base_layer(values) + self.lora_B(self.lora_A(values))


def prepare_training(model, trainable):
    """Freeze parts of the model, or all of it and give it adapters."""
    if trainable == "all":
        return
    parts = trainable.get("frozen", [""])
    for name, parameter in model.named_parameters():
        if any(f".{part}." in f".{name}" or not part for part in parts):
            parameter.requires_grad_(False)
    for name, module in list(model.named_modules()):
        if name.rpartition(".")[2] in trainable.get("targets", ()):
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], LoraLinear(module, trainable["lora_rank"]))
