"""How far gradients flow in a model of which parts are frozen: what backward reaches and computes.

Forward is taken as one stream: once something trained has been visited, all that comes after has a
gradient to pass on. Modules that read the same tensor (queries, keys and values; gate and up) are
told apart by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ziplan.workload.model import Layer, Model

LORA_A, LORA_B = ".lora_A", ".lora_B"
"""What the names of an adapter's two linears end in, as PEFT calls them."""

READ_TOGETHER = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("q", "k", "v"),
    ("q_a_proj", "kv_a_proj_with_mqa"),
    ("gate_proj", "up_proj"),
    ("wi_0", "wi_1"),
)
"""Names of modules that read one tensor."""


class Reach(NamedTuple):
    """Whether backward computes the gradient of a module's output, and that of its input."""

    output: bool
    input: bool


class Backward(NamedTuple):
    """What one backward computes, in parameters that multiply a token."""

    input_gradients: float
    weight_gradients: float
    layers: float
    """Share of the layers that backward reaches (0..1); the others keep nothing and are not recomputed."""


def reaches(layers: Sequence[Layer], from_embedding: bool = False) -> list[list[Reach]]:
    """For each module of these layers, visited in this order from the start of forward.

    `from_embedding`: the first embedding's output has a gradient even where it is frozen.
    """
    stream, found = False, []
    for layer in layers:
        shared: dict[str, bool] = {}
        row = []
        for operator in layer:
            if operator.kind == "embedding":
                given = False
            elif operator.name.endswith(LORA_B):
                given = True
            else:
                given = shared.setdefault(tensor_read(operator.name), stream)
            asked = from_embedding and operator.kind == "embedding"
            from_embedding = from_embedding and not asked
            row.append(Reach(given or operator.trainable or asked, given))
            stream = stream or row[-1].output
        found.append(row)
    return found


@lru_cache(maxsize=1024)
def tensor_read(name: str) -> str:
    """A name for the tensor that a module reads: that of the first module that reads it."""
    name = name.removesuffix(LORA_A)
    prefix, dot, last = name.rpartition(".")
    first = next((names[0] for names in READ_TOGETHER if last in names), last)
    return prefix + dot + first


@lru_cache(maxsize=64)
def backward(model: Model, from_embedding: bool = False) -> Backward:
    """What one backward of a model computes (`from_embedding` as in `reaches`)."""
    # Only the first repetition of a section can differ from the others.
    parts = [
        (section.block, layer, times)
        for section in model.sections
        for times in (1, section.repeat - 1)
        for layer in section.layers
        if times
    ]
    flows = reaches([layer for _, layer, _ in parts], from_embedding)
    inputs = weights = reached = layers = 0.0
    for (block, layer, times), row in zip(parts, flows, strict=True):
        for operator, reach in zip(layer, row, strict=True):
            inputs += times * operator.matmul_params * reach.input
            weights += times * operator.matmul_params * operator.trainable
        layers += times * block
        reached += times * (block and row[-1].output)
    return Backward(inputs, weights, reached / max(1.0, layers))
