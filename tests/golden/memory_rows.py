"""Golden rows of ziplan/laws/memory.py, worked by hand; values are written out."""

ROWS = {
    # What projects measured: GiB asked for and taken (https://github.com/vllm-project/vllm/issues/56410).
    "pinned_block_bytes": [
        ({"requested_bytes": asked * 2**30, "block_unit": 1, "block_count": 1}, taken * 2**30)
        for asked, taken in ((1.125, 2), (2.25, 4), (6, 8), (8, 8), (10, 16), (12, 16), (20.4, 32), (80, 128))
    ]
    + [({"requested_bytes": 3 * 5 * 2**20, "block_unit": 1, "block_count": 3}, 3 * 8 * 2**20)],
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
