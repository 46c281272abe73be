"""FLOPs per byte: what the work offers, what the machine asks, and the margin between them."""

from __future__ import annotations

from ziplan.laws.law import law
from ziplan.units import (
    Bytes,
    BytesPerParam,
    BytesPerSecond,
    BytesPerToken,
    Count,
    Flops,
    FlopsPerByte,
    FlopsPerByteToken,
    FlopsPerParamToken,
    FlopsPerSecond,
    Params,
    Ratio,
    Tokens,
)


@law("article: The FLOPs-per-byte test every tier must pass")
def arithmetic_intensity(flops: Flops, bytes_moved: Bytes) -> FlopsPerByte:
    """FLOPs done for each byte moved."""
    return flops / bytes_moved


@law("article: The FLOPs-per-byte test every tier must pass")
def machine_balance(sustained_flops_per_s: FlopsPerSecond, link_bandwidth: BytesPerSecond) -> FlopsPerByte:
    """The intensity that hides a link of this bandwidth behind this much arithmetic."""
    return sustained_flops_per_s / link_bandwidth


@law("article: The FLOPs-per-byte test every tier must pass")
def intensity_per_token(
    flops_per_param_token: FlopsPerParamToken, streamed_bytes_per_param: BytesPerParam
) -> FlopsPerByteToken:
    """Intensity of parameter streaming for each token: 2 by the article's 4 B, 1 by the paper's 8 B."""
    return flops_per_param_token / streamed_bytes_per_param


@law("article: The FLOPs-per-byte test every tier must pass")
def parameter_intensity(intensity_per_token: FlopsPerByteToken, tokens_per_rank: Tokens) -> FlopsPerByte:
    """Intensity of parameter streaming: 2T by the article, whatever the model."""
    return intensity_per_token * tokens_per_rank


@law("article: Applying the test: which state can live where")
def required_tokens(machine_balance: FlopsPerByte, intensity_per_token: FlopsPerByteToken) -> Tokens:
    """Tokens in a micro-step that hide parameter streaming when one rank pulls over its own link."""
    return machine_balance / intensity_per_token


@law("article: Bandwidth-centric partitioning: allgather, not broadcast")
def striped_required_tokens(required_tokens: Tokens, dp_degree: Count) -> Tokens:
    """Tokens in a micro-step that hide parameter streaming when all ranks pull slices at once."""
    return required_tokens / dp_degree


@law("article: Applying the test: which state can live where")
def hiding_margin(arithmetic_intensity: FlopsPerByte, machine_balance: FlopsPerByte) -> Ratio:
    """How far the work clears a tier's bar; at 1 or more the tier can hide."""
    return arithmetic_intensity / machine_balance


@law("article: Pitfalls the synthesis creates")
def striped_hiding_margin(
    arithmetic_intensity: FlopsPerByte, machine_balance: FlopsPerByte, dp_degree: Count
) -> Ratio:
    """The margin after striping: halving the tokens and halving the ranks cost the same."""
    return dp_degree * arithmetic_intensity / machine_balance


@law("article: Applying the test: which state can live where")
def intensity_shortfall(arithmetic_intensity: FlopsPerByte, machine_balance: FlopsPerByte) -> Ratio:
    """How many times too little intensity the work offers; the inverse of the margin."""
    return machine_balance / arithmetic_intensity


@law("article: Pitfalls the synthesis creates")
def decoding_intensity(
    forward_flops_per_param_token: FlopsPerParamToken,
    param_bytes_per_param: BytesPerParam,
    decoded_tokens: Tokens,
) -> FlopsPerByte:
    """Intensity of autoregressive decoding: every weight is read for each forward of so few tokens."""
    return forward_flops_per_param_token * decoded_tokens / param_bytes_per_param


@law("arXiv:2104.07857 sec 4.1")
def optimizer_state_intensity(
    flops_per_param_token: FlopsPerParamToken,
    tokens_per_rank: Tokens,
    state_bytes_per_param: BytesPerParam,
    state_passes: Count,
) -> FlopsPerByte:
    """Intensity of the whole step against reading and writing its state once: T/4."""
    return flops_per_param_token * tokens_per_rank / (state_passes * state_bytes_per_param)


@law("arXiv:2104.07857 sec 4.1")
def activation_checkpoint_intensity(
    d_model: Count,
    layers_per_checkpoint: Count,
    flops_per_param_token: FlopsPerParamToken,
    params_per_squared_width: Params,
    checkpoint_bytes_per_token_width: BytesPerToken,
    checkpoint_passes: Count,
) -> FlopsPerByte:
    """Intensity of the step against writing and reading activation checkpoints: 24 hd ci."""
    return (
        flops_per_param_token
        * params_per_squared_width
        * d_model
        * layers_per_checkpoint
        / (checkpoint_passes * checkpoint_bytes_per_token_width)
    )
