"""FLOPs of a micro-step: what the model's own code computes, whatever the runtime."""

from __future__ import annotations

from ziplan.laws.counts import attention_flops, step_flops
from ziplan.runtimes.shared.facts import Facts

COMPUTED_SHARE = {"flash": 0.5, "eager": 1.0}
"""Share of a causal score matrix that attention computes: flash kernels skip the masked half."""

SWEEPS = {"forward": 2.0, "backward": 4.0}
"""FLOPs per parameter and token of each sweep."""


def micro_step_flops(f: Facts) -> float:
    """FLOPs of one micro-step on one GPU; full checkpointing runs the layers forward once more."""
    model, training = f.workload.model, f.workload.training
    once = SWEEPS["forward"] + SWEEPS["backward"]
    recomputed = f.full * float(model.block_matmul_params) * SWEEPS["forward"] / once
    matrices = f.derivation.apply(
        step_flops,
        "matrix products of one micro-step",
        params=float(model.matmul_params) + recomputed,
        tokens_per_rank=f.tokens,
        flops_per_param_token=once,
    )
    attention = f.derivation.apply(
        attention_flops,
        "attention scores and values of one micro-step",
        layer_count=float(model.attentions),
        sequence_length=float(training.sequence_length),
        attention_width=float(model.attention_width),
        computed_share=COMPUTED_SHARE[training.attention] * model.causal_share + (1 - model.causal_share),
        attention_passes=3.0 + f.full + f.selective,
        flops_per_token_pair=4.0,
        tokens_per_rank=f.tokens,
    )
    return matrices + attention
