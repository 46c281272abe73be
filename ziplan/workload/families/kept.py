"""What operators keep for backward, in bytes per token, to be added up to a layer's.

Autograd keeps an operator's inputs, or its output, once each: what two operators keep both is
counted with the first. Each part is a range: fused kernels without dropout, to the modules as
written, which keep fp32 copies and dropout masks. Adding a residual keeps nothing.

Beside that stands what the modules as written move through the GPU's memory in forward and in backward, where
each operation of PyTorch's is a kernel that reads its inputs and writes its output: counted operation by
operation (`MOVED`), matrix products and attention left out.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import NamedTuple

from ziplan.units import Precision
from ziplan.workload.families.family import ELEMENT_BYTES, Attention
from ziplan.workload.model import ActivationBytes, Operator

FUSED_ACTIVATIONS = ("gelu", "gelu_pytorch_tanh", "relu", "silu", "swish")
"""Activation functions that run as one kernel and keep their input only."""

WRITTEN_OUT = {"gelu_new": 3, "gelu_fast": 4, "gelu_python": 3, "swiglu_oai": 3}
"""Tensors that others keep beside their input, run operator by operator."""

NORM, RMS_NORM, ROTARY, FUNCTION, TANH_GELU, PRODUCT, RESIDUALS, SHARED = range(8)

MOVED: tuple[tuple[float, float, float, float], ...] = (
    (2, 0, 3, 0),
    (4, 28, 14, 66),
    (10, 0, 14, 0),
    (2, 0, 3, 0),
    (18, 0, 28, 0),
    (3, 0, 6, 0),
    (6, 0, 16, 0),
    (0, 0, 3, 0),
)
"""By operator, per element of its width: elements and further bytes moved in forward, the same in backward.

LayerNorm and activation functions that are one kernel read and write, in backward read twice. An RMSNorm of
Transformers converts to fp32, squares, averages, multiplies, converts back and multiplies its weight; a
rotary embedding turns, negates, multiplies twice and adds; tanh-GELU written out is eight kernels; a product
with a gate has two gradients; both residuals of a layer are added, as are the gradients of what queries, keys
and values share, and what attention takes and returns is laid out anew; the gradients of an input that two
matrices share are added. Counted from what PyTorch dispatches for layers of Transformers 5
(tests/workload/test_moved.py).
"""

UNCOUNTED = 3
"""What one that nobody has counted is taken to keep: as much as tanh-GELU."""


def is_counted(function: str) -> bool:
    """Whether it is known what an activation function keeps."""
    return function in FUSED_ACTIVATIONS or function in WRITTEN_OUT


@dataclass(frozen=True)
class Kept:
    """Bytes per token; `core` goes when attention is recomputed, `scores` are per attended token.

    `masks` is the part of `high`, `dropped_high` that of `scores_high`, that dropout alone makes; where it
    is on, `dropped_low` comes on top of `scores_low`.
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
    forward: float = 0.0
    backward: float = 0.0
    """Bytes that modules as written move in forward and in backward, dropout aside."""
    dropped_out: float = 0.0
    """Those that dropout moves, in each of the two."""

    def __add__(self, other: Kept) -> Kept:
        return Kept(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: float) -> Kept:
        return Kept(*(times * value for value in astuple(self)))

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
            moved_forward=self.forward + self.dropped_out,
            moved_backward=self.backward + self.dropped_out,
            moved_by_dropout=self.dropped_out,
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

    def moved(self, operator: int, *widths: float) -> Kept:
        """What an operator of some widths moves; it keeps nothing."""
        elements, more, elements_back, more_back = MOVED[operator]
        forward, backward = elements * self.element + more, elements_back * self.element + more_back
        return Kept(forward=forward * sum(widths), backward=backward * sum(widths))

    def inputs(self, *widths: float) -> Kept:
        """Inputs of matrix products, of products with a gate, and the like: kept as they are."""
        kept = self.element * sum(widths)
        return Kept(kept, kept)

    def eager_only(self, *widths: float) -> Kept:
        """Tensors that a fused kernel does without."""
        return Kept(0, self.element * sum(widths))

    def masks(self, *widths: float) -> Kept:
        """Dropout masks of one byte an element."""
        width = float(sum(widths))
        return Kept(0, width, masks=width, dropped_out=(2 * self.element + 1) * width)

    def layer_norm(self, *widths: float) -> Kept:
        """Its input, and mean and 1/deviation in fp32."""
        return self.inputs(*widths) + Kept(8, 8) * len(widths) + self.moved(NORM, *widths)

    def rms_norm(self, *widths: float, rows: float = 1) -> Kept:
        """Its input and 1/rms; written out, an fp32 copy of the input and the normalized values.

        `rows` norms a token where it is taken over each head on its own.
        """
        width, count = sum(widths), len(widths) * rows
        kept = Kept(self.element * width + 4 * count, (4 + self.element) * width + 4 * count)
        return kept + self.moved(RMS_NORM, width)

    def float_norm(self, *widths: float, rows: float = 1) -> Kept:
        """An RMSNorm that multiplies its weight in fp32: the normalized values are in fp32 too."""
        width, count = sum(widths), len(widths) * rows
        return Kept(self.element * width + 4 * count, 8 * width + 4 * count) + self.moved(RMS_NORM, width)

    def attention(
        self,
        heads: int,
        key_value_heads: int,
        head_dim: int,
        value_dim: int | None = None,
        *,
        dropout: bool = False,
        copies: float = 0,
        native_softmax: bool = False,
        bias_scores: float = 0,
        rotary: float = 1,
    ) -> Kept:
        """From queries, keys and values to the input of the output matrix, both included.

        The flash kernel keeps its log-sum-exp, 4 bytes a head, and its output, which is the
        input of the output matrix unless a reordering copies it. Eager attention repeats keys
        and values for all heads, and keeps for each head and attended token the
        probabilities: in e bytes with a fused or `native_softmax`, else as the fp32 softmax and
        its e-byte copy. Dropout keeps a mask, and its result where that is not the copy.
        `copies` are widths that modules keep beside (a fused projection whose parts are views),
        `bias_scores` further bytes of eager scores. Rotary embeddings turn a share `rotary` of each head.
        """
        element, value_dim = self.element, head_dim if value_dim is None else value_dim
        query, values = heads * head_dim, heads * value_dim
        taken = query + key_value_heads * (head_dim + value_dim)
        repeated = query + heads * (head_dim + value_dim) - taken
        kept = self.inputs(taken, values) + self.moved(RESIDUALS, query)
        kept += self.moved(ROTARY, rotary * (query + key_value_heads * head_dim))
        again = element * (repeated + copies + (values if self.flash else 0))
        statistics = 4.0 * heads if self.flash else 0.0
        core = Kept(core_low=statistics, core_high=statistics + again)
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
        moved = self.moved(TANH_GELU if more else FUNCTION, width)
        return self.inputs(width) + self.eager_only(more * width) + moved

    def gated(self, hidden: float, middle: float, name: str) -> Kept:
        """A gated MLP: its input, gate and up, the product; written out, the function's output too."""
        kept = self.inputs(hidden, middle, middle) + self.function(middle, name) + self.eager_only(middle)
        return kept + self.moved(PRODUCT, middle) + self.moved(SHARED, hidden)

    def plain(self, hidden: float, middle: float, name: str) -> Kept:
        """An MLP of two matrices."""
        return self.inputs(hidden, middle) + self.function(middle, name)

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
        moved = Kept(forward=high.forward, backward=high.backward)
        return Kept((each * chosen).low, high.high) + moved + self.inputs(hidden) + router
