"""Golden rows of tensor and pipeline parallelism, worked by hand; values are written out."""

ROWS = {
    "stage_params": [  # 96 layers of 1.8e9 over 16 stages, an embedding of 8e8 beside those of the first
        ({"block_params": 172.8e9, "outer_params": 8e8, "tp_degree": 8, "pp_degree": 16}, 1.45e9),
        ({"block_params": 172.8e9, "outer_params": 8e8, "tp_degree": 1, "pp_degree": 1}, 173.6e9),
    ],
    "rank_state_bytes": [  # 20 bytes with fp16 parameters, or 4 + 16/8 with the distributed optimizer
        (
            {
                "params": 1e9,
                "replicated_bytes_per_param": 4,
                "sharded_bytes_per_param": 16,
                "shard_count": 1,
            },
            20e9,
        ),
        (
            {
                "params": 1e9,
                "replicated_bytes_per_param": 4,
                "sharded_bytes_per_param": 16,
                "shard_count": 8,
            },
            6e9,
        ),
    ],
    "divided_bytes_per_token": [  # arXiv:2205.05198 eq 2 for width 6144: 34 h becomes 10 h + 24 h / 8
        (
            {"whole_bytes_per_token": 208896, "replicated_bytes_per_token": 61440, "tp_degree": 8},
            79872,
        ),
        ({"whole_bytes_per_token": 208896, "replicated_bytes_per_token": 61440, "tp_degree": 1}, 208896),
    ],
    "layers_in_flight": [  # the first stage keeps as many layers as the whole model has
        ({"layer_count": 96, "pp_degree": 8, "accumulation_steps": 64}, 96),
        ({"layer_count": 96, "pp_degree": 8, "accumulation_steps": 2}, 24),
    ],
    "interleaved_layers_in_flight": [  # 1 + 7 / (8 x 3) of the model's, or what there are of micro-batches
        ({"layer_count": 96, "pp_degree": 8, "vpp_degree": 3, "accumulation_steps": 64}, 124),
        ({"layer_count": 96, "pp_degree": 8, "vpp_degree": 3, "accumulation_steps": 8}, 96),
    ],
    "idle_micro_steps": [
        ({"pp_degree": 16, "vpp_degree": 1}, 15),
        ({"pp_degree": 16, "vpp_degree": 3}, 5),
        ({"pp_degree": 1, "vpp_degree": 1}, 0),
    ],
    "divided_flops": [({"flops": 6.4e15, "tp_degree": 8, "pp_degree": 16}, 5e13)],
    "divided_traffic": [
        ({"memory_bytes": 8e12, "replicated_share": 0.25, "tp_degree": 4, "pp_degree": 8}, 4.375e11)
    ],
    "all_reduced_bytes": [  # 8 b s h (t - 1) / t elements of 2 bytes a layer: 8 x 2048 x 12288 x 7/8 x 2
        (
            {
                "tokens_per_rank": 2048,
                "boundary_bytes_per_token": 24576,
                "layer_count": 96,
                "pp_degree": 96,
                "all_reduce_count": 4,
                "ring_passes": 2,
                "tp_degree": 8,
            },
            352321536,
        )
    ],
    "boundary_bytes": [
        (
            {
                "tokens_per_rank": 2048,
                "boundary_bytes_per_token": 24576,
                "sweep_count": 2,
                "vpp_degree": 1,
                "sender_count": 3,
            },
            301989888,
        ),
        (  # each of two pieces is sent to the next stage
            {
                "tokens_per_rank": 2048,
                "boundary_bytes_per_token": 24576,
                "sweep_count": 2,
                "vpp_degree": 2,
                "sender_count": 3,
            },
            603979776,
        ),
    ],
    "data_parallel_bytes": [
        ({"params": 1.5e9, "exchanged_bytes_per_param": 4, "dp_degree": 6, "ring_count": 8}, 4e10)
    ],
}
