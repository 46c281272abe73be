"""What a GPU does in a micro-step: what the model's own code computes and moves, whatever the runtime."""

from __future__ import annotations

from collections.abc import Iterator

from ziplan.hardware.rates import (
    ATTENTION,
    FLASH_2,
    IDLE,
    MATRIX,
    UNKNOWN,
    matrix_rate,
    tier_rate,
)
from ziplan.laws.counts import attention_flops, step_flops
from ziplan.laws.law import maximum
from ziplan.laws.memory import logits_bytes
from ziplan.laws.traffic import activation_traffic, exposed_weight_bytes
from ziplan.runtimes.runtime import Demand, total
from ziplan.runtimes.schedule import Parts
from ziplan.runtimes.shared.compute_waves import idle_of
from ziplan.runtimes.shared.facts import Facts
from ziplan.runtimes.shared.windows import seen_share
from ziplan.workload.loss import INFERRED_MOVED_LOGIT_BYTES, MOVED_LOGIT_BYTES
from ziplan.workload.model import Layer, Model

KERNELS = {None: ATTENTION, "flash-2": FLASH_2}
"""What computes fused attention, by its kernel: one rate where none is named."""

COMPUTED_SHARE = {"flash": 0.5, "eager": 1.0}
"""Share of a causal score matrix that attention computes: flash kernels skip the masked half.

They skip what lies outside of a window too (arXiv:2310.06825 sec 2).
"""

SWEEP = 2.0
"""FLOPs per parameter and token of one product with a matrix, forward or for one of its two gradients."""

SCORES_FORWARD, MASKS_FORWARD = 10.0, 2.0
"""Accesses of an attention score in forward where kernels are eager, of its element and of masks of one byte.

Written by the product, then read and written by scale, causal mask, softmax and dropout, read by the
product with the values; the two masks are read or written beside (modeling_gpt2.py of transformers 4,
Megatron-LM 1.1).
"""

SCORES_BACKWARD, MASKS_BACKWARD = 13.0, 2.0
"""The same in backward: the probabilities are read, their gradient is written by the product; dropout, mask
and scale read and write one, the softmax reads two and writes one, two products read the last.

They are 0.43 s of the 2.2 s in which a V100 trains 1.2e9 parameters of width 1,536 on 8 x 1,024 tokens
without fused kernels (arXiv:1909.08053 section 5.1), of which its rate of matrix products is what is left.
"""

COMPUTE, WAVES, FUSED, MOVED = "compute", "partial waves", "attention", "GPU memory"
"""Terms of what the GPU does in turn: matrix products and what they leave idle, attention, the rest."""


def micro_step_flops(f: Facts) -> float:
    """FLOPs of one micro-step on one GPU, of every kind."""
    return matrix_flops(f) + attention_flops_of(f)


def gpu_work(f: Facts) -> tuple[Demand, ...]:
    """What one GPU does in a micro-step, one after the other.

    Matrix products run at the rate of matrices, fused attention at that of its kernels. Norms,
    activation functions, residuals, masks, scores that are written out and the loss compute next to
    nothing: they take the time of their bytes, which no product hides.
    """
    matrices, attention = matrix_flops(f), attention_flops_of(f)
    idle = idle_in_waves(f, f.workload.model)
    moved = moved_by_layers(f) + moved_by_matrices(f, matrices, idle)
    return (*products(f, matrices, attention, idle), Demand(MOVED, f"{f.gpu}.read", moved))


def products(f: Facts, matrices: float, attention: float, idle: float) -> tuple[Demand, ...]:
    """What computes the FLOPs of matrices and of attention, where fused by its own kernels, and idles."""
    fused = f.workload.training.attention == "flash"
    return (
        Demand(COMPUTE, MATRIX, matrices if fused else matrices + attention),
        Demand(WAVES, IDLE, idle),
        Demand(FUSED, KERNELS[f.workload.training.attention_kernel], attention if fused else 0.0),
    )


