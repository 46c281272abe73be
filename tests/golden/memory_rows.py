"""Golden rows of ziplan/laws/memory.py, worked by hand; values are written out."""

ROWS = {
    "sharded_bytes": [
        (  # 8 ranks of 64 keep half of 16 B for each of 1e12 parameters in their node's host memory
            {
                "params": 1e12,
                "state_bytes_per_param": 16,
                "dp_degree": 64,
                "share": 0.5,
                "ranks_per_instance": 8,
            },
            1e12,
        )
    ],
    "held_bytes": [
        (
            {"params": 1e9, "state_bytes_per_param": 2, "share": 0.5, "ranks_per_instance": 8},
            8e9,
        )
    ],
    "activation_bytes": [
        (
            {
                "tokens_per_rank": 4096,
                "layer_count": 32,
                "activation_bytes_per_token": 8192,
                "share": 0.5,
                "ranks_per_instance": 8,
            },
            4_294_967_296,
        )
    ],
    "logits_bytes": [
        (
            {"tokens_per_rank": 4096, "vocab_size": 128_256, "logit_bytes_per_token": 6},
            3_152_019_456,
        )
    ],
    "allocator_slack": [({"capacity": 80e9, "share": 0.05}, 4e9)],
}
