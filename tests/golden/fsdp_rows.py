"""Golden rows of FSDP2's own laws, worked by hand; values are written out."""

ROWS = {
    "unsharded_group_bytes": [
        ({"root_group_params": 1e9, "layer_group_params": 2e8, "param_bytes_per_param": 2}, 2.4e9)
    ],
    "all_gather_buffer_bytes": [
        ({"buffered_params": 2e8, "param_bytes_per_param": 2, "dp_degree": 8}, 4e8),
        ({"buffered_params": 2e8, "param_bytes_per_param": 2, "dp_degree": 1}, 0),
    ],
    "unreduced_grad_bytes": [
        (  # a large vocabulary: at the end of backward 2 x 1e9 elements, less two layers that are gone
            {
                "held_root_params": 0,
                "root_group_params": 1e9,
                "layer_group_params": 2e8,
                "released_params": 4e8,
                "grad_bytes_per_param": 2,
                "copy_count": 2,
            },
            3.2e9,
        ),
        (  # a small one: during a layer, 2 x 2e8 beside the 1e8 of the root that backward has
            {
                "held_root_params": 1e8,
                "root_group_params": 1e8,
                "layer_group_params": 2e8,
                "released_params": 4e8,
                "grad_bytes_per_param": 2,
                "copy_count": 2,
            },
            1e9,
        ),
    ],
    "all_gathered_bytes": [
        ({"padded_params": 8e9, "param_loads": 2, "param_bytes_per_param": 2, "dp_degree": 8}, 28e9),
        ({"padded_params": 8e9, "param_loads": 2, "param_bytes_per_param": 2, "dp_degree": 1}, 0),
    ],
    "reduce_scattered_bytes": [
        ({"padded_params": 8e9, "grad_bytes_per_param": 4, "dp_degree": 8}, 28e9),
    ],
    "offload_copy_bytes": [
        (
            {
                "padded_params": 8e9,
                "param_loads": 2,
                "state_bytes_per_param": 4,
                "dp_degree": 8,
                "share": 0.5,
            },
            4e9,
        )
    ],
    "passed_bytes": [
        (  # gathered tensors copied apart, 4 B; of what a rank of 8 owns 6 B cast and 4 B copied
            {
                "padded_params": 8e9,
                "whole_bytes_per_param": 4,
                "own_bytes_per_param": 10,
                "dp_degree": 8,
            },
            42e9,
        )
    ],
    "clipped_bytes": [
        ({"padded_params": 8e9, "accessed_bytes_per_param": 12, "dp_degree": 8, "share": 0.5}, 6e9)
    ],
    "adam_pass_bytes": [
        ({"padded_params": 8e9, "optimizer_bytes_per_param": 28, "dp_degree": 8, "share": 0.5}, 14e9)
    ],
    "accumulated_params": [
        (  # 4 micro-steps of which 3 add, at 12 of the 28 bytes that Adam moves
            {
                "padded_params": 7e9,
                "dp_degree": 8,
                "accumulation_steps": 4,
                "added_bytes_per_param": 12,
                "optimizer_bytes_per_param": 28,
                "share": 0.5,
                "ranks_per_instance": 8,
            },
            1.125e9,
        )
    ],
}
