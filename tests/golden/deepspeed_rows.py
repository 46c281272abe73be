"""Golden rows of DeepSpeed's own laws, worked by hand; values are written out."""

ROWS = {
    "resident_param_bytes": [
        (
            {
                "zero_stage": 3,
                "params": 8e9,
                "owned_params": 1e9,
                "param_bytes_per_param": 2,
                "share": 0.5,
            },
            1e9,
        ),
        (
            {
                "zero_stage": 2,
                "params": 8e9,
                "owned_params": 1e9,
                "param_bytes_per_param": 2,
                "share": 1,
            },
            16e9,
        ),
    ],
    "coalesced_fetch_bytes": [
        (
            {
                "zero_stage": 3,
                "fetched_params": 2e8,
                "param_bytes_per_param": 2,
                "dp_degree": 8,
            },
            4e8,
        ),
        (
            {
                "zero_stage": 3,
                "fetched_params": 2e8,
                "param_bytes_per_param": 2,
                "dp_degree": 1,
            },
            0,
        ),
        (
            {
                "zero_stage": 2,
                "fetched_params": 2e8,
                "param_bytes_per_param": 2,
                "dp_degree": 8,
            },
            0,
        ),
    ],
    "reduce_bucket_bytes": [
        (
            {
                "zero_stage": 2,
                "reduce_bucket_params": 5e8,
                "grad_bytes_per_param": 2,
                "bucket_count": 3,
            },
            3e9,
        ),
        (
            {
                "zero_stage": 0,
                "reduce_bucket_params": 5e8,
                "grad_bytes_per_param": 2,
                "bucket_count": 3,
            },
            0,
        ),
    ],
    "resident_grad_bytes": [
        (
            {
                "zero_stage": 2,
                "params": 8e9,
                "grad_bytes_per_param": 2,
                "dp_degree": 4,
                "share": 0.5,
            },
            2e9,
        ),
        (
            {
                "zero_stage": 1,
                "params": 8e9,
                "grad_bytes_per_param": 2,
                "dp_degree": 4,
                "share": 0.5,
            },
            16e9,
        ),
    ],
    "resident_optimizer_bytes": [
        (
            {
                "zero_stage": 1,
                "params": 8e9,
                "optimizer_state_bytes_per_param": 12,
                "dp_degree": 4,
                "share": 0.5,
            },
            12e9,
        ),
        (
            {
                "zero_stage": 0,
                "params": 8e9,
                "optimizer_state_bytes_per_param": 12,
                "dp_degree": 4,
                "share": 1,
            },
            96e9,
        ),
    ],
    "gradient_norm_bytes": [
        (
            {
                "largest_shard_params": 1e9,
                "norm_bytes_per_param": 8,
                "norm_chunk": 25e7,
            },
            2e9,
        ),
        (
            {
                "largest_shard_params": 1e8,
                "norm_bytes_per_param": 8,
                "norm_chunk": 25e7,
            },
            8e8,
        ),
    ],
    "param_swap_buffer_bytes": [
        (
            {
                "param_buffer_count": 5,
                "param_buffer_params": 1e8,
                "param_bytes_per_param": 2,
                "share": 0.5,
                "ranks_per_instance": 8,
            },
            4e9,
        )
    ],
    "param_write_back_bytes": [
        (
            {
                "dp_degree": 4,
                "sub_group_params": 1e8,
                "param_bytes_per_param": 2,
                "share": 0.5,
                "ranks_per_instance": 8,
            },
            3.2e9,
        )
    ],
    "optimizer_swap_buffer_bytes": [
        (
            {
                "optimizer_buffer_count": 12,
                "sub_group_params": 1e8,
                "buffer_bytes_per_param": 4,
                "share": 0.5,
                "ranks_per_instance": 8,
            },
            19.2e9,
        )
    ],
    "gathered_param_bytes": [
        ({"zero_stage": 3, "live_params": 1e9, "param_bytes_per_param": 2}, 2e9),
        ({"zero_stage": 2, "live_params": 1e9, "param_bytes_per_param": 2}, 0),
    ],
    "step_gradient_bytes": [
        (
            {
                "stepped_params": 1e9,
                "grad_bytes_per_param": 2,
                "fp32_bytes_per_param": 4,
                "share": 0.5,
            },
            3e9,
        )
    ],
    "gathered_bytes_per_step": [
        (
            {
                "zero_stage": 3,
                "fetched_params": 24e9,
                "param_bytes_per_param": 2,
                "dp_degree": 8,
            },
            42e9,
        ),
        (
            {
                "zero_stage": 2,
                "fetched_params": 24e9,
                "param_bytes_per_param": 2,
                "dp_degree": 8,
            },
            0,
        ),
    ],
    "reduced_bytes": [
        (
            {
                "params": 8e9,
                "grad_bytes_per_param": 2,
                "dp_degree": 8,
                "passes": 2,
            },
            28e9,
        )
    ],
    "host_link_bytes": [
        (
            {
                "params": 8e9,
                "bytes_per_param": 4,
                "dp_degree": 16,
                "share": 0.5,
            },
            1e9,
        )
    ],
    "bucket_passes": [
        # 2.4 buckets are three; an all-reduce goes around twice; nothing trained takes none.
        ({"params": 1.2e9, "bucket_params": 5e8, "passes": 1}, 3),
        ({"params": 1e9, "bucket_params": 5e8, "passes": 2}, 4),
        ({"params": 0, "bucket_params": 5e8, "passes": 1}, 0),
    ],
    "joined_copy_bytes": [
        ({"zero_stage": 3, "joined_params": 1e9, "param_bytes_per_param": 2, "dp_degree": 8}, 4e9),
        ({"zero_stage": 3, "joined_params": 1e9, "param_bytes_per_param": 2, "dp_degree": 1}, 0),
        ({"zero_stage": 2, "joined_params": 1e9, "param_bytes_per_param": 2, "dp_degree": 8}, 0),
    ],
    "swept_gradient_bytes": [
        ({"params": 1e9, "grad_bytes_per_param": 2, "access_count": 6}, 12e9),
        ({"params": 1e9, "grad_bytes_per_param": 4, "access_count": 3}, 12e9),
    ],
    "swept_shard_bytes": [
        ({"params": 8e9, "bytes_per_param": 46, "dp_degree": 4, "share": 1}, 92e9),
        ({"params": 8e9, "bytes_per_param": 46, "dp_degree": 4, "share": 0.25}, 23e9),
    ],
    "view_time": [
        ({"tensor_count": 300, "dp_degree": 1024, "views_per_rank": 2, "view_latency": 2e-6}, 1.2288),
        ({"tensor_count": 300, "dp_degree": 1, "views_per_rank": 2, "view_latency": 2e-6}, 0),
    ],
    "owners_at_once": [
        # A bucket within one shard; over a third of eight; over two nodes of eight; over all of 32.
        ({"params": 8e9, "dp_degree": 16, "reduce_bucket_params": 5e7, "ranks_per_node": 16}, 1),
        ({"params": 8e9, "dp_degree": 64, "reduce_bucket_params": 3.75e8, "ranks_per_node": 8}, 1),
        ({"params": 8e9, "dp_degree": 256, "reduce_bucket_params": 5e8, "ranks_per_node": 8}, 16),
        ({"params": 1e9, "dp_degree": 32, "reduce_bucket_params": 2e9, "ranks_per_node": 8}, 32),
    ],
    "awaited_bytes": [
        ({"own_bytes": 2e9, "dp_degree": 16, "owners_at_once": 1}, 30e9),
        ({"own_bytes": 2e9, "dp_degree": 16, "owners_at_once": 8}, 2e9),
        ({"own_bytes": 2e9, "dp_degree": 16, "owners_at_once": 16}, 0),
    ],
    "checked_gradients": [({"params": 8e9, "dp_degree": 16, "share": 1}, 0.5e9)],
    # Half a billion gradients by four threads, each of half a billion a second.
    "check_time": [({"gradients": 0.5e9, "check_rate": 0.5e9, "threads_per_rank": 4}, 0.25)],
    "swapped_bytes": [({"elements": 1e9, "bytes_per_param": 18, "share": 0.5}, 9e9)],
}
