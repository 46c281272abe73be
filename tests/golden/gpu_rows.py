"""Golden rows of what a GPU does in a micro-step, worked by hand; values are written out."""

ROWS = {
    "product_time": [({"flops": 4.3e14, "product_flops_per_s": 215e12}, 2)],
    "activation_traffic": [
        (  # 32 layers that keep 34 B for each of 4,096 widths, without recomputation
            {
                "tokens_per_rank": 1000,
                "layer_count": 32,
                "activation_bytes_per_token": 34 * 4096,
                "access_count": 5,
            },
            22_282_240_000,
        )
    ],
    "exposed_weight_bytes": [
        (  # 1e9 weights of 2 B and 16 tokens: 2e9 B take 1 ms of 2 TB/s, their 3.2e10 FLOPs 0.16 ms
            {
                "weight_bytes": 2e9,
                "flops": 3.2e10,
                "product_flops_per_s": 2e14,
                "memory_bandwidth": 2e12,
            },
            1.68e9,
        ),
        (  # and 1,600 tokens: the products take longer
            {
                "weight_bytes": 2e9,
                "flops": 3.2e12,
                "product_flops_per_s": 2e14,
                "memory_bandwidth": 2e12,
            },
            0,
        ),
    ],
    "hook_time": [({"module_visits": 870, "hook_latency": 5e-4}, 0.435)],
}
