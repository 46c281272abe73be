"""How the loss is made of logits, and what stands of them meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Loss = Literal["fused", "upcast"]
"""Fused: one kernel reads the 16-bit logits. Upcast: the loss is taken of an fp32 copy of them."""

LOGIT_BYTES: Mapping[Loss | None, tuple[float, float]] = {
    "fused": (2.0, 4.0),
    "upcast": (12.0, 16.0),
    None: (6.0, 16.0),
}
"""Bytes per token and vocabulary entry at the peak, where the loss's backward begins: (low, high).

Fused: the logits, and their gradient where the kernel does not put it in their place
(flash_attn/losses/cross_entropy.py, `inplace_backward`; Apex's xentropy). Upcast: the log-softmax and two
gradients in fp32 (what nll_loss hands back, and what log_softmax makes of it), and the logits where the
training loop still holds the model's output: in 16 bits, or in fp32 from transformers before 4.45. Not
known: from a loss taken in 16 bits (its log-softmax and two gradients) on.
"""

MADE_LOGIT_BYTES: Mapping[Loss | None, float] = {"fused": 4.0, "upcast": 14.0, None: 14.0}
"""Bytes of the tensors that are made on the way, each counted once, for the time that they take: of a fused
kernel the logits and their gradient, else 16-bit logits, their fp32 copy, its log-softmax and a gradient."""

INFERRED_LOGIT_BYTES = (2.0, 10.0)
"""The same without backward, from 16-bit logits whose log-softmax is taken row by row (TRL,
`selective_log_softmax`) to those with their fp32 copy and its log-softmax whole."""
