"""How much there is: parameters, tokens, FLOPs, bytes of state and of activations."""

from __future__ import annotations

from ziplan.laws.law import law, minimum
from ziplan.units import (
    Bytes,
    BytesPerParam,
    BytesPerToken,
    BytesPerTokenPair,
    Count,
    Flops,
    FlopsPerParamToken,
    FlopsPerTokenPair,
    Params,
    Ratio,
    Seconds,
    Tokens,
)


@law("PyTorch: the host launches kernel after kernel, the GPU computes them in turn")
def launch_time(kernel_count: Count, launch_latency: Seconds) -> Seconds:
    """Time that the host takes to launch so many kernels, whatever they compute."""
    return kernel_count * launch_latency


@law("arXiv:2104.07857 sec 3")
def layer_params(d_model: Count, params_per_squared_width: Params) -> Params:
    """Parameters of one transformer layer: 12 for every square of its width."""
    return params_per_squared_width * d_model**2


@law("arXiv:2104.07857 sec 3")
def model_params(layer_count: Count, d_model: Count, params_per_squared_width: Params) -> Params:
    """Parameters of all transformer layers, embeddings aside."""
    return layer_count * params_per_squared_width * d_model**2


@law("article: Memory-centric tiling: operators bigger than the device")
def operator_params(input_width: Count, output_width: Count, params_per_weight: Params) -> Params:
    """Parameters of one matrix: one for each pair of an input and an output."""
    return params_per_weight * input_width * output_width


@law("article: Bandwidth-centric partitioning: allgather, not broadcast")
def layer_bytes(layer_params: Params, param_bytes_per_param: BytesPerParam) -> Bytes:
    """Bytes of one layer's parameters in the precision that computes."""
    return param_bytes_per_param * layer_params


@law("article: Bandwidth-centric partitioning: allgather, not broadcast")
def mean_layer_bytes(params: Params, layer_count: Count, param_bytes_per_param: BytesPerParam) -> Bytes:
    """Bytes of a layer when the whole model is spread evenly over its layers."""
    return param_bytes_per_param * params / layer_count


@law("article: Memory-centric tiling: operators bigger than the device")
def operator_bytes(operator_params: Params, param_bytes_per_param: BytesPerParam) -> Bytes:
    """Bytes of one matrix in the precision that computes."""
    return param_bytes_per_param * operator_params


@law("article: The ceiling that is advertised, and the one that binds")
def state_bytes_per_param(
    param_bytes_per_param: BytesPerParam,
    grad_bytes_per_param: BytesPerParam,
    optimizer_state_bytes_per_param: BytesPerParam,
) -> BytesPerParam:
    """Persistent bytes of a parameter: itself, its gradient, its optimizer state (2 + 2 + 12)."""
    return param_bytes_per_param + grad_bytes_per_param + optimizer_state_bytes_per_param


@law("article: The ceiling that is advertised, and the one that binds")
def state_bytes(params: Params, state_bytes_per_param: BytesPerParam) -> Bytes:
    """Persistent bytes of all training state."""
    return state_bytes_per_param * params


@law("article: What ZeRO-Infinity adds on top of stage 3")
def partitioned_state_bytes(state_bytes: Bytes, dp_degree: Count) -> Bytes:
    """State that one rank holds when stage 3 divides it over all ranks."""
    return state_bytes / dp_degree


@law("article: The FLOPs-per-byte test every tier must pass")
def tokens_per_rank(micro_batch_size: Count, sequence_length: Tokens) -> Tokens:
    """Tokens that one rank works through in one micro-step (the article's T)."""
    return micro_batch_size * sequence_length


@law("arXiv:2104.07857 sec 8")
def tokens_per_step(tokens_per_rank: Tokens, accumulation_steps: Count, dp_degree: Count) -> Tokens:
    """Tokens of one optimizer step over all ranks."""
    return tokens_per_rank * accumulation_steps * dp_degree


