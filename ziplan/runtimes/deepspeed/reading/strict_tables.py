"""The other sections that DeepSpeed has pydantic models for."""

from __future__ import annotations

from ziplan.runtimes.deepspeed.reading.kinds import (
    ANY,
    BOOL,
    INT,
    LIST,
    LOSS_SCALE,
    MAPPING,
    NEVER,
    SCALE_STEP,
    TEXT,
    choice,
    list_of,
    optional,
)
from ziplan.runtimes.deepspeed.reading.table import Key, Section

_OFF = Key("enabled", BOOL, False, "turns it on")

FP16 = Section(
    "fp16",
    "runtime/precision_config.py:DeepSpeedFP16Config",
    (
        _OFF._replace(effect="trains in fp16, with master weights in fp32"),
        Key("auto_cast", BOOL, False, "casts inputs"),
        Key("loss_scale", LOSS_SCALE, 0, "a fixed scale of the loss; 0 finds one"),
        Key("initial_scale_power", INT, 16, "the first scale, a power of 2"),
        Key("loss_scale_window", SCALE_STEP, 1000, "steps without overflow before the scale grows", "steps"),
        Key("hysteresis", INT, 2, "overflows before the scale shrinks"),
        Key("consecutive_hysteresis", BOOL, False, "counts overflows anew after a good step"),
        Key("min_loss_scale", SCALE_STEP, 1, "the least scale"),
        Key("fp16_master_weights_and_grads", BOOL, False, "keeps master weights and gradients in fp16"),
    ),
    strict=True,
)

BF16 = Section(
    "bf16",
    "runtime/precision_config.py:DeepSpeedBF16Config",
    (
        _OFF._replace(effect="trains in bf16, with master weights in fp32"),
        Key("immediate_grad_update", BOOL, False, "adds gradients to fp32 as they are made"),
        Key("check_grad_overflow", BOOL, True, "skips steps that overflow; not in stage 3"),
        Key("bf16_master_weights_and_grads", BOOL, False, "keeps master weights and gradients in bf16"),
        Key("bf16_optimizer_states", BOOL, False, "keeps the optimizer's moments in bf16"),
    ),
    strict=True,
    nullable=True,
)

BFLOAT16 = BF16._replace(path="bfloat16", nullable=False)
"""The old name, read where there is no `bf16`."""

COMPILE = Section(
    "compile",
    "compile/config.py:CompileConfig",
    (
        Key("deepcompile", BOOL, False, "compiles the model and plans its gathers and offload itself"),
        Key("autoep_non_moe", BOOL, False, "compiles what is around expert layers"),
        Key("free_activation", BOOL, False, "frees activations early"),
        Key("free_activation_threshold", INT, 10 * 1024 * 1024, "activations from this size on", "bytes"),
        Key("offload_activation", BOOL, False, "moves activations to the host"),
        Key("offload_activation_pin_memory", BOOL, True, "page-locks their buffers"),
        Key("offload_opt_states", BOOL, False, "moves optimizer state to the host between steps"),
        Key("double_buffer", BOOL, True, "two buffers"),
        Key("symmetric_memory", BOOL, False, "gathers through symmetric memory"),
        Key("debug_log", BOOL, False, "writes the graphs"),
        Key("offload_parameters", BOOL, False, "moves parameters to the host"),
        Key("sync_before_reduce", BOOL, False, "waits before a reduction"),
        Key("sync_after_reduce", BOOL, False, "waits after a reduction"),
        Key("sync_before_allgather", BOOL, False, "waits before a gather"),
        Key("sync_after_allgather", BOOL, False, "waits after a gather"),
        Key("keep_int_input_tensors", BOOL, True, "keeps the values of integer inputs"),
        Key("keep_all_input_tensors", BOOL, False, "keeps the values of all inputs"),
        Key(
            "passes",
            optional(list_of(choice("z1", "z3", "autosp", "autotp"))),
            None,
            "what is done to the graph",
        ),
    ),
    strict=True,
)

HYBRID_ENGINE = Section(
    "hybrid_engine",
    "runtime/config.py:HybridEngineConfig",
    (
        _OFF._replace(effect="generates with the model between steps"),
        Key("max_out_tokens", INT, 512, "most tokens that are generated", "tokens", low=0, exclusive=True),
        Key("inference_tp_size", INT, 1, "ranks that generate together", "ranks"),
        Key("release_inference_cache", BOOL, False, "frees the cache after generating"),
        Key("pin_parameters", BOOL, True, "keeps parameters where they are"),
        Key("tp_gather_partition_size", INT, 8, "layers that are gathered at once", "layers"),
        Key("enable_cuda_graph", BOOL, False, "records a CUDA graph"),
    ),
    strict=True,
)

