"""What families build their models from: operators by the handful, and sections of forward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ziplan.workload.families.family import Fields
from ziplan.workload.model import Layer, Model, Operator, Section, visited

LONGEST_PERIOD = 8
"""Most layers after which a pattern of different layers is looked for again."""


@dataclass(frozen=True)
class Sizes:
    """The numbers that every decoder has."""

    layers: int
    hidden: int
    vocabulary: int
    heads: int
    key_value_heads: int
    head_dim: int
    positions: int | None = None

    @property
    def query(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def key_value(self) -> int:
        """Width of all key heads, and of all value heads."""
        return self.key_value_heads * self.head_dim


def sizes(
    fields: Fields, key_value_required: bool = False, head_dim: int | None = None, grouped: bool = True
) -> Sizes:
    """Read under the names that most configs use.

    `key_value_required` where an absent key stands for a fixed number, not for as many as heads;
    `head_dim` where an absent one does; without `grouped` there is a key head for every head.
    """
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    key_value_heads = heads
    if grouped:
        otherwise = () if key_value_required else (heads,)
        key_value_heads = fields.count("num_key_value_heads", *otherwise)
        fields.divides("num_key_value_heads", key_value_heads, "num_attention_heads", heads)
    return Sizes(
        layers=fields.count("num_hidden_layers"),
        hidden=hidden,
        vocabulary=fields.count("vocab_size"),
        heads=heads,
        key_value_heads=key_value_heads,
        head_dim=_head_dim(fields, hidden, heads, head_dim),
        positions=fields.count("max_position_embeddings", 0) or None,
    )


def _head_dim(fields: Fields, hidden: int, heads: int, default: int | None) -> int:
    stated = fields.count("head_dim", default or -1)
    return stated if stated >= 0 else even_heads(fields, hidden, heads, help="or state `head_dim`")


def even_heads(
    fields: Fields,
    hidden: int,
    heads: int,
    keys: tuple[str, str] = ("num_attention_heads", "hidden_size"),
    help: str = "",
) -> int:
    """Width of a head where heads divide the width."""
    fields.divides(keys[0], heads, keys[1], hidden, help)
    return hidden // heads if heads else 0


def linear(name: str, inputs: int, outputs: int, bias: bool = False, tied_to: str | None = None) -> Operator:
    """A matrix product."""
    return Operator(name, "linear", inputs, outputs, bias=bias, shared_with=tied_to)


def router(name: str, inputs: int, experts: int, bias: bool = False) -> Operator:
    """The choice of experts: a matrix product, in a module of transformers' own (`...TopKRouter`)."""
    return Operator(name, "linear", inputs, experts, bias=bias, router=True)


def norm(name: str, width: int, bias: bool = False) -> Operator:
    """A norm of `width` elements."""
    return Operator(name, "norm", width, width, bias=bias)


def embedding(name: str, width: int, rows: int, tied_to: str | None = None) -> Operator:
    """A table."""
    return Operator(name, "embedding", width, rows, shared_with=tied_to)


def attention(
    size: Sizes, bias: bool = False, output_bias: bool | None = None, output: str = "o_proj"
) -> Layer:
    """Four matrices of their own for queries, keys, values and output."""
    return (
        linear("self_attn.q_proj", size.hidden, size.query, bias),
        linear("self_attn.k_proj", size.hidden, size.key_value, bias),
        linear("self_attn.v_proj", size.hidden, size.key_value, bias),
        linear(f"self_attn.{output}", size.query, size.hidden, bias if output_bias is None else output_bias),
    )


def gated(hidden: int, middle: int, prefix: str = "mlp", bias: bool = False) -> Layer:
    """An MLP whose gate multiplies what goes up."""
    return (
        linear(f"{prefix}.gate_proj", hidden, middle, bias),
        linear(f"{prefix}.up_proj", hidden, middle, bias),
        linear(f"{prefix}.down_proj", middle, hidden, bias),
    )


