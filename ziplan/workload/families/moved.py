"""Kernels of a layer's building blocks: what each moves for a token, and how many it is.

Everything is counted as PyTorch computes it: an operator reads its inputs and writes its output, once
each; backward also writes the gradient of every input that has one, and adds up those of a tensor that
several operators take. Fused is what one kernel does that reads and writes what it must.
"""

from __future__ import annotations

from typing import NamedTuple

from ziplan.workload.passes import Passes


class Function(NamedTuple):
    """An activation function run operator by operator: accesses of an element, and kernels."""

    forward: float
    backward: float
    forward_kernels: int
    backward_kernels: int

    def on(self, bytes_per_token: float) -> Passes:
        """Over so many bytes a token."""
        return Passes(
            self.forward * bytes_per_token,
            self.backward * bytes_per_token,
            self.forward_kernels,
            self.backward_kernels,
        )


ONE_KERNEL = Function(2, 3, 1, 1)
"""Input read, output written; in backward input and gradient read, its own gradient written."""

GATED = Function(3, 5, 1, 1)
"""Function and product of a gated MLP in one kernel: gate and up read and, in backward, their gradients
written."""

PRODUCT = Function(3, 6, 1, 2)
"""A product of two tensors by itself: in backward each gradient takes the other tensor."""

SUM = Function(3, 3, 1, 1)
"""A residual added; in backward the gradients of both ways are added."""

WRITTEN_OUT = {
    "gelu_new": Function(18, 28, 8, 11),
    "gelu_fast": Function(21, 36, 9, 13),
    "gelu_python": Function(11, 24, 5, 10),
    "swiglu_oai": Function(13, 20, 6, 8),
}
"""Those that transformers writes out, counted operator by operator."""


BLOOM_GELU = Function(21, 49, 9, 21)
"""BLOOM's, written out both ways: it keeps its input only and computes the tanh again (`GeLUFunction`)."""


def rms_norm(element: int, widths: tuple[float, ...], weight_in_fp32: bool = False) -> Passes:
    """RMSNorm as transformers writes it, in fp32 with the casts that take (`LlamaRMSNorm`).

    Forward: cast, square, mean, epsilon, root, product, cast, weight. Backward: two products and a sum
    for the weight; in fp32 two products, a sum and seven more for the root, two of them of a row; casts
    and the sum of both ways to the input. With `weight_in_fp32` the weight's part is in fp32 as well,
    and stored in another precision it is cast each time (`GemmaRMSNorm`).
    """
    casts = 0 if element == 4 else 2
    weighted = 4 if weight_in_fp32 else element
    each = Passes(
        4 * 5 + 2 * weighted + casts * (element + 4),
        4 * 17 + 6 * weighted + casts * (element + 4),
        6 + casts,
        14 + casts,
    )
    return over(each, widths)


def fused_rms_norm(element: int, widths: tuple[float, ...]) -> Passes:
    """One kernel forward; backward one that adds up the weight's gradient in parts too, and one for these."""
    return over(Passes(2 * element, 3 * element, 1, 2), widths)


def layer_norm(element: int, widths: tuple[float, ...]) -> Passes:
    """PyTorch's LayerNorm: backward reads gradient and input once more for those of weight and bias
    (`layer_norm_kernel.cu`: `layer_norm_grad_input_kernel`, `GammaBetaBackwardCUDAKernel`)."""
    return over(Passes(2 * element, 5 * element, 1, 2), widths)


def over(each: Passes, widths: tuple[float, ...]) -> Passes:
    """So many bytes for every element of norms of these widths, and the kernels of each norm."""
    width, count = sum(widths), len(widths)
    return Passes(
        each.forward * width,
        each.backward * width,
        each.forward_kernels * count,
        each.backward_kernels * count,
    )


def rotary(element: int, widths: tuple[float, ...], share: float = 1.0) -> Passes:
    """Rotary positions as transformers applies them (`apply_rotary_pos_emb`, `rotate_half`).

    Forward: two products, a negation and a concatenation of halves, a sum. Backward: the same products,
    gradients of two halves each written into a tensor of zeros, two sums, and a copy into the order of
    the projection's output. Where a `share` of each head is rotated it is cut out and put back.
    """
    whole = over(Passes(10 * share * element, (15 * share + 2) * element, 5, 10), widths)
    return whole if share == 1.0 else whole + over(cut(element), widths)


def cut(element: int) -> Passes:
    """Two parts taken apart and put together: in backward each is written into zeros, and both added."""
    return Passes(2 * element, 7 * element, 1, 5)


