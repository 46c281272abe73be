"""DeepSpeed configs that people copy, by their documented keys and values.

Hugging Face: https://huggingface.co/docs/transformers/deepspeed (ZeRO-2 and ZeRO-3 with offload, NVMe).
LLaMA-Factory: https://github.com/hiyouga/LLaMA-Factory/tree/main/examples/deepspeed.
axolotl: https://github.com/axolotl-ai-cloud/axolotl/tree/main/deepspeed_configs.
"""

AUTO_BATCH = {
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
}
AUTO_FP16 = {
    "enabled": "auto",
    "loss_scale": 0,
    "loss_scale_window": 1000,
    "initial_scale_power": 16,
    "hysteresis": 2,
    "min_loss_scale": 1,
}
AUTO_ADAMW = {
    "type": "AdamW",
    "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
}
AUTO_WARMUP = {
    "type": "WarmupLR",
    "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"},
}
HF_STAGE2 = {
    "fp16": AUTO_FP16,
    "optimizer": AUTO_ADAMW,
    "scheduler": AUTO_WARMUP,
    "zero_optimization": {
        "stage": 2,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "allgather_partitions": True,
        "allgather_bucket_size": 2e8,
        "overlap_comm": True,
        "reduce_scatter": True,
        "reduce_bucket_size": 2e8,
        "contiguous_gradients": True,
    },
    "steps_per_print": 2000,
    "wall_clock_breakdown": False,
    **AUTO_BATCH,
}
_HF_STAGE3_ZERO = {
    "stage": 3,
    "overlap_comm": True,
    "contiguous_gradients": True,
    "sub_group_size": 1e9,
    "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto",
    "stage3_max_live_parameters": 1e9,
    "stage3_max_reuse_distance": 1e9,
    "stage3_gather_16bit_weights_on_model_save": True,
}
HF_STAGE3 = {
    **HF_STAGE2,
    "zero_optimization": {
        **_HF_STAGE3_ZERO,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "cpu", "pin_memory": True},
    },
}
HF_NVME = {
    **HF_STAGE2,
    "zero_optimization": {
        **_HF_STAGE3_ZERO,
        "offload_optimizer": {
            "device": "nvme",
            "nvme_path": "/local_nvme",
            "pin_memory": True,
            "buffer_count": 4,
            "fast_init": False,
        },
        "offload_param": {
            "device": "nvme",
            "nvme_path": "/local_nvme",
            "pin_memory": True,
            "buffer_count": 5,
            "buffer_size": 1e8,
            "max_in_cpu": 1e9,
        },
    },
    "aio": {
        "block_size": 262144,
        "queue_depth": 32,
        "thread_count": 1,
        "single_submit": False,
        "overlap_events": True,
    },
}
LLAMA_FACTORY_Z2_OFFLOAD = {
    **AUTO_BATCH,
    "zero_allow_untested_optimizer": True,
    "fp16": AUTO_FP16,
    "bf16": {"enabled": "auto"},
    "zero_optimization": {
        "stage": 2,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "allgather_partitions": True,
        "allgather_bucket_size": 5e8,
        "overlap_comm": False,
        "reduce_scatter": True,
        "reduce_bucket_size": 5e8,
        "contiguous_gradients": True,
        "round_robin_gradients": True,
    },
}
LLAMA_FACTORY_Z3_OFFLOAD = {
    **AUTO_BATCH,
    "zero_allow_untested_optimizer": True,
    "fp16": AUTO_FP16,
    "bf16": {"enabled": "auto"},
    "zero_optimization": {
        **_HF_STAGE3_ZERO,
        "overlap_comm": False,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "cpu", "pin_memory": True},
    },
}
AXOLOTL_ZERO3 = {
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "sub_group_size": 0,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
        "stage3_max_live_parameters": 0,
        "stage3_max_reuse_distance": 0,
        "stage3_gather_16bit_weights_on_model_save": True,
    },
    "bf16": {"enabled": True},
    "wall_clock_breakdown": False,
    **AUTO_BATCH,
}

PUBLIC = {
    "hugging face stage 2": HF_STAGE2,
    "hugging face stage 3": HF_STAGE3,
    "hugging face nvme": HF_NVME,
    "llama-factory z2 offload": LLAMA_FACTORY_Z2_OFFLOAD,
    "llama-factory z3 offload": LLAMA_FACTORY_Z3_OFFLOAD,
    "axolotl zero3 bf16": AXOLOTL_ZERO3,
}
