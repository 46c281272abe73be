"""What a layer keeps for backward and moves, of models with frozen parts or adapters too."""

from __future__ import annotations

from collections.abc import Callable

from ziplan.units import Precision
from ziplan.workload.families import activation_bytes, moved
from ziplan.workload.families.family import ELEMENT_BYTES, Attention
from ziplan.workload.gradients import LORA_A, LORA_B, tensor_read
from ziplan.workload.model import ActivationBytes, Kernels, Layer, Model, Operator
from ziplan.workload.passes import Passes

ATTENTION_OUTPUTS = ("o_proj", "out_proj", "dense", "c_proj", "o")
"""What the linear after attention is called."""


def kept_bytes(
    model: Model,
    attention: Attention,
    precision: Precision,
    dropout: bool | None = None,
    kernels: Kernels | None = None,
) -> ActivationBytes:
    """What one layer of `model` keeps for backward, per token; `dropout` and `kernels` where they are known.

    An adapter keeps the output of its first linear and, with dropout on its input, the dropped
    input and a mask of one byte (high). The input of a frozen linear serves no weight gradient:
    what no other module keeps of it is `frozen_inputs`.
    """
    whole = activation_bytes(model, attention, precision).with_dropout(dropout)
    # What eager modules keep of frozen parts is less: the low end stays that of fused kernels.
    known = None if kernels == "eager" and model.trainable_params < model.params else kernels
    whole = whole.with_kernels(known)
    element = ELEMENT_BYTES[precision]
    matrices = _mean_passes(model, lambda layer: _of_matrices(layer, element))
    whole = whole._replace(fused=whole.fused + matrices, written=whole.written + matrices)
    if model.trainable_params == model.params:
        return whole
    middle = _mean(model, lambda layer: sum(o.in_features for o in layer if o.name.endswith(LORA_B)))
    dropped = _mean(model, lambda layer: sum(o.in_features for o in layer if o.name.endswith(LORA_A)))
    low, high = element * middle, element * middle + (element + 1) * dropped
    flash = attention == "flash"
    return ActivationBytes(
        none_low=whole.none_low + low,
        none_high=whole.none_high + high,
        selective_low=whole.selective_low + low,
        selective_high=whole.selective_high + high,
        attention_scores_low=whole.attention_scores_low,
        attention_scores_high=whole.attention_scores_high,
        # A flash kernel keeps its output for its own backward.
        frozen_inputs=element * _mean(model, lambda layer: _unread(layer, without_attention=flash)),
        selective_frozen_inputs=element * _mean(model, _unread),
        fused=whole.fused,
        written=whole.written,
    )


def _mean(model: Model, width: Callable[[Layer], float]) -> float:
    """The mean over layers of a width that each has."""
    blocks = [section for section in model.sections if section.block]
    total = sum(section.repeat * width(layer) for section in blocks for layer in section.layers)
    return total / sum(section.repeat * len(section.layers) for section in blocks)


def _mean_passes(model: Model, passes: Callable[[Layer], Passes]) -> Passes:
    """The mean over layers of what passes in each."""
    found = [
        (section.repeat, passes(layer))
        for section in model.sections
        if section.block
        for layer in section.layers
    ]
    layers = sum(repeat for repeat, _ in found)
    return sum((each * (repeat / layers) for repeat, each in found), Passes())


def _of_matrices(layer: Layer, element: int) -> Passes:
    """Kernels of a layer's products, sums for biases and for tensors that several modules read."""
    linears = [operator for operator in layer if operator.kind == "linear"]
    passes, read = Passes(), set[str]()
    for operator in linears:
        passes += moved.linear(
            element, operator.out_features, bias=operator.bias, trainable=operator.trainable
        )
        tensor = operator.name if operator.name.endswith(LORA_B) else tensor_read(operator.name)
        if tensor in read:
            passes += moved.read_again(element, operator.in_features)
        read.add(tensor)
        if operator.name.endswith(LORA_B):
            passes += moved.adapter(element, operator.out_features)
    return passes


def _unread(layer: Layer, without_attention: bool = False) -> float:
    """Width of the tensors that only frozen linears read, each once."""
    linears = [operator for operator in layer if operator.kind == "linear"]
    trained = {tensor_read(o.name) for o in layer if o.trainable}
    widths = {
        tensor_read(o.name): o.in_features * o.active_share
        for o in linears
        if not (without_attention and _after_attention(o))
    }
    return sum(width for name, width in widths.items() if name not in trained)


def _after_attention(operator: Operator) -> bool:
    prefix, _, last = operator.name.rpartition(".")
    return "att" in prefix.lower() and last in ATTENTION_OUTPUTS
