"""The `zero_optimization` section and the sections inside it (`runtime/zero/config.py`)."""

from __future__ import annotations

import sys

from ziplan.runtimes.deepspeed.leaves import LEAF_CLASSES
from ziplan.runtimes.deepspeed.reading.kinds import (
    BOOL,
    DEVICE,
    FLOAT,
    INT,
    INTERVAL,
    MAPPING,
    PATH,
    STAGE,
    TEXT_OR_TEXTS,
    UPDATE_INTERVAL,
    choice,
    optional,
)
from ziplan.runtimes.deepspeed.reading.table import BELOW_STAGE3, PARTITIONED, STAGE3, Key, Section

ELEMENTS = "elements of unpartitioned tensors"
SHARD_ELEMENTS = "elements of one rank's shards"

_STAGE3 = (
    Key("sub_group_size", INT, 1_000_000_000, "what the optimizer steps at a time", SHARD_ELEMENTS, low=0),
    Key(
        "stage3_prefetch_bucket_size",
        INT,
        50_000_000,
        "what is gathered ahead of use; 0 turns reading ahead from NVMe off too",
        ELEMENTS,
        "prefetch_bucket_size",
        low=0,
    ),
    Key(
        "stage3_param_persistence_threshold",
        INT,
        100_000,
        "tensors up to this size stay gathered",
        ELEMENTS,
        "param_persistence_threshold",
        low=0,
    ),
    Key(
        "stage3_model_persistence_threshold",
        INT,
        sys.maxsize,
        "most that may stay gathered for being small",
        ELEMENTS,
        "model_persistence_threshold",
        low=0,
    ),
    Key(
        "stage3_max_live_parameters",
        INT,
        1_000_000_000,
        "gathered parameters from which on nothing is fetched ahead",
        ELEMENTS,
        "max_live_parameters",
        low=0,
    ),
    Key(
        "stage3_max_reuse_distance",
        INT,
        1_000_000_000,
        "a parameter used again within this many stays gathered",
        ELEMENTS,
        "max_reuse_distance",
        low=0,
    ),
    Key(
        "stage3_gather_16bit_weights_on_model_save",
        BOOL,
        False,
        "gathers the whole model on rank 0 to save it",
        other="gather_16bit_weights_on_model_save",
    ),
    Key(
        "stage3_module_granularity_threshold",
        INT,
        0,
        "modules with fewer parameters for each part are fetched whole",
        "parameters per module",
        "module_granularity_threshold",
    ),
    Key(
        "stage3_use_all_reduce_for_fetch_params",
        BOOL,
        False,
        "gathers by an all-reduce of a buffer of zeros",
        other="use_all_reduce_for_fetch_params",
    ),
    Key(
        "stage3_allgather_sequential",
        BOOL,
        False,
        "gathers tensor by tensor, without the flat buffer; sets prefetching to 1 element",
        other="allgather_sequential",
    ),
    Key(
        "stage3_gather_fp16_weights_on_model_save",
        BOOL,
        False,
        "deprecated",
        instead="stage3_gather_16bit_weights_on_model_save",
    ),
    Key("zero_hpz_partition_size", INT, 1, "ranks of a second partition of the weights", "ranks", low=0),
    Key("zero_quantized_weights", BOOL, False, "gathers weights in int8"),
    Key("zero_quantized_nontrainable_weights", BOOL, False, "keeps frozen weights quantized"),
    Key("zero_quantized_gradients", BOOL, False, "reduces gradients in integers between nodes"),
    Key("memory_efficient_linear", BOOL, True, "replaces the linear function so that weights are not kept"),
    Key("pipeline_loading_checkpoint", BOOL, False, "loads checkpoints in pipeline mode"),
    Key("override_module_apply", BOOL, True, "gathers parameters for nn.Module.apply"),
    Key("log_trace_cache_warnings", BOOL, False, "logs when the order of modules changes"),
    Key("enable_sanity_checks", BOOL, False, "checks itself while it runs"),
    Key("save_muon_momentum_buffer_in_memory", BOOL, False, "keeps Muon's momentum from NVMe"),
)

_BELOW_STAGE3 = (
    Key("use_multi_rank_bucket_allreduce", BOOL, True, "one all-reduce for the buckets of all ranks"),
    Key("allgather_partitions", BOOL, True, "gathers updated weights at once, not by broadcasts"),
    Key("allgather_bucket_size", INT, 500_000_000, "what is gathered at once after a step", ELEMENTS, low=0),
    Key("compute_grad_norm", BOOL, True, "computes the norm of all gradients"),
    Key("ignore_unused_parameters", BOOL, True, "goes on where a parameter gets no gradient"),
    Key("round_robin_gradients", BOOL, False, "divides the copy of gradients to the host between ranks"),
    Key("parameter_alignment", BOOL, False, "pads tensors to 16 bytes"),
    Key("legacy_stage1", BOOL, False, "an old stage 1"),
)

_PARTITIONED = (
    Key("contiguous_gradients", BOOL, True, "copies gradients into one buffer as they are made"),
    Key("reduce_scatter", BOOL, True, "reduces to the owner, not to everyone"),
    Key(
        "reduce_bucket_size",
        INT,
        500_000_000,
        "gradients that are reduced at once",
        ELEMENTS,
        low=0,
        exclusive=True,
    ),
    Key("overlap_comm", optional(BOOL), None, "reduces on a stream of its own; null is true in stage 3 only"),
    Key("load_from_fp32_weights", BOOL, True, "loads master weights in fp32 from a checkpoint"),
    Key("elastic_checkpoint", BOOL, False, "checkpoints for other numbers of ranks; not in stage 3"),
    Key(
        "offload_optimizer",
        optional(MAPPING),
        None,
        "where the optimizer's state lives",
        section="zero_optimization.offload_optimizer",
    ),
    Key(
        "cpu_offload",
        optional(BOOL),
        None,
        "deprecated: the optimizer on the host",
        instead="offload_optimizer",
    ),
    Key("cpu_offload_use_pin_memory", optional(BOOL), None, "deprecated, and without effect"),
    Key(
        "zenflow",
        optional(MAPPING),
        None,
        "an optimizer step that runs beside training",
        section="zero_optimization.zenflow",
    ),
)

