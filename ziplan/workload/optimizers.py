"""What optimizers keep for each parameter that they train, master weights aside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from ziplan.workload.model import Model, Operator

OptimizerName = Literal["adamw", "adamw_8bit", "adafactor", "lion", "sgd"]

FLOAT = 4
"""Bytes of a state kept in fp32."""

QUANTIZED_BLOCK, QUANTIZED_FROM = 256, 4096
"""Elements that share one fp32 scale in an 8-bit state; elements from which a tensor is quantized."""

QUANTIZED_BYTES = 2 * (1 + FLOAT / QUANTIZED_BLOCK)
"""Bytes of two 8-bit moments of one element, with its share of their scales."""


class OptimizerState(NamedTuple):
    """Bytes of state for one copy of an operator, and where that is written."""

    of_operator: Callable[[Operator], float]
    source: str


def state_bytes(model: Model, kind: OptimizerName) -> float:
    """Bytes of state for all parameters of a model that are trained, each tensor on its own."""
    keeps = OPTIMIZER_STATES[kind].of_operator
    return sum(keeps(operator) * operator.count for operator in model.operators if operator.trainable)


def _each(bytes_per_param: float) -> Callable[[Operator], float]:
    return lambda operator: bytes_per_param * operator.params


def _quantized(operator: Operator) -> float:
    """Two moments of a byte and their blocks' scales; small tensors stay in fp32."""
    return sum(n * (QUANTIZED_BYTES if n >= QUANTIZED_FROM else 2 * FLOAT) for n in operator.tensors)


def _factored(operator: Operator) -> float:
    """One second moment: a row and a column for each matrix, an element each for what is no matrix."""
    if operator.kind in ("norm", "parameter"):
        return FLOAT * operator.params
    matrices = operator.weights or ((operator.in_features, operator.out_features),)
    owned = () if operator.shared_with else matrices
    vectors = operator.params - operator.experts * sum(inputs * outputs for inputs, outputs in owned)
    # The biases of experts are one matrix: a row for each expert.
    if operator.kind == "experts" and operator.bias:
        vectors = sum(operator.experts + outputs for _, outputs in owned)
    return FLOAT * (operator.experts * sum(sum(matrix) for matrix in owned) + vectors)


OPTIMIZER_STATES: Mapping[OptimizerName, OptimizerState] = {
    "adamw": OptimizerState(_each(2 * FLOAT), "torch.optim.AdamW: two moments in fp32"),
    "adamw_8bit": OptimizerState(_quantized, "bitsandbytes AdamW8bit: min_8bit_size 4096, blocks of 256"),
    "adafactor": OptimizerState(_factored, "arXiv:1804.04235, section 3, without first moment"),
    "lion": OptimizerState(_each(FLOAT), "arXiv:2302.06675, algorithm 2: one momentum, here in fp32"),
    "sgd": OptimizerState(_each(0), "torch.optim.SGD without momentum"),
}
"""State of every optimizer that has a name here."""
