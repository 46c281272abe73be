"""What becomes of a law: plans are worked out with it, or the article's example, or it stands for itself."""

from __future__ import annotations

from typing import Final, Literal

from ziplan.laws.law import Law

Use = Literal["plans", "article", "background"]

ARTICLE: Final = frozenset(
    {
        "ceiling_gap",
        "decoding_intensity",
        "flops_per_param_token",
        "gather_time",
        "intensity_shortfall",
        "layer_backward_time",
        "layer_params",
        "layer_time",
        "operator_bytes",
        "operator_params",
        "optimizer_flash_time",
        "optimizer_intensity",
        "overlap_efficiency",
        "prefetch_buffer_bytes",
        "serial_efficiency",
        "state_bytes",
        "state_bytes_per_param",
        "streamed_bytes_per_param_with_gradients",
        "striped_required_tokens",
        "tile_bytes",
        "tiled_working_bytes",
        "training_flops",
        "training_years",
    }
)
"""Laws that `ziplan explain article` applies, and no plan."""

BACKGROUND: Final = frozenset(
    {
        "achieved_flops_per_s",
        "activation_checkpoint_bytes",
        "activation_checkpoint_intensity",
        "activation_working_bytes",
        "aggregate_bandwidth",
        "aggregate_capacity",
        "amortized_optimizer_time",
        "arithmetic_intensity",
        "bytes_written_per_day",
        "contended_fetch_time",
        "drive_writes_per_day",
        "mean_layer_bytes",
        "mixed_bandwidth",
        "model_params",
        "model_state_working_bytes",
        "optimizer_state_intensity",
        "partitioned_state_bytes",
        "read_write_time",
        "stall_time",
        "tile_count",
        "tokens_per_second",
    }
)
"""Laws of the literature that are held against its figures in the tests, and that nothing applies."""

WORDS: Final[dict[Use, str]] = {
    "plans": "applied to plans",
    "article": "applied to the article's example, to no plan",
    "background": "background: held against the figures of its source, applied to no plan",
}


def use_of(law: Law) -> Use:
    """What applies a law."""
    return "article" if law.name in ARTICLE else "background" if law.name in BACKGROUND else "plans"