ZERO = Section(
    "zero_optimization",
    "runtime/zero/config.py:DeepSpeedZeroConfig",
    (
        Key("stage", STAGE, 0, "what is partitioned: 1 the optimizer, 2 and gradients, 3 and parameters"),
        *(key._replace(stages=PARTITIONED) for key in _PARTITIONED),
        *(key._replace(stages=BELOW_STAGE3) for key in _BELOW_STAGE3),
        *(
            key._replace(stages=STAGE3)
            for key in (
                Key(
                    "offload_param",
                    optional(MAPPING),
                    None,
                    "where parameters live",
                    section="zero_optimization.offload_param",
                ),
                Key(
                    "cpu_offload_param",
                    optional(BOOL),
                    None,
                    "deprecated: parameters on the host",
                    instead="offload_param",
                ),
                *_STAGE3,
                Key(
                    "leaf_module",
                    optional(MAPPING),
                    None,
                    "modules that are fetched whole",
                    section="zero_optimization.leaf_module",
                ),
            )
        ),
    ),
    strict=True,
)

OFFLOAD_PARAM = Section(
    "zero_optimization.offload_param",
    "runtime/zero/offload_config.py:DeepSpeedZeroOffloadParamConfig",
    (
        Key("device", DEVICE, "none", "where parameters live"),
        Key("nvme_path", optional(PATH), None, "folder of the swap files"),
        Key("buffer_count", INT, 5, "buffers that NVMe is read into", "buffers", low=0),
        Key("buffer_size", INT, 100_000_000, "size of each buffer", SHARD_ELEMENTS, low=0),
        Key(
            "max_in_cpu",
            INT,
            1_000_000_000,
            "parameters that stay in DRAM, though the device is nvme",
            SHARD_ELEMENTS,
            low=0,
        ),
        Key("pin_memory", BOOL, True, "page-locks the copy of each tensor (the flat one always is)"),
    ),
    strict=True,
    nullable=True,
)

OFFLOAD_OPTIMIZER = Section(
    "zero_optimization.offload_optimizer",
    "runtime/zero/offload_config.py:DeepSpeedZeroOffloadOptimizerConfig",
    (
        Key("device", DEVICE, "none", "where the optimizer's state lives"),
        Key("nvme_path", optional(PATH), None, "folder of the swap files"),
        Key("buffer_count", INT, 4, "swap buffers, each as large as the largest sub-group", "buffers", low=0),
        Key("pin_memory", BOOL, True, "page-locks the buffers"),
        Key("pipeline_read", BOOL, False, "reads the next sub-group while one is stepped"),
        Key("pipeline_write", BOOL, False, "writes the last sub-group while one is stepped"),
        Key("fast_init", BOOL, False, "initializes the state on NVMe from parameter buffers"),
        Key(
            "ratio",
            FLOAT,
            1.0,
            "share of the sub-groups on the host; the rest is on the GPU",
            "0 to 1",
            low=0,
            high=1,
        ),
        Key("super_offload", BOOL, False, "a CPU Adam in a process of its own, on CUDA"),
        Key(
            "cpuadam_cores_perc", FLOAT, 0.8, "share of the cores for super_offload", "0 to 1", low=0, high=1
        ),
    ),
    strict=True,
    nullable=True,
)

ZENFLOW = Section(
    "zero_optimization.zenflow",
    "runtime/zenflow/zenflow_config.py:ZenFlowConfig",
    (
        Key(
            "topk_ratio",
            FLOAT,
            0.1,
            "share of gradient columns kept on the GPU",
            low=0,
            high=1,
            exclusive=True,
        ),
        Key("select_strategy", choice("auto", "step", "epoch"), "auto", "when columns are chosen anew"),
        Key("select_interval", INTERVAL, "auto", "how often columns are chosen anew"),
        Key("update_interval", UPDATE_INTERVAL, "auto", "how often the other gradients are applied", "steps"),
        Key("overlap_step", BOOL, False, "steps on the CPU beside training"),
        Key("offload", BOOL, False, "keeps the chosen columns' state on the host"),
        Key("auto_ratio", FLOAT, 0.99, "threshold of the automatic strategy", low=0, high=1),
        Key("full_warm_up_rounds", INT, 0, "steps before anything is chosen", "steps"),
        Key("pt_reserved_cores_perc", FLOAT, 0.5, "share of the cores left to PyTorch", low=0, high=1),
        Key("steps_per_epoch", optional(INT), None, "set while it runs, not by users", "steps"),
    ),
    strict=True,
    nullable=True,
)

LEAF_MODULE = Section(
    "zero_optimization.leaf_module",
    "runtime/zero/leaf_module_config.py:DeepSpeedZeroLeafModuleConfig",
    (
        Key(
            "classes",
            TEXT_OR_TEXTS,
            list(LEAF_CLASSES),
            "classes of modules that are fetched whole",
        ),
        Key("names", TEXT_OR_TEXTS, [], "names of modules that are fetched whole"),
        Key("name_suffixes", TEXT_OR_TEXTS, [], "ends of such names"),
    ),
    strict=True,
    nullable=True,
)

ZERO_SECTIONS = (ZERO, OFFLOAD_PARAM, OFFLOAD_OPTIMIZER, ZENFLOW, LEAF_MODULE)
