"""What the user's own train.py has to do for a plan to hold, as lines of Python, whatever the runtime."""

from __future__ import annotations

import json

from ziplan.errors import CannotEmit
from ziplan.workload.kernels import OF_THEIR_OWN
from ziplan.workload.model import Model
from ziplan.workload.training import ALL_LINEAR, Adapters, Frozen, Training


def trainable_lines(training: Training, model: str = "model") -> list[str]:
    """Statements that freeze parts of a model or give it adapters; none where all is trained.

    `model` is the model's name in train.py.

    PEFT would keep adapters in fp32 beside a 16-bit base (`autocast_adapter_dtype`); the plan has
    them in the precision that computes, as ZeRO wants all that it flattens together.
    """
    trainable = training.trainable
    if isinstance(trainable, Adapters):
        every = ALL_LINEAR in trainable.targets
        targets = json.dumps(ALL_LINEAR if every else list(trainable.targets))
        settings = f"r={trainable.lora_rank}, target_modules={targets}"
        config = f"peft.LoraConfig({settings})"
        return [f"{model} = peft.get_peft_model({model}, {config}, autocast_adapter_dtype=False)"]
    if isinstance(trainable, Frozen):
        return [
            f"frozen = {json.dumps(list(trainable.frozen))}",
            f"for name, weight in {model}.named_parameters():",
            '    weight.requires_grad_(not any(f".{part}." in f".{name}" for part in frozen))',
        ]
    return []


def within_reach(model: Model) -> None:
    """Refuse to have attention recomputed where nothing can be put around it."""
    if model.family in OF_THEIR_OWN:
        raise CannotEmit(
            f"transformers' {model.family} does not look its attention up, so it cannot be recomputed alone: "
            "plan full checkpointing or none"
        )


def recomputed_attention() -> list[str]:
    """Statements that have attention computed again in backward, from queries, keys and values alone.

    transformers looks its kernel up by name at every call (`AttentionInterface`), and its own eager
    attention, which has no entry there, is left as it is.
    """
    return [
        "from torch.utils.checkpoint import checkpoint",
        "from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS",
        "core = ALL_ATTENTION_FUNCTIONS[model.config._attn_implementation]",
        "ALL_ATTENTION_FUNCTIONS[model.config._attn_implementation] = (",
        "    lambda *given, **named: checkpoint(core, *given, use_reentrant=False, **named)",
        ")",
    ]
