"""What operators keep for backward and what they move, in bytes per token, to be added up to a layer's.

Autograd keeps an operator's inputs, or its output, once each: what two operators keep both is
counted with the first. Each part is a range: fused kernels without dropout, to the modules as
written, which keep fp32 copies and dropout masks. Adding a residual keeps nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

from ziplan.units import Precision
from ziplan.workload.families import moved
from ziplan.workload.families.family import ELEMENT_BYTES, Attention
from ziplan.workload.families.moved import GATED, ONE_KERNEL, PRODUCT, SUM
from ziplan.workload.model import ActivationBytes, Operator
from ziplan.workload.passes import Passes

FUSED_ACTIVATIONS = ("gelu", "gelu_pytorch_tanh", "relu", "silu", "swish")
"""Activation functions that run as one kernel and keep their input only."""

WRITTEN_OUT = {"gelu_new": 3, "gelu_fast": 4, "gelu_python": 3, "swiglu_oai": 3}
"""Tensors that others keep beside their input, run operator by operator."""

UNCOUNTED = 3
"""What one that nobody has counted is taken to keep: as much as tanh-GELU."""


def _function(name: str) -> moved.Function:
    """What an activation function moves; one that nobody has counted as much as tanh-GELU."""
    return (
        ONE_KERNEL
        if name in FUSED_ACTIVATIONS
        else moved.WRITTEN_OUT.get(name, moved.WRITTEN_OUT["gelu_new"])
    )


def is_counted(function: str) -> bool:
    """Whether it is known what an activation function keeps."""
    return function in FUSED_ACTIVATIONS or function in WRITTEN_OUT


@dataclass(frozen=True)
class Kept:
    """Bytes per token; `core` goes when attention is recomputed, `scores` are per attended token.

    `masks` is the part of `high`, `dropped_high` that of `scores_high`, that dropout alone makes; where it
    is on, `dropped_low` comes on top of `scores_low`. `unfused` is the part of `high` that eager modules keep
    in any case and fused kernels never.
    """

    low: float = 0.0
    high: float = 0.0
    core_low: float = 0.0
    core_high: float = 0.0
    scores_low: float = 0.0
    scores_high: float = 0.0
    masks: float = 0.0
    dropped_low: float = 0.0
    dropped_high: float = 0.0
    unfused: float = 0.0
    fused: Passes = field(default_factory=Passes)
    written: Passes = field(default_factory=Passes)
    dropout: Passes = field(default_factory=Passes)

    def __add__(self, other: Kept) -> Kept:
        return Kept(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __mul__(self, times: float) -> Kept:
        return Kept(*(getattr(self, each.name) * times for each in fields(self)))

    __rmul__ = __mul__

    @property
    def bytes(self) -> ActivationBytes:
        """As the planner takes it."""
        return ActivationBytes(
            none_low=self.low + self.core_low,
            none_high=self.high + self.core_high,
            selective_low=self.low,
            selective_high=self.high,
            attention_scores_low=self.scores_low,
            attention_scores_high=self.scores_high,
            masks=self.masks,
            dropped_scores_low=self.dropped_low,
            dropped_scores_high=self.dropped_high,
            unfused=self.unfused,
            fused=self.fused,
            written=self.written,
            dropout=self.dropout,
        )


class Keep(NamedTuple):
    """Answers what each operator keeps under one precision and one attention."""

    precision: Precision
    attention_kind: Attention

    @property
    def element(self) -> int:
        """Bytes of one element."""
        return ELEMENT_BYTES[self.precision]

    @property
    def flash(self) -> bool:
        """Whether the scores never reach memory."""
        return self.attention_kind == "flash"

    def inputs(self, *widths: float) -> Kept:
        """Inputs of matrix products, of products with a gate, and the like: kept as they are."""
        kept = self.element * sum(widths)
        return Kept(kept, kept)

    def eager_only(self, *widths: float) -> Kept:
        """Tensors that a fused kernel does without, and some modules too."""
        return Kept(0, self.element * sum(widths))

    def unfused(self, *widths: float) -> Kept:
        """Tensors that a fused kernel does without and every module as written keeps."""
        return replace(self.eager_only(*widths), unfused=self.element * sum(widths))

    def masks(self, *widths: float) -> Kept:
        """Dropouts: masks of one byte an element."""
        dropped, size = moved.dropout(self.element, widths), float(sum(widths))
        return Kept(0, size, masks=size, written=dropped, dropout=dropped)

    def residuals(self, *widths: float) -> Kept:
        """Sums with what went past a half of a layer: nothing is kept."""
        added = moved.over(SUM.on(self.element), widths)
        return Kept(fused=added, written=added)

    def rotary(self, *widths: float, share: float = 1.0) -> Kept:
        """Rotary positions over queries and over keys, or over a share of each head: nothing is kept."""
        return Kept(
            fused=moved.fused_rotary(self.element, widths),
            written=moved.rotary(self.element, widths, share),
        )

    def rotary_in_fp32(self, *widths: float, throughout: bool = False) -> Kept:
        """The same with cosines and sines in fp32, or everything."""
        return Kept(
            fused=moved.fused_rotary(self.element, widths),
            written=moved.rotary_in_fp32(self.element, widths, throughout),
        )

    def cut(self, *widths: float) -> Kept:
        """Parts of heads taken apart and put together, which fused kernels write where they belong."""
        return Kept(written=moved.over(moved.cut(self.element), widths))

    def scaled(self, *widths: float) -> Kept:
        """Tensors times a number, which fused kernels do in passing."""
        return Kept(written=moved.scaled(self.element, widths))

    def joined(self, *widths: float) -> Kept:
        """Parts of a fused projection: views of it, whose gradients are put together in backward."""
        together = moved.joined(self.element * sum(widths))
        return Kept(fused=together, written=together)

    def layer_norm(self, *widths: float, beside: float = 0) -> Kept:
        """Its input, and mean and 1/deviation in fp32; `beside` is of one whose input another keeps."""
        normed = moved.layer_norm(self.element, (*widths, *((beside,) if beside else ())))
        statistics = Kept(8, 8) * (len(widths) + bool(beside))
        return self.inputs(*widths) + statistics + Kept(fused=normed, written=normed)

    def rms_norm(self, *widths: float, rows: float = 1) -> Kept:
        """Its input and 1/rms; written out, an fp32 copy of the input and the normalized values.

        `rows` norms a token where it is taken over each head on its own.
        """
        width, count = sum(widths), len(widths) * rows
        return Kept(
            self.element * width + 4 * count,
            (4 + self.element) * width + 4 * count,
            unfused=4 * width,
            fused=moved.fused_rms_norm(self.element, widths),
            written=moved.rms_norm(self.element, widths),
        )

    def float_norm(self, *widths: float, rows: float = 1) -> Kept:
        """An RMSNorm that multiplies its weight in fp32: the normalized values are in fp32 too."""
        width, count = sum(widths), len(widths) * rows
        return Kept(
            self.element * width + 4 * count,
            8 * width + 4 * count,
            unfused=(8 - self.element) * width,
            fused=moved.fused_rms_norm(self.element, widths),
            written=moved.rms_norm(self.element, widths, weight_in_fp32=True),
        )

    def attention(
        self,
        heads: int,
        key_value_heads: int,
        head_dim: int,
        value_dim: int | None = None,
        *,
        dropout: bool = False,
        rotated: float = 0,
        copies: float = 0,
        native_softmax: bool = False,
        bias_scores: float = 0,
    ) -> Kept:
        """From queries, keys and values to the input of the output matrix, both included.

        The flash kernel keeps its log-sum-exp, 4 bytes a head, and its output, which is the
        input of the output matrix unless a reordering copies it. Eager attention repeats keys
        and values for all heads, and keeps for each head and attended token the
        probabilities: in e bytes with a fused or `native_softmax`, else as the fp32 softmax and
        its e-byte copy. Dropout keeps a mask, and its result where that is not the copy.
        `rotated` is the share of each head of queries and keys that has rotary positions.
        `copies` are widths that modules keep beside (a fused projection whose parts are views),
        `bias_scores` further bytes of eager scores.
        """
        element, value_dim = self.element, head_dim if value_dim is None else value_dim
        query, values = heads * head_dim, heads * value_dim
        taken = query + key_value_heads * (head_dim + value_dim)
        repeated = query + heads * (head_dim + value_dim) - taken
        kept = self.inputs(taken, values)
        if rotated:
            kept += self.rotary(query, key_value_heads * head_dim, share=rotated)
        again = element * (repeated + copies + (values if self.flash else 0))
        statistics = 4.0 * heads if self.flash else 0.0
        launched = moved.FLASH if self.flash else moved.eager_attention(element, query, values)
        core = Kept(core_low=statistics, core_high=statistics + again, fused=moved.FLASH, written=launched)
        if self.flash:
            return kept + core
        one_copy = native_softmax or self.precision == "fp32"
        dropped = ((element if one_copy else 0) + 1) * heads if dropout else 0
        return (
            kept
            + core
            + Kept(
                scores_low=element * heads,
                scores_high=(element + bias_scores + (0 if one_copy else 4)) * heads + dropped,
                dropped_low=(element + 1) * heads if dropout else 0,
                dropped_high=dropped,
            )
        )

    def function(self, width: float, name: str) -> Kept:
        """An activation function: its input; written out in eager operators, more.

        Tanh-GELU keeps its input, half its input, the tanh and one plus the tanh.
        """
        more = WRITTEN_OUT.get(name, 0 if name in FUSED_ACTIVATIONS else UNCOUNTED)
        moves = Kept(
            fused=ONE_KERNEL.on(self.element * width), written=_function(name).on(self.element * width)
        )
        written_out = self.unfused if is_counted(name) else self.eager_only
        return self.inputs(width) + written_out(more * width) + moves

    def gated(self, hidden: float, middle: float, name: str) -> Kept:
        """A gated MLP: its input, gate and up, the product; written out, the function's output too."""
        size, function = self.element * middle, self.function(middle, name)
        moves = Kept(fused=GATED.on(size), written=PRODUCT.on(size))
        return (
            replace(function, fused=Passes())
            + self.inputs(hidden, middle, middle)
            + self.unfused(middle)
            + moves
        )

    def output_function(self, width: float) -> Kept:
        """An activation function that keeps its output, the input of what follows (ReLU)."""
        moves = ONE_KERNEL.on(self.element * width)
        return self.inputs(width) + Kept(fused=moves, written=moves)

    def plain(self, hidden: float, middle: float, name: str, moves: moved.Function | None = None) -> Kept:
        """An MLP of two matrices; `moves` where its function moves otherwise than its name says."""
        function = self.function(middle, name)
        if moves is not None:
            function = replace(function, written=moves.on(self.element * middle))
        return self.inputs(hidden, middle) + function

    def routed(self, hidden: float, experts: Operator, name: str, evaluated: float = 0) -> Kept:
        """A router and gated experts: for each chosen one its input, and what it keeps inside.

        The router keeps its input, and logits or probabilities of all experts in fp32. Each
        chosen expert takes a copy of the token; as written its output is kept before and after
        it is weighted, and indices of 8 bytes. `evaluated` experts compute where it is not the
        chosen ones.
        """
        middle, chosen = experts.weights[-1][0], experts.experts * experts.active_share
        each = self.gated(hidden, middle, name)
        high = (each + self.inputs(hidden, hidden)) * (evaluated or chosen)
        router = Kept(4.0 * experts.experts, 16.0 * experts.experts + 48.0 * chosen)
        unfused = each.unfused * min(chosen, evaluated or chosen)
        kept = Kept((each * chosen).low, high.high, unfused=unfused) + self.inputs(hidden) + router
        size = self.element * middle * chosen
        return kept + Kept(
            fused=GATED.on(size) + moved.fused_routed(self.element, hidden, chosen),
            written=_function(name).on(size)
            + PRODUCT.on(size)
            + moved.joined(2 * size)
            + moved.routed(self.element, hidden, evaluated or chosen),
        )
