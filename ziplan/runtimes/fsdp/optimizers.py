"""The optimizers that FSDP2 can be planned with: PyTorch's own, which step shards where they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ziplan.workload.optimizers import OptimizerName
from ziplan.workload.training import Optimizer


class Supported(NamedTuple):
    """One optimizer: bytes of its state per parameter, what makes it, whether its update is fused.

    Without a fused kernel weight decay makes a gradient of its own, of every shard at once on the GPU.
    """

    state: float
    made: str
    fused: bool


OPTIMIZERS: Mapping[OptimizerName, Supported] = {
    "adamw": Supported(
        8.0, "torch.optim.AdamW(@params@, @lr@, @betas@, @eps@, @weight_decay@, @fused@)", True
    ),
    # torch 2.13 cannot run its fused kernel on sharded tensors: "does not have a sharding strategy".
    "sgd": Supported(0.0, "torch.optim.SGD(@params@, @lr@, @weight_decay@)", False),
}
"""By name (torch 2.13 optim), as they step sharded tensors on the GPU and on the host."""

REFUSED: Mapping[OptimizerName, str] = {
    "lion": "PyTorch has no Lion",
    "adamw_8bit": "8-bit moments of sharded tensors are not known to work",
    "adafactor": "PyTorch's Adafactor of sharded tensors is not known to factor what it should",
}
"""Why the others are not planned."""


def made(settings: Optimizer, params: str) -> str:
    """The expression that makes the optimizer of `params`."""
    values = {
        "params": params,
        "lr": f"lr={settings.learning_rate}",
        "betas": f"betas=({settings.beta1}, {settings.beta2})",
        "eps": f"eps={settings.epsilon}",
        "weight_decay": f"weight_decay={settings.weight_decay}",
        "fused": f"fused={settings.fused is not False}",
    }
    text = OPTIMIZERS[settings.kind].made
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text
