"""FLOPs of a micro-step: what the model's own code computes, whatever the runtime."""

from __future__ import annotations

from ziplan.laws.counts import attention_flops, step_flops
from ziplan.runtimes.runtime import total
from ziplan.runtimes.shared.facts import Facts

COMPUTED_SHARE = {"flash": 0.5, "eager": 1.0}
"""Share of a causal score matrix that attention computes: flash kernels skip the masked half."""

SWEEP = 2.0
"""FLOPs per parameter and token of one product with a matrix, forward or for one of its two gradients."""


def micro_step_flops(f: Facts) -> float:
    """FLOPs of one micro-step on one GPU.

    A matrix takes part in forward, once more where full checkpointing recomputes its layer, in the
    gradient of its input where something before it is trained, and in its own gradient where it is
    trained itself: 6 or 8 FLOPs for a parameter and token when all are.
    """
    model, training = f.workload.model, f.workload.training
    reached = f.by_reach(lambda swept: swept.layers)
    parts = (
        ("matrix products of forward", float(model.matmul_params)),
        ("matrix products of recomputation", f.full * reached * float(model.block_matmul_params)),
        ("matrix products for gradients of inputs", f.by_reach(lambda swept: swept.input_gradients)),
        ("matrix products for gradients of weights", f.by_reach(lambda swept: swept.weight_gradients)),
    )
    matrices = total(
        f.derivation.apply(
            step_flops, label, params=params, tokens_per_rank=f.tokens, flops_per_param_token=SWEEP
        )
        for label, params in parts
    )
    attention = f.derivation.apply(
        attention_flops,
        "attention scores and values of one micro-step",
        layer_count=float(model.attentions),
        sequence_length=training.attended,
        attention_width=float(model.attention_width),
        computed_share=COMPUTED_SHARE[training.attention] * model.causal_share + (1 - model.causal_share),
        attention_passes=1.0 + reached * (2.0 + f.full + f.selective),
        flops_per_token_pair=4.0,
        tokens_per_rank=f.tokens,
    )
    return matrices + attention
