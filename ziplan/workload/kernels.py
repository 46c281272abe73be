"""How transformers 5 computes attention, by family: which kernels its code has, and where it looks them up.

Source: `models/*/modeling_*.py` (`_supports_sdpa`, `_supports_flash_attn`, `ALL_ATTENTION_FUNCTIONS`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ziplan.workload.model import Model

EAGER_ALONE = ("bloom", "mpt")
"""Families whose attention has no fused kernel there (both add ALiBi to their scores)."""

EAGER_UNLESS_ASKED = ("gemma2", "gpt_neo", "gpt_oss")
"""Families that have one and take eager attention unless asked for it: SDPA cannot compute theirs."""

OF_LIGER = frozenset(
    {"gemma", "gemma2", "gemma3_text", "glm4", "gpt_oss", "granite", "llama", "llama4_text", "mistral"}
    | {"mixtral", "olmo2", "olmo3", "phi3", "qwen2", "qwen3", "qwen3_moe", "smollm3"}
)
"""Families that Liger 0.8 has kernels for (`MODEL_TYPE_TO_APPLY_LIGER_FN`); it leaves others as they are."""

LIGER_LEAVES_OUT = {
    "glm4": ("rope",),
    "gpt_oss": ("swiglu",),
    "granite": ("fused_linear_cross_entropy",),
}
"""What of a family Liger 0.8 has no kernel for (`monkey_patch.py`: off, or NotImplementedError)."""

OF_THEIR_OWN = ("bloom", "falcon", "gpt_neo", "mpt")
"""Families whose attention looks into no table of functions, so that nothing can be put around it there."""


def flash_notes(model: Model) -> Iterator[str]:
    """What must be said where a fused kernel is planned for a model."""
    if model.family in EAGER_ALONE:
        yield (
            "transformers has no fused attention for this family: with its code say `attention: eager`, "
            "whose scores take memory and time that are not planned here"
        )
    if model.family in EAGER_UNLESS_ASKED:
        yield (
            "transformers computes this family's attention eagerly unless its model is made with "
            'attn_implementation="flash_attention_2"'
        )
