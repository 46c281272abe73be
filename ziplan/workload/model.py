"""A model as the planner sees it: its operators, and what a token costs in each layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OperatorKind = Literal["linear", "embedding", "norm"]


@dataclass(frozen=True)
class Operator:
    """One module that owns parameters; `count` equal copies of it exist in the model.

    A linear has a weight of `out_features x in_features` and, with `bias`, `out_features`
    more; an embedding a table of `out_features x in_features` (rows x width); a norm
    `out_features` elements and, with `bias`, as many again. `block` is true for what repeats
    in every layer. `shared_with` names the operator whose weight this one uses (tied
    embeddings): it then computes but owns nothing but its bias.
    """

    name: str
    kind: OperatorKind
    in_features: int
    out_features: int
    count: int = 1
    bias: bool = False
    block: bool = True
    shared_with: str | None = None

    @property
    def tensors(self) -> tuple[int, ...]:
        """Elements of each parameter tensor that one copy owns."""
        weight = self.out_features if self.kind == "norm" else self.in_features * self.out_features
        own = () if self.shared_with else (weight,)
        return own + ((self.out_features,) if self.bias else ())

    @property
    def params(self) -> int:
        """Parameters that one copy owns."""
        return sum(self.tensors)

    @property
    def matmul_params(self) -> int:
        """Multiply-adds of one copy for one token: its weight if it is a matrix product, else 0."""
        return self.in_features * self.out_features if self.kind == "linear" else 0


@dataclass(frozen=True)
class ActivationBytes:
    """Bytes that one layer keeps for backward, per token, as a range [low, high].

    The low end has fused kernels and no dropout, the high end eager modules that keep fp32
    copies and dropout masks. `selective` recomputes the attention core alone.
    `attention_scores` comes on top of `none` only: it is per token *and* per token of the
    sequence it attends to, and is 0 with flash attention.
    """

    none_low: float
    none_high: float
    selective_low: float
    selective_high: float
    attention_scores_low: float = 0.0
    attention_scores_high: float = 0.0


@dataclass(frozen=True)
class Model:
    """A model's shape. Tuples of operators are in the order in which forward visits them."""

    name: str
    family: str
    layer_count: int
    d_model: int
    vocab_size: int
    attention_heads: int
    key_value_heads: int
    head_dim: int
    operators: tuple[Operator, ...]
    max_sequence_length: int | None = None
    source: str = ""
    activation_function: str = ""

    def operator(self, name: str) -> Operator:
        """The operator called `name`."""
        return next(operator for operator in self.operators if operator.name == name)

    @property
    def params(self) -> int:
        """All parameters, each counted once."""
        return sum(operator.params * operator.count for operator in self.operators)

    @property
    def block_params(self) -> int:
        """Parameters of all repeated layers."""
        return sum(operator.params * operator.count for operator in self.operators if operator.block)

    @property
    def layer_params(self) -> int:
        """Parameters of one layer (the mean, should layers differ)."""
        return self.block_params // self.layer_count

    @property
    def matmul_params(self) -> int:
        """Parameters that multiply every token: all linears, the tied head included."""
        return sum(operator.matmul_params * operator.count for operator in self.operators)

    @property
    def widest(self) -> Operator:
        """The operator with the largest weight among the linears."""
        return max((o for o in self.operators if o.kind == "linear"), key=lambda o: o.matmul_params)

    @property
    def tensors(self) -> tuple[tuple[int, int, bool], ...]:
        """(elements, how many such tensors, in a layer) for every distinct tensor size."""
        sizes: dict[tuple[int, bool], int] = {}
        for operator in self.operators:
            for elements in operator.tensors:
                key = (elements, operator.block)
                sizes[key] = sizes.get(key, 0) + operator.count
        return tuple((elements, count, block) for (elements, block), count in sizes.items())
