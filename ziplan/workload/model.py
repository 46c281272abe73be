"""A model as the planner sees it: its operators, and what a token costs in each layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal, NamedTuple

from ziplan.workload.passes import Passes

OperatorKind = Literal["linear", "embedding", "norm", "experts", "parameter"]

Kernels = Literal["eager", "fused", "compiled"]
"""Eager: modules as transformers writes them, a kernel for each operator. Fused: one kernel for a norm,
for positions, for an activation function and its product (Megatron-LM, Apex, Transformer Engine, Liger,
flash-attn's). Compiled: by torch.compile, which fuses as much."""


@dataclass(frozen=True)
class Operator:
    """One module that owns parameters; `count` equal copies of it exist in the model.

    A linear has a weight of `out_features x in_features` and, with `bias`, `out_features`
    more; an embedding a table of `out_features x in_features` (rows x width); a norm
    `out_features` elements and, with `bias`, as many again. `block` is true for what belongs
    to a layer. `shared_with` names the operator whose weight this one uses (tied
    embeddings): it then computes but owns nothing but its bias.

    Experts are one module with a tensor for each of `weights`, the (in, out) of the matrices
    of one expert, that holds all `experts` of them; with `bias`, each has a second tensor of
    `out` an expert. A token multiplies `active_share` of them. A parameter is owned by a
    module that computes with it directly, one tensor for each of `weights`.

    `trainable` is false where training leaves the weights as they are; one whose weight is
    another's is trained when that one is. `router` is true for a linear that transformers makes a
    module of its own, and no `nn.Linear`: adapters find none there.
    """

    name: str
    kind: OperatorKind
    in_features: int
    out_features: int
    count: int = 1
    bias: bool = False
    block: bool = True
    shared_with: str | None = None
    weights: tuple[tuple[int, int], ...] = ()
    experts: int = 1
    active_share: float = 1.0
    trainable: bool = True
    router: bool = False

    @cached_property
    def tensors(self) -> tuple[int, ...]:
        """Elements of each parameter tensor that one copy owns."""
        if self.kind == "norm":
            return (self.out_features,) * (1 + self.bias)
        own: list[int] = []
        for inputs, outputs in self.weights or ((self.in_features, self.out_features),):
            own += [] if self.shared_with else [self.experts * inputs * outputs]
            own += [self.experts * outputs] if self.bias else []
        return tuple(own)

    @cached_property
    def params(self) -> int:
        """Parameters that one copy owns."""
        return sum(self.tensors)

    @property
    def active_params(self) -> int:
        """Parameters of one copy that take part in one token: of experts, the chosen ones'."""
        return round(self.params * self.active_share) if self.kind == "experts" else self.params

    @property
    def matmul_params(self) -> int:
        """Multiply-adds of one copy for one token: its matrices' weights, of experts the chosen ones'."""
        if self.kind == "linear":
            return round(self.in_features * self.out_features * self.active_share)
        if self.kind == "experts":
            products = sum(inputs * outputs for inputs, outputs in self.weights)
            return round(products * self.experts * self.active_share)
        return 0

    @property
    def largest_weight(self) -> int:
        """Elements of its largest matrix (all experts' together, as they are one tensor)."""
        if self.kind == "experts":
            return max(self.tensors)
        return self.in_features * self.out_features if self.kind == "linear" else 0

    @property
    def token_features(self) -> float:
        """Elements that go in and come out for one token, at the widest of its matrices."""
        widest = max(sum(weight) for weight in self.weights or ((self.in_features, self.out_features),))
        return widest * self.experts * self.active_share


class ActivationBytes(NamedTuple):
    """Bytes that one layer keeps for backward, per token, as a range [low, high].

    Where layers differ this is their mean. The low end has fused kernels and no dropout, the
    high end eager modules that keep fp32 copies and dropout masks. `selective` recomputes the
    attention core alone. `attention_scores` comes on top of `none` only: it is per token *and*
    per token of the sequence it attends to, and is 0 with flash attention.
    """

    none_low: float
    none_high: float
    selective_low: float
    selective_high: float
    attention_scores_low: float = 0.0
    attention_scores_high: float = 0.0
    frozen_inputs: float = 0.0
    """Of `none_low`, what only the weight gradients of frozen linears would need: autograd keeps none of it,
    a runtime with a linear function of its own may. Of `selective_low` it is `selective_frozen_inputs`."""
    selective_frozen_inputs: float = 0.0
    masks: float = 0.0
    """Of the high ends but the scores', what dropout alone makes: its masks."""
    dropped_scores_low: float = 0.0
    """What dropout would add to `attention_scores_low`: probabilities that are dropped out, and a mask."""
    dropped_scores_high: float = 0.0
    """The same, as it is counted in `attention_scores_high`."""
    unfused: float = 0.0
    """Of the high ends but the scores', what modules keep for lack of fused kernels: fp32 copies of norms,
    steps of activation functions."""
    fused: Passes = Passes()
    """What one layer moves where fused kernels compute it."""
    written: Passes = Passes()
    """The same of modules as transformers writes them."""
    dropout: Passes = Passes()
    """What of that dropout does."""

    def with_dropout(self, dropout: bool | None) -> ActivationBytes:
        """The range where dropout is known to be on, or off; None where it is not known."""
        if dropout is None:
            return self
        if dropout:
            return self._replace(
                none_low=self.none_low + self.masks,
                selective_low=self.selective_low + self.masks,
                attention_scores_low=self.attention_scores_low + self.dropped_scores_low,
            )
        return self._replace(
            none_high=self.none_high - self.masks,
            selective_high=self.selective_high - self.masks,
            attention_scores_high=self.attention_scores_high - self.dropped_scores_high,
            written=self.written + -1 * self.dropout,
        )

    def with_kernels(self, kernels: Kernels | None) -> ActivationBytes:
        """The range where it is known what computes between products with matrices; None where it is not.

        torch.compile keeps no more than fused kernels do: it recomputes in backward what only moves bytes
        (`torch._functorch.partitioners.min_cut_rematerialization_partition`).
        """
        if kernels is None:
            return self
        if kernels == "eager":
            more = self.unfused
            return self._replace(none_low=self.none_low + more, selective_low=self.selective_low + more)
        less = self.unfused
        return self._replace(none_high=self.none_high - less, selective_high=self.selective_high - less)


class Window(NamedTuple):
    """Attentions whose tokens see so many before them at most, or no more than their own chunk of so many."""

    tokens: int
    attentions: int
    chunked: bool = False


Layer = tuple[Operator, ...]
"""Modules in the order in which forward visits them; a module visited twice stands there twice."""


@dataclass(frozen=True)
class Section:
    """A stretch of forward: these layers one after the other, and all of that `repeat` times.

    Equal layers are one layer repeated; a dense layer and one of experts by turns are two
    layers repeated. What lies before, between and after stacks of layers is a section of its
    own that is no `block`.
    """

    layers: tuple[Layer, ...]
    repeat: int = 1
    block: bool = True


@dataclass(frozen=True)
class Model:
    """A model's shape. Tuples of operators are in the order in which forward first visits them.

    `structure` is stated where layers differ; `sections` has it for every model. An encoder and
    its decoder are taken to see sequences of one length, so a token is a position of both.
    """

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
    structure: tuple[Section, ...] = ()
    attention_count: int = 0
    """Attentions in the model, cross-attention included; 0 stands for one in every layer."""
    causal_share: float = 1.0
    """Share of those attentions whose tokens see only what comes before them."""
    windows: tuple[Window, ...] = ()
    """Attentions that see a part of what comes before them."""
    logits_share: float = 1.0
    """Share of the tokens that get logits."""
    value_head_dim: int = 0
    """Width of a head of values, where it is not that of queries and keys."""
    notes: tuple[str, ...] = ()
    """What its config says that is planned otherwise, or on a guess."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # All operators' fields are hashed once: caches by model are asked for in each play of a grid.
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    def __getstate__(self) -> dict[str, object]:
        # What is cached stays behind: another process hashes text otherwise.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def operator(self, name: str) -> Operator:
        """The operator called `name`."""
        return next(operator for operator in self.operators if operator.name == name)

    def has(self, name: str) -> bool:
        """Whether there is an operator called `name`."""
        return any(operator.name == name for operator in self.operators)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """Forward as a list of sections; an operator's `count` is over all of them."""
        return self.structure or tuple(_alike(self))

    @cached_property
    def params(self) -> int:
        """All parameters, each counted once."""
        return sum(operator.params * operator.count for operator in self.operators)

    @cached_property
    def trainable_params(self) -> int:
        """Parameters that training changes."""
        return sum(operator.params * operator.count for operator in self.operators if operator.trainable)

    @cached_property
    def active_params(self) -> int:
        """Parameters that take part in one token: all but the experts it is not sent to."""
        return sum(operator.active_params * operator.count for operator in self.operators)

    @cached_property
    def block_params(self) -> int:
        """Parameters of all layers."""
        return sum(operator.params * operator.count for operator in self.operators if operator.block)

    @cached_property
    def active_block_params(self) -> int:
        """Parameters of all layers that take part in one token."""
        return sum(operator.active_params * operator.count for operator in self.operators if operator.block)

    @cached_property
    def layer_params(self) -> int:
        """Parameters of one layer (the mean, where layers differ)."""
        return self.block_params // self.layer_count

    @cached_property
    def largest_layer_params(self) -> int:
        """Parameters of the largest layer."""
        layers = (layer for section in self.sections if section.block for layer in section.layers)
        return max(sum(operator.params for operator in layer) for layer in layers)

    @cached_property
    def matmul_params(self) -> int:
        """Parameters that multiply every token: all linears, the tied head and chosen experts included."""
        return sum(operator.matmul_params * operator.count for operator in self.operators)

    @cached_property
    def block_matmul_params(self) -> int:
        """Those of them in layers."""
        return sum(operator.matmul_params * operator.count for operator in self.operators if operator.block)

    @cached_property
    def attentions(self) -> int:
        """Attentions in the model: one for each layer, two where a decoder's layer has two."""
        return self.attention_count or self.layer_count

    @cached_property
    def attention_width(self) -> float:
        """Width of all heads: of queries and keys, and of values, on average."""
        return self.attention_heads * (self.head_dim + (self.value_head_dim or self.head_dim)) / 2

    @cached_property
    def widest(self) -> Operator:
        """The operator with the largest matrix."""
        return max(self.operators, key=lambda operator: operator.largest_weight)

    @cached_property
    def tensors(self) -> tuple[tuple[int, int, bool], ...]:
        """(elements, how many such tensors, in a layer) for every distinct tensor size."""
        return _sizes(self.operators)

    @cached_property
    def trainable_tensors(self) -> tuple[tuple[int, int, bool], ...]:
        """The same of the tensors that training changes."""
        return _sizes(operator for operator in self.operators if operator.trainable)


def _sizes(operators: Iterable[Operator]) -> tuple[tuple[int, int, bool], ...]:
    sizes: dict[tuple[int, bool], int] = {}
    for operator in operators:
        for elements in operator.tensors:
            key = (elements, operator.block)
            sizes[key] = sizes.get(key, 0) + operator.count
    return tuple((elements, count, block) for (elements, block), count in sizes.items())


def visited(sections: Iterable[Section]) -> Counter[str]:
    """How often forward visits each operator."""
    counts: Counter[str] = Counter()
    for section in sections:
        for layer in section.layers:
            for operator in layer:
                counts[operator.name] += section.repeat
    return counts


def _alike(model: Model) -> Iterator[Section]:
    """Sections of a model whose layers are all alike: before the layers, the layers, after them."""
    places = [place for place, operator in enumerate(model.operators) if operator.block]
    first, last = (places[0], places[-1]) if places else (0, -1)
    before, after = model.operators[:first], model.operators[last + 1 :]
    layer = tuple(
        operator
        for operator in model.operators[first : last + 1]
        for _ in range(max(1, operator.count // model.layer_count))
    )
    if before:
        yield Section((before,), block=False)
    if layer:
        yield Section((layer,), model.layer_count)
    if after:
        yield Section((after,), block=False)
