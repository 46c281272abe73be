"""What a prediction takes of the run that no plan has: kernels, the loss, how PyTorch's allocator is set.

Where a file can ask for it a runtime's emitter has it asked; what only the user's script can do is said as
lines of comment.
"""

from __future__ import annotations

from ziplan.plan import Checkpointing, Plan
from ziplan.workload.kernels import EAGER_ALONE, EAGER_UNLESS_ASKED, LIGER_LEAVES_OUT, OF_LIGER
from ziplan.workload.training import Training, Workload

ALLOCATOR = "PYTORCH_ALLOC_CONF"
"""The variable that PyTorch 2.13 reads, for the GPU's allocator and that of pinned memory."""

LOSSES = {
    "fused": "fused",
    "upcast": "taken of an fp32 copy of the logits, as transformers' is",
    "in-place": "made in place of an fp32 copy of the logits, as Megatron-LM's is",
}

RECOMPUTED = {
    Checkpointing.NONE: "none",
    Checkpointing.SELECTIVE: "of attention alone",
    Checkpointing.FULL: "of every layer",
}
"""What is computed again in backward, as scripts say it and `check` reads it there."""

OF_THE_SCRIPT = "flash-attn's or Apex's on 16-bit logits; model(labels=...) makes fp32 of them"
"""What a script has to do for a fused loss."""


def allocator_setting(training: Training) -> str:
    """The value of PYTORCH_ALLOC_CONF that allocates as the training states."""
    settings = [f"expandable_segments:{training.expandable_segments}"]
    if not training.pinned_rounding:
        settings.append("pinned_max_round_threshold_mb:1")
    return ",".join(settings)


def allocator_notes(training: Training) -> list[str]:
    """Why, where it is not PyTorch's default."""
    if training.pinned_rounding:
        return []
    return ["Pinned buffers above 1 MB at their exact size: PyTorch rounds up to a power of two otherwise."]


def dynamo_config(training: Training) -> list[str]:
    """What has accelerate compile each layer, as lines of its config."""
    if training.kernels != "compiled":
        return []
    return ["dynamo_config:", "  dynamo_backend: INDUCTOR", "  dynamo_use_regional_compilation: true"]


def has_liger(workload: Workload) -> bool:
    """Whether Liger has kernels for the model's family, which transformers can ask it for."""
    return workload.model.family in OF_LIGER


def has_fused_loss(workload: Workload) -> bool:
    """Whether Liger has a loss for it that is taken of the head and the logits together."""
    return has_liger(workload) and "fused_linear_cross_entropy" not in LIGER_LEAVES_OUT.get(
        workload.model.family, ()
    )


def lines_of_train_py(
    workload: Workload, plan: Plan, compiled: str, fused: str = "", loss: str = ""
) -> list[str]:
    """What was planned of attention, of what lies between products, of recomputation and of the loss.

    `compiled`, `fused` and `loss` say what asks for compiled kernels, for fused ones and for a fused loss;
    where the last two are empty the script has to.
    """
    training = workload.training
    said = [f"attention: {attention_of(workload)}"]
    if training.kernels == "compiled":
        said.append(f"kernels: compiled, by {compiled}")
    elif training.kernels == "fused":
        asked = fused or "for norms, positions and activation functions: Liger's or Apex's"
        said.append(f"kernels: fused, {asked}")
    else:
        said.append("kernels: eager, modules as transformers has them")
    said.append(f"recomputation: {RECOMPUTED[Checkpointing(int(plan.activation_checkpointing))]}")
    if training.loss is not None:
        by = f", {loss or OF_THE_SCRIPT}" if training.loss == "fused" else ""
        said.append(f"loss: {LOSSES[training.loss]}{by}")
    clipped = training.gradient_clipping is not False
    said.append(f"gradients: {'clipped by their norm' if clipped else 'as they are, not clipped'}")
    if training.dropout is not None:
        said.append(f"dropout: {'on' if training.dropout else 'off'}")
    return ["Predicted with:", *(f"  {line}" for line in said)]


def attention_of(workload: Workload) -> str:
    """What computes attention, and how transformers is asked for it."""
    training, model = workload.training, workload.model
    if training.attention == "eager":
        softmax = {"fp32": ", its softmax in fp32", "16-bit": ", its softmax in 16 bits", None: ""}
        return f'eager, attn_implementation="eager"{softmax[training.softmax]}'
    if model.family in EAGER_ALONE:
        return "a fused kernel, which transformers has none of for this family"
    narrow = any(window.tokens < training.attended for window in model.windows)
    alone = training.packing and training.attended < training.sequence_length
    if training.attention_kernel == "flash-2" or model.family in EAGER_UNLESS_ASKED or narrow or alone:
        return 'a fused kernel, attn_implementation="flash_attention_2"'
    return 'a fused kernel, attn_implementation="sdpa" or "flash_attention_2"'
