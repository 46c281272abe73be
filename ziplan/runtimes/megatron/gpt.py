"""The model that Megatron-LM's `pretrain_gpt.py` makes: its arguments for a shape, and their parameters.

Source: `megatron/training/arguments.py` and `megatron/core/models/gpt`, core 0.20. Told apart by
parameters: arguments that make another number of them make another model. What has no parameters (how
positions are rotated, windows of attention, scales) is not told, and said in the script.
"""

from __future__ import annotations

from typing import NamedTuple

from ziplan.workload.model import Model

ELSEWHERE = {
    "gpt_neox": "attention and MLP that run beside each other",
    "falcon": "attention and MLP that run beside each other",
    "mpt": "ALiBi",
}
"""Families whose parameters are a GPT's and whose layers are not."""

GATES = ("silu", "swish")
"""Activation functions of gated MLPs that an argument asks for (`--swiglu`)."""

PLAIN = "gelu"
"""What the names of the others begin with: Megatron-LM has no argument for `relu`."""


class Gpt(NamedTuple):
    """The arguments that decide how many parameters a layer and the model have."""

    layers: int
    width: int
    heads: int
    groups: int
    head_width: int
    middle: int
    gated: bool
    bias: bool
    qkv_bias: bool
    norm_bias: bool
    head_norms: bool
    vocabulary: int
    positions: int
    tied: bool

    @property
    def params(self) -> int:
        """Parameters of all these, the vocabulary not padded."""
        queries, others = self.heads * self.head_width, 2 * self.groups * self.head_width
        into = self.middle * (1 + self.gated)
        matrices = self.width * (2 * queries + others + into + self.middle)
        biases = (self.bias or self.qkv_bias) * (queries + others) + self.bias * (into + 2 * self.width)
        norms = self.width * (1 + self.norm_bias)
        heads = 2 * self.head_width * self.head_norms
        tables = self.width * (self.vocabulary * (2 - self.tied) + self.positions)
        return self.layers * (matrices + biases + 2 * norms + heads) + tables + norms

    @property
    def arguments(self) -> list[str]:
        """Those that a size does not tell."""
        given = [f"--ffn-hidden-size {self.middle}", f"--kv-channels {self.head_width}"]
        if self.groups != self.heads:
            given += ["--group-query-attention", f"--num-query-groups {self.groups}"]
        given.append(f"--position-embedding-type {'learned_absolute' if self.positions else 'rope'}")
        chosen = {
            "--normalization RMSNorm": not self.norm_bias,
            "--swiglu": self.gated,
            "--disable-bias-linear": not self.bias,
            "--add-qkv-bias": self.qkv_bias and not self.bias,
            "--qk-layernorm": self.head_norms,
            "--untie-embeddings-and-output-weights": not self.tied,
        }
        return given + [argument for argument, asked in chosen.items() if asked]


def gpt_of(model: Model) -> Gpt:
    """The nearest arguments for a model's shape; a gated MLP where only that has as many parameters."""
    layer = [operator for operator in model.operators if operator.block]
    linears = [operator for operator in layer if operator.kind == "linear"]
    norms = [operator for operator in layer if operator.kind == "norm"]
    down = [operator for operator in linears if operator.out_features == model.d_model][-1]
    plain = Gpt(
        layers=model.layer_count,
        width=model.d_model,
        heads=model.attention_heads,
        groups=model.key_value_heads,
        head_width=model.head_dim,
        middle=down.in_features,
        gated=False,
        bias=down.bias,
        qkv_bias=linears[0].bias,
        norm_bias=any(norm.bias for norm in norms),
        head_norms=any(norm.out_features == model.head_dim for norm in norms),
        vocabulary=model.vocab_size,
        positions=_positions(model),
        tied=not any(o.kind == "linear" and not o.block and not o.shared_with for o in model.operators),
    )
    gated = plain._replace(gated=True)
    return gated if gated.params == model.params else plain


def otherwise(model: Model) -> list[str]:
    """Why `pretrain_gpt.py` makes another model of any arguments; nothing where it makes this one."""
    if model.causal_share < 1 or model.attentions != model.layer_count:
        return [f"it makes decoders, and {model.name} is or has an encoder"]
    if model.family in ELSEWHERE:
        return [f"{model.name} has {ELSEWHERE[model.family]}"]
    made = gpt_of(model)
    if made.params != model.params:
        return [
            f"{model.name} has layers or ends of another kind: {model.params:,} parameters, "
            f"where the nearest arguments make {made.params:,}"
        ]
    function = model.activation_function
    if function and not function.startswith(GATES if made.gated else PLAIN):
        return [f"no argument asks for {'a gated' if made.gated else ''} {function}".replace("  ", " ")]
    return []


def _positions(model: Model) -> int:
    """Rows of a table of positions; 0 where there is none."""
    tables = [o for o in model.operators if o.kind == "embedding" and not o.block and not o.shared_with]
    return sum(table.out_features for table in tables if table.out_features != model.vocab_size)