def moved_by_layers(f: Facts) -> float:
    """Bytes through the GPU's memory of layers' activations and of scores that are written out."""
    return _activations(f) + _scores(f)


def moved_by_matrices(f: Facts, flops: float, idle: float) -> float:
    """Bytes through the GPU's memory of logits and loss, and of weights that products do not hide."""
    return moved_by_loss(f) + _weights(f, flops, idle)


def matrix_flops(f: Facts) -> float:
    """FLOPs of one micro-step's products with matrices.

    A matrix takes part in forward, once more where full checkpointing recomputes its layer, in the
    gradient of its input where something before it is trained, and in its own gradient where it is
    trained itself: 6 or 8 FLOPs for a parameter and token when all are.
    """
    model = f.workload.model
    parts = (
        ("matrix products of forward", float(model.matmul_params)),
        ("matrix products of recomputation", _recomputed(f)),
        ("matrix products for gradients of inputs", f.by_reach(lambda swept: swept.input_gradients)),
        ("matrix products for gradients of weights", f.by_reach(lambda swept: swept.weight_gradients)),
    )
    return total(
        f.derivation.apply(
            step_flops, label, params=params, tokens_per_rank=f.tokens, flops_per_param_token=SWEEP
        )
        for label, params in parts
    )


def forward_share(f: Facts) -> float:
    """Share of a micro-step's products with matrices that is forward's."""
    forward = float(f.workload.model.matmul_params)
    gradients = f.by_reach(lambda swept: swept.input_gradients + swept.weight_gradients)
    return forward / maximum(forward + _recomputed(f) + gradients, 1.0)


def _recomputed(f: Facts) -> float:
    """Parameters of the matrices whose products recomputation makes again."""
    model = f.workload.model
    again = float(model.block_matmul_params) - f.stops_early * last_matrices(model)
    return f.full * f.by_reach(lambda swept: swept.layers) * again


def idle_in_waves(f: Facts, model: Model) -> float:
    """FLOPs that a micro-step's products with a model's matrices, or a GPU's slice of them, leave undone."""
    matrices = max(1.0, float(model.block_matmul_params))
    reached = f.by_reach(lambda swept: swept.layers)
    return idle_of(f, model, SWEEP, f.full * reached * (1 - f.stops_early * last_matrices(model) / matrices))


def last_matrices(model: Model) -> float:
    """Parameters of the matrices that recomputation of their layer stops before."""
    blocks = [section for section in model.sections if section.block]
    return float(sum(stopped_before(layer) * s.repeat for s in blocks for layer in s.layers))


def stopped_before(layer: Layer) -> int:
    """Multiply-adds for a token of a layer's last matrix: nothing needs its product a second time.

    `torch.utils.checkpoint` without reentrance, since PyTorch 2.1, ends when all that backward needs
    has been saved again, and a linear saves its input before it multiplies (`set_checkpoint_early_stop`).
    """
    last = next((operator for operator in reversed(layer) if operator.matmul_params), None)
    return last.matmul_params if last is not None and last.kind == "linear" else 0


def attention_flops_of(f: Facts) -> float:
    """FLOPs of one micro-step's attention scores and their products with values."""
    model, training = f.workload.model, f.workload.training
    reached = f.by_reach(lambda swept: swept.layers)
    seen = seen_share(model, training.attended) if training.attention == "flash" else 1.0
    return f.derivation.apply(
        attention_flops,
        "attention scores and values of one micro-step",
        layer_count=float(model.attentions),
        sequence_length=training.attended,
        attention_width=float(model.attention_width),
        computed_share=seen * COMPUTED_SHARE[training.attention] * model.causal_share
        + (1 - model.causal_share),
        attention_passes=1.0 + reached * (2.0 + f.full + f.selective),
        flops_per_token_pair=4.0,
        tokens_per_rank=f.tokens,
    )


