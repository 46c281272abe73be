"""Golden rows of the laws in ziplan/laws: numbers of the article and the paper, worked by hand.

Arguments are in base units; a value is written out, never computed from its arguments.
"""

ROWS = {
    # counts
    "layer_params": [({"d_model": 25600, "params_per_squared_width": 12}, 7_864_320_000)],
    "model_params": [
        ({"layer_count": 128, "d_model": 25600, "params_per_squared_width": 12}, 1_006_632_960_000)
    ],
    "operator_params": [
        ({"input_width": 25600, "output_width": 102400, "params_per_weight": 1}, 2_621_440_000),
        ({"input_width": 3, "output_width": 5, "params_per_weight": 2}, 30),
    ],
    "layer_bytes": [({"layer_params": 7_864_320_000, "param_bytes_per_param": 2}, 15_728_640_000)],
    "mean_layer_bytes": [({"params": 1e12, "layer_count": 128, "param_bytes_per_param": 2}, 15_625_000_000)],
    "operator_bytes": [({"operator_params": 2_621_440_000, "param_bytes_per_param": 2}, 5_242_880_000)],
    "state_bytes_per_param": [
        (
            {
                "param_bytes_per_param": 2,
                "grad_bytes_per_param": 2,
                "optimizer_state_bytes_per_param": 12,
            },
            16,
        ),
        (
            {
                "param_bytes_per_param": 2,
                "grad_bytes_per_param": 6,
                "optimizer_state_bytes_per_param": 12,
            },
            20,
        ),
    ],
    "state_bytes": [({"params": 1e12, "state_bytes_per_param": 16}, 16e12)],
    "partitioned_state_bytes": [({"state_bytes": 16e12, "dp_degree": 64}, 250e9)],
    "tokens_per_rank": [({"micro_batch_size": 16, "sequence_length": 2048}, 32768)],
    "tokens_per_step": [({"tokens_per_rank": 4096, "accumulation_steps": 4, "dp_degree": 64}, 1_048_576)],
    "flops_per_param_token": [
        (
            {
                "forward_flops_per_param_token": 2,
                "recompute_flops_per_param_token": 2,
                "backward_flops_per_param_token": 4,
            },
            8,
        ),
        (
            {
                "forward_flops_per_param_token": 2,
                "recompute_flops_per_param_token": 0,
                "backward_flops_per_param_token": 4,
            },
            6,
        ),
    ],
    "step_flops": [({"params": 1e12, "tokens_per_rank": 4096, "flops_per_param_token": 8}, 3.2768e16)],
    "attention_flops": [
        (  # forward over the full square: 4 s w T L
            {
                "layer_count": 2,
                "tokens_per_rank": 2048,
                "sequence_length": 1024,
                "attention_width": 512,
                "computed_share": 1,
                "attention_passes": 1,
                "flops_per_token_pair": 4,
            },
            8_589_934_592,
        ),
        (  # causal, with recomputation: half of it, four times
            {
                "layer_count": 2,
                "tokens_per_rank": 2048,
                "sequence_length": 1024,
                "attention_width": 512,
                "computed_share": 0.5,
                "attention_passes": 4,
                "flops_per_token_pair": 4,
            },
            17_179_869_184,
        ),
    ],
    "activation_checkpoint_bytes": [
        (
            {
                "tokens_per_rank": 4096,
                "d_model": 25600,
                "layer_count": 128,
                "layers_per_checkpoint": 2,
                "checkpoint_bytes_per_token_width": 2,
            },
            13_421_772_800,
        )
    ],
    "model_state_working_bytes": [
        (  # 16 hd^2
            {"operator_params": 2_621_440_000, "param_bytes_per_param": 2, "grad_bytes_per_param": 2},
            10_485_760_000,
        ),
        ({"operator_params": 10, "param_bytes_per_param": 3, "grad_bytes_per_param": 1}, 40),
    ],
    "activation_working_bytes": [
        (  # 4 sequences of 1024, hd 8192, 16 heads: 4096 (16 x 8192 + 2 x 16 x 1024)
            {
                "tokens_per_rank": 4096,
                "layers_per_checkpoint": 2,
                "d_model": 8192,
                "attention_heads": 16,
                "sequence_length": 1024,
                "working_bytes_per_token_width": 16,
                "score_bytes_per_token_pair": 2,
            },
            1_342_177_280,
        )
    ],
    # traffic
    "streamed_bytes_per_param": [({"param_bytes_per_param": 2, "param_loads": 3}, 6)],
    "streamed_bytes_per_param_with_gradients": [
        (
            {
                "param_bytes_per_param": 2,
                "param_loads": 3,
                "grad_bytes_per_param": 2,
                "grad_stores": 1,
            },
            8,
        ),
        (
            {
                "param_bytes_per_param": 2,
                "param_loads": 2,
                "grad_bytes_per_param": 4,
                "grad_stores": 3,
            },
            16,
        ),
    ],
    "parameter_traffic": [({"params": 1e12, "streamed_bytes_per_param": 4}, 4e12)],
    "transfer_time": [({"bytes_moved": 15_728_640_000, "link_bandwidth": 3e9}, 5.24288)],
    "compute_time": [({"flops": 3.2768e16, "sustained_flops_per_s": 125e12}, 262.144)],
    # intensity
    "arithmetic_intensity": [({"flops": 3.2768e16, "bytes_moved": 4e12}, 8192)],
    "machine_balance": [
        ({"sustained_flops_per_s": 125e12, "link_bandwidth": 2e12}, 62.5),
        ({"sustained_flops_per_s": 125e12, "link_bandwidth": 32e9}, 3906.25),
        ({"sustained_flops_per_s": 125e12, "link_bandwidth": 3e9}, 41666.666666666667),
    ],
    "intensity_per_token": [
        ({"flops_per_param_token": 8, "streamed_bytes_per_param": 4}, 2),
        ({"flops_per_param_token": 8, "streamed_bytes_per_param": 6}, 1.3333333333333333),
        ({"flops_per_param_token": 8, "streamed_bytes_per_param": 8}, 1),
    ],
    "parameter_intensity": [({"intensity_per_token": 2, "tokens_per_rank": 4096}, 8192)],
    "required_tokens": [
        ({"machine_balance": 62.5, "intensity_per_token": 2}, 31.25),
        ({"machine_balance": 3906.25, "intensity_per_token": 2}, 1953.125),
    ],
    "striped_required_tokens": [({"required_tokens": 20_800, "dp_degree": 64}, 325)],
    "hiding_margin": [({"arithmetic_intensity": 65_536, "machine_balance": 40_960}, 1.6)],
    "striped_hiding_margin": [
        ({"arithmetic_intensity": 8192, "machine_balance": 40_960, "dp_degree": 64}, 12.8)
    ],
    "intensity_shortfall": [({"arithmetic_intensity": 4096, "machine_balance": 40_960}, 10)],
    "decoding_intensity": [
        (
            {
                "forward_flops_per_param_token": 2,
                "param_bytes_per_param": 4,
                "decoded_tokens": 3,
            },
            1.5,
        )
    ],
    "optimizer_state_intensity": [
        (  # T/4
            {
                "flops_per_param_token": 8,
                "tokens_per_rank": 4096,
                "state_bytes_per_param": 16,
                "state_passes": 2,
            },
            1024,
        )
    ],
    "activation_checkpoint_intensity": [
        (  # 24 hd ci
            {
                "d_model": 8192,
                "layers_per_checkpoint": 3,
                "flops_per_param_token": 8,
                "params_per_squared_width": 12,
                "checkpoint_bytes_per_token_width": 2,
                "checkpoint_passes": 2,
            },
            589_824,
        )
    ],
    # partition
    "owner_fetch_time": [({"layer_bytes": 15_728_640_000, "link_bandwidth": 3e9}, 5.24288)],
    "striped_fetch_time": [
        ({"layer_bytes": 15_728_640_000, "dp_degree": 64, "link_bandwidth": 3e9}, 0.08192)
    ],
    "allgather_bytes": [
        ({"gathered_bytes": 15_728_640_000, "dp_degree": 64}, 15_482_880_000),
        ({"gathered_bytes": 15_728_640_000, "dp_degree": 1}, 0),
    ],
    "gather_time": [
        ({"gathered_bytes": 15_728_640_000, "dp_degree": 64, "gather_bandwidth": 25e9}, 0.6193152)
    ],
    "ring_latency": [
        # One node of 8: 14 + 7 x 1.9 us; 128 of them: 14 + 896 x 1.9 + 127 x 4 us (NCCL's LL128).
        (
            {
                "rank_count": 8,
                "node_count": 1,
                "start_latency": 14e-6,
                "hop_latency": 1.9e-6,
                "network_hop_latency": 4e-6,
            },
            27.3e-6,
        ),
        (
            {
                "rank_count": 1024,
                "node_count": 128,
                "start_latency": 14e-6,
                "hop_latency": 1.9e-6,
                "network_hop_latency": 4e-6,
            },
            2.2244e-3,
        ),
    ],
    "latency_time": [({"pass_count": 500, "ring_latency": 2.2244e-3}, 1.1122)],
    "ring_bandwidth": [
        ({"fabric_bandwidth": 300e9, "node_network_bandwidth": 25e9}, 25e9),
        ({"fabric_bandwidth": 20e9, "node_network_bandwidth": 25e9}, 20e9),
    ],
    # prefetch
    "layer_time": [({"step_compute_time": 262.144, "layer_count": 128}, 2.048)],
    "layer_forward_time": [
        (
            {
                "params": 1e12,
                "tokens_per_rank": 4096,
                "forward_flops_per_param_token": 2,
                "layer_count": 128,
                "sustained_flops_per_s": 125e12,
            },
            0.512,
        )
    ],
    "layer_backward_time": [
        (
            {
                "params": 1e12,
                "tokens_per_rank": 4096,
                "recompute_flops_per_param_token": 2,
                "backward_flops_per_param_token": 4,
                "layer_count": 128,
                "sustained_flops_per_s": 125e12,
            },
            1.536,
        )
    ],
    "prefetch_depth": [
        ({"fetch_time": 5.24288, "layer_time": 2.048}, 3),
        ({"fetch_time": 5.24288, "layer_time": 0.512}, 11),
        ({"fetch_time": 5.24288, "layer_time": 1.536}, 4),
        ({"fetch_time": 0.08192, "layer_time": 2.048}, 1),
    ],
    "prefetch_buffer_bytes": [({"prefetch_depth": 3, "layer_bytes": 15_728_640_000}, 47_185_920_000)],
    "resident_layer_bytes": [
        ({"prefetch_depth": 11, "layer_bytes": 15_728_640_000}, 188_743_680_000),
        ({"prefetch_depth": 4, "layer_bytes": 15_728_640_000}, 78_643_200_000),
    ],
    "stall_time": [
        ({"fetch_time": 5.25, "layer_time": 2.25}, 3),
        ({"fetch_time": 0.08192, "layer_time": 2.048}, 0),
    ],
    # tiling
    "tile_bytes": [({"operator_bytes": 5_242_880_000, "tile_count": 8}, 655_360_000)],
    "tiled_working_bytes": [
        ({"operator_bytes": 5_242_880_000, "tile_count": 8, "tile_buffer_count": 2}, 1_310_720_000)
    ],
    "tile_count": [
        ({"operator_bytes": 5_242_880_000, "tile_buffer_count": 2, "available_bytes": 1e9}, 11),
        ({"operator_bytes": 5_242_880_000, "tile_buffer_count": 2, "available_bytes": 40e9}, 1),
    ],
    # ceilings
    "aggregate_capacity": [
        (
            {
                "node_count": 64,
                "hbm_capacity": 0.64e12,
                "dram_capacity": 1.36e12,
                "nvme_capacity": 64e12,
            },
            4.224e15,
        )
    ],
    "tier_capacity": [({"node_count": 64, "instances_per_node": 8, "instance_capacity": 8e12}, 4.096e15)],
    "max_params_by_capacity": [
        ({"capacity": 64e12, "state_bytes_per_param": 16}, 4e12),
        ({"capacity": 4.096e15, "state_bytes_per_param": 16}, 2.56e14),
    ],
    "max_d_model_by_width": [
        (  # d = 1000 fills it: 4 x 2 x 2/8 d^2 = 2e6, and 100 x 10 d = 1e6
            {
                "available_bytes": 3e6,
                "tokens_per_rank": 100,
                "widest_params_per_squared_width": 4,
                "param_bytes_per_param": 2,
                "tile_buffer_count": 2,
                "tile_count": 8,
                "operator_bytes_per_token_width": 10,
            },
            1000,
        )
    ],
    "max_params_by_compute": [
        (  # 8 x 20 FLOP for each squared parameter: 1e6 x 1.6e18 / 160 = 1e22
            {
                "training_time": 1e6,
                "cluster_flops_per_s": 1.6e18,
                "flops_per_param_token": 8,
                "tokens_per_param": 20,
            },
            1e11,
        )
    ],
    "ceiling_gap": [({"max_params_by_capacity": 2.56e14, "max_params_by_compute": 1.28e12}, 200)],
    "training_tokens": [({"params": 2.56e14, "tokens_per_param": 20}, 5.12e15)],
    "training_flops": [
        (
            {"params": 2.56e14, "training_tokens": 5.12e15, "flops_per_param_token": 8},
            1.048576e31,
        )
    ],
    "training_time": [
        (
            {
                "params": 2.56e14,
                "training_tokens": 5.12e15,
                "flops_per_param_token": 8,
                "cluster_flops_per_s": 1e19,
            },
            1.048576e12,
        )
    ],
    "training_years": [({"training_time": 63_115_200, "year_length": 31_557_600}, 2)],
    # efficiency
    "overlap_efficiency": [
        ({"arithmetic_intensity": 8192, "machine_balance": 40_960}, 0.2),
        ({"arithmetic_intensity": 65_536, "machine_balance": 40_960}, 1),
    ],
    "partly_overlapped_time": [
        ({"longest_time": 5.0, "serial_time": 8.0, "overlap": 1.0}, 5.0),
        ({"longest_time": 5.0, "serial_time": 8.0, "overlap": 0.25}, 7.25),
    ],
    "serial_efficiency": [({"arithmetic_intensity": 8192, "machine_balance": 32_768}, 0.2)],
    "gpus_for_plain_stage3": [
        ({"state_bytes": 16e12, "usable_hbm_per_gpu": 50e9}, 320),
        ({"state_bytes": 16e12, "usable_hbm_per_gpu": 32e9}, 500),
        ({"state_bytes": 16.02e12, "usable_hbm_per_gpu": 50e9}, 321),
    ],
    "tokens_per_second": [({"tokens_per_step": 262_144, "step_time": 256}, 1024)],
    "achieved_flops_per_s": [({"flops": 3.2768e16, "step_time": 512}, 64e12)],
    "step_cost": [
        (
            {"node_hour_price": 30, "node_count": 8, "step_time": 300, "hour_length": 3600},
            20,
        )
    ],
    # contention: a DGX-2's host link alone, and a share of what the host gives to 16
    "shared_link_bandwidth": [
        ({"link_bandwidth": 12e9, "instance_bandwidth": 48e9, "user_count": 16}, 3e9),
        ({"link_bandwidth": 12e9, "instance_bandwidth": 48e9, "user_count": 2}, 12e9),
    ],
    "path_bandwidth": [
        ({"near_bandwidth": 32e9, "far_bandwidth": 3e9}, 3e9),
        ({"near_bandwidth": 2e9, "far_bandwidth": 3e9}, 2e9),
    ],
    "aggregate_bandwidth": [({"instance_bandwidth": 3e9, "instance_count": 64}, 192e9)],
    "contended_fetch_time": [({"read_bytes": 1e9, "allgather_bytes": 63e9, "root_bandwidth": 32e9}, 2)],
    "read_write_time": [
        (
            {
                "read_bytes": 18e9,
                "write_bytes": 12e9,
                "read_bandwidth": 6e9,
                "write_bandwidth": 3e9,
            },
            7,
        )
    ],
    "mixed_bandwidth": [
        (
            {
                "read_bytes": 18e9,
                "write_bytes": 10e9,
                "read_bandwidth": 9e9,
                "write_bandwidth": 2e9,
            },
            4e9,
        )
    ],
    # optimizer
    "optimizer_intensity": [({"optimizer_flops_per_param": 12, "optimizer_bytes_per_param": 24}, 0.5)],
    "optimizer_bytes_per_param": [  # Adam's 28, Lion's 20
        ({"grad_bytes_per_param": 4, "optimizer_state_bytes_per_param": 12, "access_count": 2}, 28),
        ({"grad_bytes_per_param": 4, "optimizer_state_bytes_per_param": 8, "access_count": 2}, 20),
    ],
    "cpu_adam_time": [({"params": 1e9, "cpu_adam_params_per_s": 4e9}, 0.25)],
    "cpu_adam_time_by_bandwidth": [
        ({"params": 1e9, "optimizer_bytes_per_param": 28, "dram_bandwidth": 140e9}, 0.2)
    ],
    # 8 threads, each of whose cores reads 16 GB/s: 16 B a parameter
    "cpu_adam_time_by_threads": [
        (
            {"params": 4e9, "fetched_bytes_per_param": 16, "thread_count": 8, "core_bandwidth": 16e9},
            0.5,
        )
    ],
    "optimizer_flash_time": [
        (
            {
                "params": 1e12,
                "optimizer_bytes_per_param": 24,
                "drive_count": 64,
                "drive_bandwidth": 3e9,
            },
            125,
        ),
        (
            {
                "params": 1e12,
                "optimizer_bytes_per_param": 30,
                "drive_count": 64,
                "drive_bandwidth": 3e9,
            },
            156.25,
        ),
    ],
    "amortized_optimizer_time": [({"optimizer_time": 125, "accumulation_steps": 4}, 31.25)],
    # endurance: 8 drives of 14 PB, 18 TB written every 250 s
    "drive_lifetime": [
        (
            {
                "drive_endurance": 14.4e15,
                "drive_count": 8,
                "bytes_written_per_step": 18e12,
                "step_time": 250,
            },
            1.6e6,
        )
    ],
    "bytes_written_per_day": [
        (
            {"bytes_written_per_step": 18e12, "step_time": 250, "day_length": 86_400},
            6.2208e15,
        )
    ],
    "drive_writes_per_day": [
        ({"bytes_written_per_day": 6.4e14, "drive_count": 8, "drive_capacity": 8e12}, 10)
    ],
}
