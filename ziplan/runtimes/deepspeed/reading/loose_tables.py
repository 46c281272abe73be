"""What DeepSpeed looks up in plain mappings (`runtime/config.py:DeepSpeedConfig`): nothing else is seen.

Kinds here say what a key is for. DeepSpeed's config takes most of these values unread; where the kind is
checked by what uses the value, and when, is said by the rules.
"""

from __future__ import annotations

from ziplan.runtimes.deepspeed.reading.kinds import (
    ANY,
    BOOL,
    FLOAT,
    INT,
    LIST,
    MAPPING,
    TEXT,
    choice,
    optional,
)
from ziplan.runtimes.deepspeed.reading.table import Key, Section

DTYPES = choice(
    *("fp32", "float32", "float", "torch.float32", "fp16", "float16", "half", "torch.float16"),
    *("bf16", "bfloat16", "torch.bfloat16", "int8", "torch.int8"),
)
"""`runtime/config.py:DtypeEnum`."""

_SECTIONS = {
    "zero_optimization": "ZeRO: what is partitioned and where it lives",
    "fp16": "training in fp16",
    "bf16": "training in bf16",
    "bfloat16": "the old name of bf16",
    "torch_autocast": "PyTorch's autocast instead of 16-bit weights",
    "optimizer": "the optimizer, unless code gives one",
    "scheduler": "the learning rate's schedule, unless code gives one",
    "data_types": "types of gradients and buffers",
    "aio": "how NVMe is read and written",
    "activation_checkpointing": "for scripts that call deepspeed.checkpointing; the engine does not read it",
    "checkpoint": "how checkpoints are saved",
    "compile": "DeepCompile",
    "tensor_parallel": "tensor parallelism",
    "expert_parallel": "expert parallelism",
    "pipeline": "for models written as a PipelineModule",
    "hybrid_engine": "generation between steps",
    "weight_quantization": "quantized weights for inference",
    "data_efficiency": "curriculum learning and token dropping",
    "flops_profiler": "counts FLOPs of one step",
    "autotuning": "searches settings by running them",
    "comms_logger": "logs collectives",
    "tensorboard": "logs to TensorBoard",
    "wandb": "logs to Weights & Biases",
    "csv_monitor": "logs to CSV files",
    "comet": "logs to Comet",
    "timers": "times steps",
}

TOP = Section(
    "",
    "runtime/config.py:DeepSpeedConfig",
    (
        Key("train_batch_size", INT, None, "sequences for each step over all ranks", "sequences"),
        Key("train_micro_batch_size_per_gpu", INT, None, "sequences per rank and micro-step", "sequences"),
        Key("gradient_accumulation_steps", INT, None, "micro-steps for each step", "micro-steps"),
        Key("managed_gradient_accumulation", BOOL, True, "the engine counts micro-steps"),
        Key("gradient_clipping", FLOAT, 1.0, "norm that gradients are clipped to; 0 turns it off"),
        Key("prescale_gradients", BOOL, False, "divides gradients before they are reduced"),
        Key("gradient_predivide_factor", FLOAT, 1.0, "by what it divides them"),
        Key(
            "gradient_allreduce_op", choice("mean", "sum"), "mean", "how gradients of ranks are put together"
        ),
        Key(
            "communication_data_type",
            optional(choice("fp32", "fp16", "bf16")),
            None,
            "type of reduced gradients",
        ),
        Key(
            "seq_parallel_communication_data_type",
            optional(choice("fp32", "fp16", "bf16")),
            "fp32",
            "the same with sequence parallelism",
        ),
        Key("disable_allgather", BOOL, False, "read, and used by nothing"),
        Key("zero_allow_untested_optimizer", BOOL, False, "takes optimizers that ZeRO is not tested with"),
        Key(
            "zero_force_ds_cpu_optimizer", BOOL, True, "refuses an optimizer of the script's own with offload"
        ),
        Key("use_data_before_expert_parallelism", BOOL, False, "order of ranks with experts"),
        Key("steps_per_print", optional(INT), None, "steps between two logs", "steps"),
        Key("wall_clock_breakdown", BOOL, False, "times parts of a step, and waits for the GPU to do so"),
        Key("memory_breakdown", BOOL, False, "logs memory"),
        Key("dump_state", BOOL, False, "logs the engine's state"),
        Key("disable_python_gc", BOOL, False, "turns Python's garbage collection off"),
        Key("dataloader_drop_last", BOOL, False, "leaves an incomplete last batch out"),
        Key("log_level", optional(TEXT), None, "how much is logged"),
        Key("vocabulary_size", optional(INT), None, "warned about where 8 does not divide it", "tokens"),
        Key(
            "allgather_size", INT, 500_000_000, "with `zero_optimization: true` only", "elements", stages=(1,)
        ),
        Key(
            "sequence_parallel_size",
            INT,
            None,
            "ranks that share a sequence; read from a mapping only",
            "ranks",
        ),
        Key("datastates_ckpt", ANY, None, "checkpoints through DataStates"),
        *(Key(name, MAPPING, None, effect, section=name) for name, effect in _SECTIONS.items()),
    ),
)