def experts(name: str, hidden: int, middle: int, count: int, chosen: int, bias: bool = False) -> Operator:
    """Gated experts in two tensors, of which a token goes to `chosen`."""
    return Operator(
        name,
        "experts",
        hidden,
        hidden,
        bias=bias,
        weights=((hidden, 2 * middle), (middle, hidden)),
        experts=count,
        active_share=chosen / count if count else 0.0,
    )


def chosen(fields: Fields, key: str, experts_key: str, count: int, default: int | None = None) -> int:
    """How many of the experts a token goes to."""
    number = fields.count(key, *(() if default is None else (default,)))
    if count and number > count:
        fields.unsupported(key, f"a token cannot go to {number:,} of {count:,} experts ({experts_key})")
    return number


def outside(*operators: Operator) -> Section:
    """What stands before, between or after layers."""
    return Section((operators,), block=False)


def stack(count: int, *operators: Operator) -> Section:
    """Equal layers."""
    return Section((operators,), count)


def mixed(kinds: Sequence[bool], layer: Callable[[bool], Layer]) -> list[Section]:
    """Layers of two kinds in a given order, as few sections as tell it."""
    for period in range(1, min(LONGEST_PERIOD, len(kinds)) + 1):
        times, rest = divmod(len(kinds), period)
        if not rest and list(kinds) == list(kinds[:period]) * times:
            return [Section(tuple(layer(kind) for kind in kinds[:period]), times)]
    return [Section((layer(kind),), len(list(run))) for kind, run in groupby(kinds)]


def model(
    family: str, name: str, fields: Fields, size: Sizes, sections: Sequence[Section], activation: str = ""
) -> Model:
    """A model from its forward; operators of one name are one operator."""
    sections = [section for section in sections if section.repeat]
    counts, operators = visited(sections), dict[str, Operator]()
    for section in sections:
        for layer in section.layers:
            for part in layer:
                operators[part.name] = replace(part, count=counts[part.name], block=section.block)
    blocks = [section for section in sections if section.block]
    alike = len(blocks) == 1 and len(blocks[0].layers) == 1
    structure = () if alike else tuple(_merged(section, operators) for section in sections)
    return Model(
        name=name,
        family=family,
        layer_count=size.layers,
        d_model=size.hidden,
        vocab_size=size.vocabulary,
        attention_heads=size.heads,
        key_value_heads=size.key_value_heads,
        head_dim=size.head_dim,
        operators=tuple(operators.values()),
        max_sequence_length=size.positions,
        source=fields.text("source", ""),
        activation_function=activation,
        structure=structure,
    )


def _merged(section: Section, operators: dict[str, Operator]) -> Section:
    layers = tuple(tuple(operators[part.name] for part in layer) for layer in section.layers)
    return replace(section, layers=layers)


def gpt(size: Sizes, positions: int, middle: int, attention: Layer, tied: bool) -> list[Section]:
    """GPT-2's frame about an attention: learned positions, LayerNorms and a plain MLP with biases."""
    hidden, table = size.hidden, "wte" if tied else None
    layer = (
        norm("ln_1", hidden, bias=True),
        *attention,
        norm("ln_2", hidden, bias=True),
        linear("mlp.c_fc", hidden, middle, bias=True),
        linear("mlp.c_proj", middle, hidden, bias=True),
    )
    return [
        outside(embedding("wte", hidden, size.vocabulary), embedding("wpe", hidden, positions)),
        stack(size.layers, *layer),
        outside(norm("ln_f", hidden, bias=True), linear("lm_head", hidden, size.vocabulary, tied_to=table)),
    ]


def decoder(
    family: str,
    name: str,
    fields: Fields,
    size: Sizes,
    layers: Sequence[Section],
    activation: str,
    *,
    tied: bool,
    final: Operator | None = None,
    tables: Sequence[Operator] = (),
) -> Model:
    """A token embedding, more `tables`, layers, a final norm, and the head."""
    before = (embedding("embed_tokens", size.hidden, size.vocabulary), *tables)
    head = linear("lm_head", size.hidden, size.vocabulary, tied_to="embed_tokens" if tied else None)
    after = (final or norm("norm", size.hidden), head)
    return model(family, name, fields, size, [outside(*before), *layers, outside(*after)], activation)
