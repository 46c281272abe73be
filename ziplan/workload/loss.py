"""How the loss is made of logits, and what stands of them meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Loss = Literal["fused", "upcast", "in-place"]
"""Fused: one kernel reads the 16-bit logits. Upcast: the loss is taken of an fp32 copy of them. In place: it
is made where that copy stands, and its gradient too, as Megatron-LM's is since March 2020."""

LOGIT_BYTES: Mapping[Loss | None, tuple[float, float]] = {
    "fused": (2.0, 4.0),
    "upcast": (12.0, 16.0),
    "in-place": (6.0, 8.0),
    None: (6.0, 16.0),
}
"""Bytes per token and vocabulary entry at the peak, where the loss's backward begins: (low, high).

Fused: the logits, and their gradient where the kernel does not put it in their place
(flash_attn/losses/cross_entropy.py, `inplace_backward`; Apex's xentropy). Upcast: the log-softmax and two
gradients in fp32 (what nll_loss hands back, and what log_softmax makes of it), and the logits where the
training loop still holds the model's output: in 16 bits, or in fp32 from transformers before 4.45. In
place: the 16-bit logits and the copy, of which the gradient is made once more in 16 bits (the logits held
meanwhile by a pipeline; mpu/cross_entropy.py). Not known: from a loss taken in 16 bits (its log-softmax and
two gradients) on.
"""

MOVED_LOGIT_BYTES: Mapping[Loss | None, float] = {
    "fused": 8.0,
    "upcast": 36.0,
    "in-place": 52.0,
    None: 36.0,
}
"""Bytes that a loss reads and writes per token and vocabulary entry, but for the product that makes logits.

Fused: 16-bit logits read for the largest and for the sum, in backward read, and their gradient written.
Upcast: the cast (2 read, 4 written), log-softmax (4 and 4), in backward the gradient of what is picked (4,
all zeros but one), that of the log-softmax (two tensors read, one written) and its cast (4 and 2).
In place: the cast (2 and 4), the largest (4), what is left without it, its exponent and its share of the sum
(4 and 4 each), the sum (4), in backward the share times a gradient (4 and 4) and its cast (4 and 2).
"""

INFERRED_MOVED_LOGIT_BYTES = 14.0
"""The same without backward: the cast and the log-softmax."""

INFERRED_LOGIT_BYTES = (2.0, 10.0)
"""The same without backward, from 16-bit logits whose log-softmax is taken row by row (TRL,
`selective_log_softmax`) to those with their fp32 copy and its log-softmax whole."""