COMMS_LOGGER = Section(
    "comms_logger",
    "comm/config.py:CommsLoggerConfig",
    (
        _OFF._replace(effect="logs collectives"),
        Key("prof_all", BOOL, True, "logs all of them"),
        Key("prof_ops", LIST, [], "logs these"),
        Key("verbose", BOOL, False, "logs each call"),
        Key("debug", BOOL, False, "logs who called"),
    ),
    strict=True,
)

_LOG_FILES = (
    _OFF,
    Key("output_path", TEXT, "", "folder of the logs"),
    Key("job_name", TEXT, "DeepSpeedJobName", "folder of this job's"),
)
TENSORBOARD = Section("tensorboard", "monitor/config.py:TensorBoardConfig", _LOG_FILES, strict=True)
CSV_MONITOR = Section("csv_monitor", "monitor/config.py:CSVConfig", _LOG_FILES, strict=True)
WANDB = Section(
    "wandb",
    "monitor/config.py:WandbConfig",
    (
        _OFF,
        Key("group", optional(TEXT), None, "the run's group"),
        Key("team", optional(TEXT), None, "whose it is"),
        Key("project", TEXT, "deepspeed", "the project"),
    ),
    strict=True,
)
COMET = Section(
    "comet",
    "monitor/config.py:CometConfig",
    (
        _OFF,
        Key("samples_log_interval", INT, 100, "samples between two logs", "samples"),
        Key("project", optional(TEXT), None, "the project"),
        Key("workspace", optional(TEXT), None, "the workspace"),
        Key("api_key", optional(TEXT), None, "the key"),
        Key("experiment_name", optional(TEXT), None, "the run's name"),
        Key("experiment_key", optional(TEXT), None, "the run's key"),
        Key("online", optional(BOOL), None, "sends logs as they come"),
        Key("mode", optional(TEXT), None, "a new run, or one that exists"),
    ),
    strict=True,
)

TIMERS = Section(
    "timers.throughput",
    "utils/config.py:DeepSpeedThroughputTimerConfig",
    (
        Key("enabled", BOOL, True, "times steps"),
        Key("synchronized", BOOL, True, "waits for the GPU to time them"),
    ),
    strict=True,
)

WEIGHT_QUANTIZATION = Section(
    "weight_quantization",
    "inference/config.py:WeightQuantConfig",
    (
        Key("enabled", BOOL, True, "quantizes weights for inference"),
        Key("num_bits", INT, 8, "bits of a weight", "bits"),
        Key("q_type", choice("asymmetric", "symmetric"), "symmetric", "with or without an offset"),
        Key("q_groups", INT, 1, "groups with a scale each"),
        Key("quantized_initialization", MAPPING, {}, "quantizes while loading"),
        Key("post_init_quant", MAPPING, {}, "quantizes after loading"),
    ),
    strict=True,
)

TENSOR_PARALLEL = Section(
    "tensor_parallel",
    "runtime/tensor_parallel/config.py:TPTrainingConfig",
    (
        Key("dtype", NEVER, None, "set by code alone"),
        Key("autotp_size", INT, 0, "ranks that share each layer; 0 turns it off", "ranks"),
        Key("tp_overlap_comm", BOOL, False, "reduces beside computing"),
        Key("vocab_parallel_lm_head", optional(BOOL), None, "divides the vocabulary"),
        Key("vocab_parallel_ce_backend", choice("torch", "liger"), "torch", "who computes the loss"),
        Key(
            "tp",
            MAPPING,
            None,
            "settings of inference",
            other="tensor_parallel",
            section="tensor_parallel.tp",
        ),
        Key("injection_policy_tuple", optional(LIST), None, "layers that are replaced"),
        Key("partition_config", optional(MAPPING), None, "how layers are divided"),
        Key("preset_model", optional(TEXT), None, "layers of a known model"),
        Key("keep_module_on_host", BOOL, False, "leaves loaded weights on the host"),
        Key("kernel_inject", BOOL, False, "replaces layers", other="replace_with_kernel_inject"),
    ),
    strict=True,
)

TENSOR_PARALLEL_TP = Section(
    "tensor_parallel.tp",
    "runtime/tensor_parallel/config.py:TPConfig",
    (
        Key("tp_size", INT, 1, "ranks that share each layer", "ranks"),
        Key("tp_grain_size", INT, 1, "least part of a layer"),
        Key("mpu", ANY, None, "set by code alone"),
        Key("tp_group", ANY, None, "set by code alone"),
    ),
    strict=True,
)

STRICT_SECTIONS = (
    FP16,
    BF16,
    BFLOAT16,
    COMPILE,
    HYBRID_ENGINE,
    COMMS_LOGGER,
    TENSORBOARD,
    CSV_MONITOR,
    WANDB,
    COMET,
    TIMERS,
    WEIGHT_QUANTIZATION,
    TENSOR_PARALLEL,
    TENSOR_PARALLEL_TP,
)