OPTIMIZER = Section(
    "optimizer",
    "runtime/config.py:get_optimizer_params",
    (
        Key("type", optional(TEXT), None, "its name"),
        Key("params", optional(MAPPING), None, "its arguments", section="optimizer.params"),
        Key("legacy_fusion", BOOL, False, "a fused 1-bit optimizer"),
    ),
)

SCHEDULER = Section(
    "scheduler",
    "runtime/config.py:get_scheduler_params",
    (Key("type", optional(TEXT), None, "its name"), Key("params", optional(MAPPING), None, "its arguments")),
)

DATA_TYPES = Section(
    "data_types",
    "runtime/config.py:get_data_types_params",
    (
        Key("grad_accum_dtype", optional(DTYPES), None, "type of accumulated gradients; null is the model's"),
        Key("param_dtype", optional(DTYPES), None, "must be the type that is trained in"),
        Key("buffer_dtype", optional(DTYPES), None, "type of buffers"),
        Key("keep_in_fp32_modules", ANY, "auto", "modules that stay in fp32"),
    ),
)

AIO = Section(
    "aio",
    "runtime/swap_tensor/aio_config.py:get_aio_config",
    (
        Key("block_size", INT, 1_048_576, "one request; smaller shards are not swapped", "bytes"),
        Key("queue_depth", INT, 8, "requests in flight", "requests"),
        Key("intra_op_parallelism", INT, 1, "threads of one read or write", "threads"),
        Key("single_submit", BOOL, False, "hands requests over one by one"),
        Key("overlap_events", BOOL, True, "hands over while it waits"),
        Key("use_gds", BOOL, False, "reads into GPU memory (GPUDirect Storage)"),
    ),
)

ACTIVATION_CHECKPOINTING = Section(
    "activation_checkpointing",
    "runtime/activation_checkpointing/config.py:DeepSpeedActivationCheckpointingConfig",
    (
        Key("partition_activations", BOOL, False, "divides checkpoints over tensor-parallel ranks"),
        Key("number_checkpoints", optional(INT), None, "how many there are", "checkpoints"),
        Key("contiguous_memory_optimization", BOOL, False, "keeps them in one buffer"),
        Key("cpu_checkpointing", BOOL, False, "keeps them on the host"),
        Key("profile", BOOL, False, "times them"),
        Key("synchronize_checkpoint_boundary", BOOL, False, "waits for the GPU at each"),
    ),
)

TORCH_AUTOCAST = Section(
    "torch_autocast",
    "runtime/config.py:get_torch_autocast_enabled",
    (
        Key("enabled", BOOL, False, "casts operators, keeps weights in fp32"),
        Key("dtype", DTYPES, None, "what it casts to"),
        Key("lower_precision_safe_modules", LIST, None, "modules that are cast"),
    ),
)