def _activations(f: Facts) -> float:
    """Bytes of the layers' activations and their gradients, kernel by kernel but for matrix products."""
    passes, reached = f.passes, f.by_reach(lambda swept: swept.layers)
    swept = (
        ("activations moved in forward", passes.forward, 1.0),
        ("activations moved in recomputation", passes.forward, reached * f.full),
        ("activations and their gradients moved in backward", passes.backward, reached),
    )
    return total(
        f.derivation.apply(
            activation_traffic,
            label,
            tokens_per_rank=f.tokens,
            layer_count=float(f.workload.model.layer_count),
            activation_bytes_per_token=each,
            access_count=accesses,
        )
        for label, each, accesses in swept
    )


def _scores(f: Facts) -> float:
    """Bytes of attention scores where they are written out, operator by operator."""
    model, training = f.workload.model, f.workload.training
    if training.attention == "flash":
        return 0.0
    reached = f.by_reach(lambda swept: swept.layers)
    forward = SCORES_FORWARD * f.element + MASKS_FORWARD
    backward = SCORES_BACKWARD * f.element + MASKS_BACKWARD
    return f.derivation.apply(
        activation_traffic,
        "attention scores moved in all sweeps",
        tokens_per_rank=f.tokens,
        layer_count=float(model.attentions),
        activation_bytes_per_token=float(model.attention_heads) * training.attended,
        access_count=forward * (1.0 + reached * (f.full + f.selective)) + reached * backward,
    )


def moved_by_loss(f: Facts) -> float:
    """Bytes of logits and loss, each tensor of each kernel read or written once."""
    model, loss = f.workload.model, f.workload.training.loss
    if loss is None and f.kernels == "compiled":
        loss = "fused"
    each = MOVED_LOGIT_BYTES[loss] if model.trainable_params else INFERRED_MOVED_LOGIT_BYTES
    return f.derivation.apply(
        logits_bytes,
        "logits and loss of one micro-step",
        tokens_per_rank=f.tokens,
        vocab_size=model.logits_share * float(model.vocab_size),
        logit_bytes_per_token=each,
    )


def _weights(f: Facts, flops: float, idle: float) -> float:
    """Bytes of weights that a product of few tokens waits for: every product reads or writes them once.

    They are hidden as long as the product takes, the time in which it leaves the GPU `idle` included.
    """
    node, model = f.cluster.node, f.workload.model
    rate = matrix_rate(node, f.workload.precision).value
    memory = tier_rate(f.cluster, f.gpu, "read").value
    if UNKNOWN in (rate, memory) or not model.matmul_params:
        return 0.0
    # All experts are read, however few of them a token is sent to.
    passes = flops / (SWEEP * f.tokens * model.matmul_params)
    experts = sum(o.params * o.count for o in model.operators if o.kind == "experts")
    dense = sum(o.matmul_params * o.count for o in model.operators if o.kind != "experts")
    return f.derivation.apply(
        exposed_weight_bytes,
        "weights that few tokens do not hide",
        weight_bytes=f.element * passes * float(dense + experts),
        flops=flops + idle,
        product_flops_per_s=rate,
        memory_bandwidth=memory,
    )


def share_of_work(f: Facts, parts: Parts, share: float) -> Iterator[tuple[str, str, float]]:
    """(term, resource, amount) of a share of what the GPU does in a micro-step, matrices first."""
    attention = KERNELS[f.workload.training.attention_kernel]
    for term, resource in ((COMPUTE, MATRIX), (WAVES, IDLE), (FUSED, attention), (MOVED, f"{f.gpu}.read")):
        amount = parts.of(term, resource, share)
        if amount or resource != IDLE:
            yield term, resource, amount


def work_flops(parts: Parts) -> float:
    """FLOPs of a micro-step's GPU work, of every kind."""
    return parts.of(COMPUTE, MATRIX, 1.0) + sum(parts.of(FUSED, kernel, 1.0) for kernel in KERNELS.values())
