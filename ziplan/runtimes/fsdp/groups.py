"""What `fully_shard` gathers and reduces together, and how it pads what it shards.

Every tensor is cut along its first dimension into `ceil(rows / dp)` rows a rank, and padded to
them (`_fsdp_param.py:_init_sharded_param`). A linear's rows are its outputs, an embedding's its
entries, those of stacked experts the experts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ziplan.laws.law import ceil, maximum
from ziplan.runtimes.runtime import total
from ziplan.workload.model import Model, Operator


@dataclass(frozen=True)
class Groups:
    """Elements of the groups of a model, padding included (arrays where the ranks are)."""

    root: float
    """The root's group: what belongs to no layer."""
    root_head: float
    """The part of it that only forward's end uses, whose gradients come first in backward."""
    layer: float
    """The largest layer."""
    layers: float
    """All layers together."""
    largest_tensor: float

    @property
    def all(self) -> float:
        """The whole model."""
        return self.root + self.layers


def groups(model: Model, dp_degree: float, trained: bool = False) -> Groups:
    """The groups that one `fully_shard` a layer and one of the root make, or what of them is trained.

    Frozen tensors are sharded and gathered with the others of their group, and never reduced.
    """
    operators = [operator for operator in model.operators if operator.trainable or not trained]
    outside = [operator for operator in operators if not operator.block]
    first_block = next(place for place, operator in enumerate(model.operators) if operator.block)
    head = [operator for operator in model.operators[first_block:] if operator in outside]
    layers = [layer for section in model.sections if section.block for layer in section.layers]
    return Groups(
        root=_counted(outside, dp_degree),
        root_head=_counted(head, dp_degree),
        layer=maximum(
            0.0, *(total(_padded(o, dp_degree) for o in layer if o in operators) for layer in layers)
        ),
        layers=_counted([operator for operator in operators if operator.block], dp_degree),
        largest_tensor=float(max(elements for elements, _, _ in model.tensors)),
    )


def _counted(operators: Iterable[Operator], dp_degree: float) -> float:
    return total(operator.count * _padded(operator, dp_degree) for operator in operators)


def _padded(operator: Operator, dp_degree: float) -> float:
    """Elements of one copy's tensors, each padded to a multiple of the ranks."""
    return total(
        ceil(rows / dp_degree) * dp_degree * (elements / rows) for rows, elements in _tensors(operator)
    )


class Padding(NamedTuple):
    """What is added to one tensor, in all copies together."""

    name: str
    rows: int
    elements: float


def padding(model: Model, dp_degree: float) -> Iterator[Padding]:
    """The padding of every tensor of a model."""
    for operator in model.operators:
        for rows, elements in _tensors(operator):
            added = ceil(rows / dp_degree) * dp_degree - rows
            yield Padding(operator.name, rows, operator.count * added * (elements / rows))


def _tensors(operator: Operator) -> Iterator[tuple[int, int]]:
    """(rows, elements) of each tensor that one copy owns."""
    if operator.kind == "norm":
        yield from ((elements, elements) for elements in operator.tensors)
        return
    for inputs, outputs in operator.weights or ((operator.in_features, operator.out_features),):
        rows = operator.experts if operator.kind == "experts" else outputs
        if not operator.shared_with:
            yield rows, operator.experts * inputs * outputs
        if operator.bias:
            yield (rows if operator.kind == "experts" else outputs), operator.experts * outputs