@law("article: The FLOPs-per-byte test every tier must pass")
def flops_per_param_token(
    forward_flops_per_param_token: FlopsPerParamToken,
    recompute_flops_per_param_token: FlopsPerParamToken,
    backward_flops_per_param_token: FlopsPerParamToken,
) -> FlopsPerParamToken:
    """FLOPs for each parameter and token: 2 + 2 + 4 with recomputation, 2 + 0 + 4 without."""
    return forward_flops_per_param_token + recompute_flops_per_param_token + backward_flops_per_param_token


@law("article: The FLOPs-per-byte test every tier must pass")
def step_flops(params: Params, tokens_per_rank: Tokens, flops_per_param_token: FlopsPerParamToken) -> Flops:
    """FLOPs of one rank's micro-step in the matrices: 8 P T with recomputation, 6 P T without."""
    return flops_per_param_token * params * tokens_per_rank


@law("arXiv:2307.08691 sec 4.1")
def attention_flops(
    layer_count: Count,
    tokens_per_rank: Tokens,
    sequence_length: Tokens,
    attention_width: Count,
    computed_share: Ratio,
    attention_passes: Count,
    flops_per_token_pair: FlopsPerTokenPair,
) -> Flops:
    """FLOPs of attention's two products of activations, which no parameter count shows.

    4 for each pair of tokens and unit of width (scores, then values); `computed_share` is 1 for
    the full square and 0.5 where the causal half is skipped; `attention_passes` is 3 for forward
    and backward, 4 with recomputation.
    """
    return (
        flops_per_token_pair
        * sequence_length
        * attention_width
        * tokens_per_rank
        * layer_count
        * computed_share
        * attention_passes
    )


@law("arXiv:2310.06825 sec 2 (sliding window attention)")
def windowed_share(window_length: Tokens, sequence_length: Tokens) -> Ratio:
    """Share of a sequence's causal pairs of tokens within a window that slides along with the later.

    All where the window is as long as the sequence; a quarter of it sees 7 of 16.
    """
    return minimum(1.0, window_length / sequence_length) * (2 - minimum(1.0, window_length / sequence_length))


@law("transformers 5 masking_utils.py:chunked_overlay")
def chunked_share(window_length: Tokens, sequence_length: Tokens) -> Ratio:
    """The same where a token sees no more than its own chunk of the sequence."""
    return minimum(1.0, window_length / sequence_length)


@law("arXiv:2104.07857 sec 3")
def activation_checkpoint_bytes(
    tokens_per_rank: Tokens,
    d_model: Count,
    layer_count: Count,
    layers_per_checkpoint: Count,
    checkpoint_bytes_per_token_width: BytesPerToken,
) -> Bytes:
    """Bytes of the layer inputs kept for recomputation."""
    return checkpoint_bytes_per_token_width * tokens_per_rank * d_model * layer_count / layers_per_checkpoint


@law("arXiv:2104.07857 sec 3")
def model_state_working_bytes(
    operator_params: Params, param_bytes_per_param: BytesPerParam, grad_bytes_per_param: BytesPerParam
) -> Bytes:
    """GPU memory that the parameters and gradients of the widest operator need while it runs."""
    return operator_params * (param_bytes_per_param + grad_bytes_per_param)


@law("arXiv:2104.07857 sec 3")
def activation_working_bytes(
    tokens_per_rank: Tokens,
    layers_per_checkpoint: Count,
    d_model: Count,
    attention_heads: Count,
    sequence_length: Tokens,
    working_bytes_per_token_width: BytesPerToken,
    score_bytes_per_token_pair: BytesPerTokenPair,
) -> Bytes:
    """GPU memory of the activations between two checkpoints, attention scores written out."""
    return (
        tokens_per_rank
        * layers_per_checkpoint
        * (
            working_bytes_per_token_width * d_model
            + score_bytes_per_token_pair * attention_heads * sequence_length
        )
    )