def rotary_in_fp32(element: int, widths: tuple[float, ...], throughout: bool) -> Passes:
    """Rotary positions whose cosines and sines are in fp32, or queries and keys too, with the casts."""
    if element == 4:
        return rotary(element, widths)
    casts = 2 * (element + 4)
    if throughout:
        return over(Passes(40 + casts, 60 + casts + 2 * element, 7, 14), widths)
    return over(Passes(6 * element + 24, 10 * element + 16 + 2 * casts, 7, 14), widths)


def fused_rotary(element: int, widths: tuple[float, ...]) -> Passes:
    """One kernel, in place or not."""
    return Passes(2 * element * sum(widths), 2 * element * sum(widths), len(widths), len(widths))


def joined(bytes_per_token: float) -> Passes:
    """Parts of one tensor that are views of it: in backward their gradients are put together."""
    return Passes(0, 2 * bytes_per_token, 0, 1)


def scaled(element: int, widths: tuple[float, ...]) -> Passes:
    """A tensor times a number."""
    return over(Passes(2 * element, 2 * element, 1, 1), widths)


def float_layer_norm(element: int, widths: tuple[float, ...], *, written_out: bool) -> Passes:
    """A LayerNorm of a tensor in fp32 without weights (`OlmoLayerNorm`), or operator by operator with
    one (`CohereLayerNorm`), and the casts to and fro."""
    casts, count = (0, 0) if element == 4 else (2 * (element + 4), 2)
    if written_out:
        return over(Passes(48 + casts, 132 + casts, 10 + count, 22 + count), widths)
    return over(Passes(8 + casts, 12 + casts, 1 + count, 1 + count), widths)


def routed(element: int, hidden: float, chosen: float) -> Passes:
    """Tokens sent to their experts and brought back, with grouped products (`grouped_mm_experts_forward`).

    Forward: tokens sorted by expert and copied; outputs weighted in fp32, sorted back, added up and cast.
    Backward: the same ways with tensors of zeros that are written into. Kernels without those of the
    experts' function.
    """
    forward = (3 * element + 16) * chosen + element + 8
    backward = (4 * element + 44) * chosen + 5 * element + 4
    return Passes(forward * hidden, backward * hidden, 24, 29)


def beside_routed(element: int, hidden: float, in_groups: bool) -> Passes:
    """A router that takes its input in fp32, and shared experts whose output is added to that of the chosen.

    Where it chooses among groups of experts first, by scores that a bias corrects, that is twelve kernels
    over a number for each expert, which have no gradient (`DeepseekV3TopkRouter`, `Glm4MoeTopkRouter`).
    """
    cast, added = (1, element + 4) if element != 4 else (0, 0)
    both = added + SUM.forward * element
    limited = 12 if in_groups else 0
    return Passes(both * hidden, both * hidden, 1 + cast + limited, 1 + cast)


def fused_routed(element: int, hidden: float, chosen: float) -> Passes:
    """Permuted and put back by one kernel each (Transformer Engine's `permutation.py`)."""
    return Passes(4 * element * chosen * hidden, 4 * element * chosen * hidden, 10, 15)


def dropout(element: int, widths: tuple[float, ...]) -> Passes:
    """Values read and written, a mask of one byte written, and in backward read."""
    width, count = sum(widths), len(widths)
    return Passes((2 * element + 1) * width, (2 * element + 1) * width, count, count)


FLASH = Passes(0, 0, 1, 3)
"""The flash kernel; in backward one before it and one after (`flash_bwd_launch_template.h`)."""


def eager_attention(element: int, query: float, values: float) -> Passes:
    """Two products, scale, mask, softmax and its cast, whose bytes are counted by the score; queries, keys
    and values copied for every head, as batched products take them, and the output put into order."""
    copied = 4 * element * (query + values)
    return Passes(copied, copied, 10, 13)


def linear(element: int, outputs: int, *, bias: bool, trainable: bool) -> Passes:
    """A product with a matrix and, its gradients: a bias adds up over tokens."""
    summed = bias and trainable
    return Passes(0, element * outputs * summed, 1, 1 + trainable + summed)


def read_again(element: int, width: float) -> Passes:
    """One more module that reads a tensor: its part of the gradient is added."""
    return Passes(0, 3 * element * width, 0, 1)


def adapter(element: int, outputs: int) -> Passes:
    """A low-rank adapter's output, scaled and added to its linear's."""
    return Passes(5 * element * outputs, 2 * element * outputs, 2, 1)
