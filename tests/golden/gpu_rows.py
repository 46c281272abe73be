"""Golden rows of what a GPU does in a micro-step, worked by hand; values are written out."""

ROWS = {
    "product_time": [({"flops": 4.3e14, "product_flops_per_s": 215e12}, 2)],
    "wave_stretch": [
        (  # NVIDIA's example of waves: 1,792 x 1,792 in tiles of 256 x 128 is 98 of 108, one wave
            {
                "rows": 1792,
                "columns": 1792,
                "tile_length": 256,
                "tile_width": 128,
                "small_tile_share": 0.5,
                "multiprocessors": 108,
            },
            108 / 98,
        ),
        (  # 2,048 x 256 lying is 8 x 2 long tiles and two waves of 8, standing 16 x 1 as many; square ones
            # are 32, four waves of half the size at 0.8 of the rate
            {
                "rows": 2048,
                "columns": 256,
                "tile_length": 256,
                "tile_width": 128,
                "small_tile_share": 0.8,
                "multiprocessors": 8,
            },
            1,
        ),
        (  # 3 x 3 long tiles lying are 5 waves of 2, of 256 each, standing 6
            {
                "rows": 768,
                "columns": 384,
                "tile_length": 256,
                "tile_width": 128,
                "small_tile_share": 0.5,
                "multiprocessors": 2,
            },
            5 * 2 / 9,
        ),
        (  # the same, turned: now the tiles that stand are the better ones
            {
                "rows": 384,
                "columns": 768,
                "tile_length": 256,
                "tile_width": 128,
                "small_tile_share": 0.5,
                "multiprocessors": 2,
            },
            5 * 2 / 9,
        ),
        (  # and with 4 multiprocessors, small tiles at the full rate: 5 waves of 128, which 3 of 256 are not
            {
                "rows": 768,
                "columns": 384,
                "tile_length": 256,
                "tile_width": 128,
                "small_tile_share": 1,
                "multiprocessors": 4,
            },
            5 * 4 / 18,
        ),
        (  # 18 square tiles are one full wave of 18 at 0.9 of the rate; long ones are 9 or 12
            {
                "rows": 768,
                "columns": 384,
                "tile_length": 256,
                "tile_width": 128,
                "small_tile_share": 0.9,
                "multiprocessors": 18,
            },
            1 / 0.9,
        ),
    ],
    "idle_flops": [({"flops": 8e12, "wave_stretch": 1.25}, 2e12)],
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
    "launch_time": [({"kernel_count": 4000, "launch_latency": 7e-6}, 0.028)],
    "hook_time": [({"module_visits": 870, "hook_latency": 5e-4}, 0.435)],
}