CHECKPOINT = Section(
    "checkpoint",
    "runtime/model_checkpointing/config.py:get_checkpoint_config",
    (
        Key("tag_validation", TEXT, "WARN", "whether ranks must agree on its name: Ignore, Warn or Fail"),
        Key("load_universal", BOOL, False, "loads a universal checkpoint"),
        Key("use_node_local_storage", BOOL, False, "each node saves to its own disk"),
        Key(
            "parallel_write",
            MAPPING,
            {},
            "pipeline stages write at once",
            section="checkpoint.parallel_write",
        ),
        Key("checkpoint_serialization", BOOL, True, "writes through torch.save"),
        Key("writer", optional(MAPPING), None, "who writes", section="checkpoint.writer"),
    ),
)

PARALLEL_WRITE = Section(
    "checkpoint.parallel_write",
    "runtime/config.py:get_checkpoint_parallel_write_pipeline",
    (Key("pipeline_stage", BOOL, False, "stages write at once"),),
)

WRITER = Section(
    "checkpoint.writer",
    "runtime/model_checkpointing/config.py:get_checkpoint_writer_config",
    (
        Key("type", optional(TEXT), "FAST", "mock, python or fast"),
        Key("io_buffer_size", INT, 64 * 1024**2, "buffer on the host", "bytes"),
        Key("io_buffer_double", BOOL, True, "two of them"),
        Key("show_statistics", BOOL, False, "logs its speed"),
        Key("data_parallel", optional(TEXT), None, "replica, socket or machine"),
        Key("decoupled", BOOL, False, "writes beside training"),
        Key("io_multiplier", INT, 1, "writers for each rank"),
    ),
)

FLOPS_PROFILER = Section(
    "flops_profiler",
    "profiling/config.py:DeepSpeedFlopsProfilerConfig",
    (
        Key("enabled", BOOL, False, "profiles a step, and times parts of every step"),
        Key("recompute_fwd_factor", FLOAT, 0.0, "share of forward that is recomputed"),
        Key("profile_step", INT, 1, "which step", "steps"),
        Key("module_depth", INT, -1, "how deep"),
        Key("top_modules", INT, 1, "how many modules"),
        Key("detailed", BOOL, True, "prints every module"),
        Key("output_file", optional(TEXT), None, "where to"),
    ),
)

PIPELINE = Section(
    "pipeline",
    "runtime/config.py:get_pipeline_config",
    (
        Key("stages", ANY, "auto", "pipeline stages"),
        Key("partition", TEXT, "best", "how layers are divided"),
        Key("seed_layers", BOOL, False, "seeds each layer"),
        Key("activation_checkpoint_interval", INT, 0, "layers between checkpoints", "layers"),
        Key("pipe_partitioned", BOOL, True, "divides activations"),
        Key("grad_partitioned", BOOL, True, "divides gradients of activations"),
    ),
)

LOOSE_SECTIONS = (
    TOP,
    OPTIMIZER,
    SCHEDULER,
    DATA_TYPES,
    AIO,
    ACTIVATION_CHECKPOINTING,
    TORCH_AUTOCAST,
    CHECKPOINT,
    PARALLEL_WRITE,
    WRITER,
    FLOPS_PROFILER,
    PIPELINE,
)

REMOVED = {
    "nebula": "Nebula checkpoints are gone",
    "compression_training": "the compression library is gone",
    "amp": "Apex AMP is gone: use fp16, bf16 or torch_autocast",
    "quantize_training": "quantized training is gone",
    "sparse_gradients": "sparse reduction of embeddings is gone",
    "eigenvalue": "eigenvalues served quantized training, which is gone",
    "sparse_attention": "sparse attention is gone",
    "elasticity": "elastic training is gone: state the batch sizes",
    "graph_harvesting": "graph harvesting is gone",
    "curriculum_learning": "it is now data_efficiency.data_sampling.curriculum_learning",
    "progressive_layer_drop": "progressive layer dropping is gone",
    "zero_optimization.mics_shard_size": "MiCS is gone: zero_hpz_partition_size keeps a copy on each node",
    "zero_optimization.mics_hierarchical_params_gather": "MiCS is gone",
    "zero_optimization.zeropp_loco_param": "LoCo is gone: zero_quantized_gradients works without it",
}
"""Keys whose mere presence is refused since 0.19 (`runtime/config.py:_reject_removed_config_keys`)."""
