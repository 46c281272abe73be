"""For every rule, questions in which it has a finding, and the ones next to them in which it has none."""

from check.asked import CPU, GONE, NVME, OPTIMIZER, PARAM, ZERO, Ask

ONE_GPU = "rtx-4090-desktop"
SMALL = ("tiers.dram.capacity=128 GB",)
HALF = ("tiers.dram.capacity=512 GB",)
SHORT = {"sequence_length": 1024}
SGD = {"optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
ALLOWED = {"zero_allow_untested_optimizer": True}
KEPT = {"activation_checkpointing": "none"}
ADAPTERS = {"trainable": {"lora_rank": 8, "targets": ["q_proj"]}}
EXACT = {"pinned_rounding": False}
TRAINED = {"micro_batch_size": 1, "accumulation_steps": 8, "precision": "bf16"}
GATHERED = f"{ZERO}.stage3_gather_16bit_weights_on_model_save"
PLAN = """\
schema: ziplan.plan/1
runtime: {runtime}
zero_stage: 3
placement:
  params: {{{params}: 1.0}}
  grads: {{{optimizer}: 1.0}}
  optimizer: {{{optimizer}: 1.0}}
  checkpoints: {{hbm: 1.0}}
dp_degree: 8
micro_batch_size: 1
accumulation_steps: {steps}
activation_checkpointing: full
prefetch_depth: {depth}
sub_group_params: 100000000
param_buffer_count: 0
optimizer_buffer_count: 0
"""


def plan(params="hbm", optimizer="hbm", depth=1, steps=8, runtime="deepspeed"):
    return Ask(
        plan=PLAN.format(params=params, optimizer=optimizer, depth=depth, steps=steps, runtime=runtime)
    )


def config(*layers, **asked):
    """A DeepSpeed config: changes laid over each other."""
    changes = {}
    for layer in layers:
        changes |= layer
    return Ask(changes, **asked)


BOUND = "torchrun --nproc_per_node 8 train.py\n"
UNBOUND = "deepspeed --num_gpus 8 train.py\n"
SLOW_CORES = ("cpu.core_bandwidth=4 GB/s",)
"""What makes a thread a rank too few: eight cores of these machines update as fast as their memory allows."""
FREE = "export OMP_NUM_THREADS=16\nexport PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb:1\n" + BOUND
"""The launch scripts of a run whose ranks have one thread, and of one whose ranks have theirs."""

FIXTURES: dict[str, tuple[list[Ask], list[Ask]]] = {
    "ZP101": (
        [config({"train_micro_batch_size_per_gpu": 64}), config(cluster=ONE_GPU)],
        [config(), config(CPU, cluster="rtx-3090-x8", settings=("tiers.dram.capacity=1 TB",))],
    ),
    "ZP102": ([config(CPU, settings=SMALL)], [config(CPU)]),
    "ZP103": (
        [config(NVME, settings=("tiers.nvme.drive_count=1",), model="llama-3.1-405b")],
        [config(NVME)],
    ),
    "ZP104": (
        [config(NVME, settings=("memlock_limit=1 GB",))],
        [config(NVME, settings=("memlock_limit=1 TB",)), config(CPU, settings=("memlock_limit=1 GB",))],
    ),
    "ZP105": (
        [config(CPU, settings=("tiers.dram.capacity=230 GB",))],
        [config(), config(CPU, settings=SMALL)],
    ),
    "ZP111": (
        [config({f"{ZERO}.stage": 2, OPTIMIZER: {"device": "none"}})],
        [config(training={"loading": {"zero_init": True}})],
    ),
    "ZP112": (
        [config(CPU, settings=HALF), config(CPU, settings=HALF, launch=BOUND)],
        [config(CPU, settings=HALF, launch=FREE), config(), config(CPU, settings=HALF, training=EXACT)],
    ),
    "ZP113": (
        [config(NVME, {f"{ZERO}.sub_group_size": 1_000_000_000}, settings=HALF)],
        [config(NVME, settings=HALF), config(CPU, settings=HALF)],
    ),
    "ZP114": (
        [config(NVME, {f"{ZERO}.sub_group_size": 1_000_000_000}, settings=HALF)],
        [config(NVME, settings=HALF)],
    ),
    "ZP115": (
        [config({"train_micro_batch_size_per_gpu": 8})],
        [config(), config({"train_micro_batch_size_per_gpu": 8}, model="llama-2-7b")],
    ),
    "ZP116": (
        [config({"train_micro_batch_size_per_gpu": 16})],
        [
            config(),
            config({"train_micro_batch_size_per_gpu": 16}, training={"packing": True}),
            config({"train_micro_batch_size_per_gpu": 16}, training={"longest_sequence": 2048}),
        ],
    ),
    "ZP117": ([config({f"{ZERO}.stage3_gather_16bit_weights_on_model_save": True})], [config()]),
    "ZP118": (
        [config({"fp16": {"enabled": True}, "bf16": GONE, "data_types": GONE})],
        [config(), config({"fp16": {"enabled": True, "loss_scale": 128}, "bf16": GONE, "data_types": GONE})],
    ),
    "ZP119": (
        [
            config(CPU, model="llama-3.1-70b", settings=("tiers.dram.capacity=4 TB",)),
            config(CPU, model="llama-2-13b", cluster=ONE_GPU, settings=("tiers.dram.capacity=1 TB",)),
        ],
        [
            config(),
            config(model="llama-3.1-70b", training={"loading": {"zero_init": True}}),
            config({f"{ZERO}.stage": 2}, model="llama-3.1-70b"),
            plan(params="dram", optimizer="dram"),
        ],
    ),
    "ZP121": (
        [config(NVME, model="gpt2-medium", cluster="8x dgx-a100-80g", training=SHORT)],
        [config(NVME), config(CPU, model="gpt2-medium", training=SHORT)],
    ),
    "ZP122": (
        [config(NVME, cluster="rtx-3090-x8", settings=("gpus_per_node=7",))],
        [
            config(NVME, cluster="rtx-3090-x8"),
            config(CPU, cluster="rtx-3090-x8", settings=("gpus_per_node=7",)),
        ],
    ),
    "ZP123": (
        [config(NVME, model="llama-3.2-1b", cluster="8x dgx-a100-80g", training=ADAPTERS)],
        [config(NVME)],
    ),
    "ZP201": (
        [config(NVME, cluster=ONE_GPU, training={"sequence_length": 512})],
        [config(NVME), config(training={"sequence_length": 512})],
    ),
    "ZP202": ([config(NVME)], [config(NVME, {"train_micro_batch_size_per_gpu": 8}), config()]),
    "ZP203": (
        [config({f"{ZERO}.stage3_prefetch_bucket_size": 0}), plan(depth=0, runtime="ideal", params="dram")],
        [config(), config(NVME), config({f"{ZERO}.stage3_prefetch_bucket_size": 0}, cluster=ONE_GPU)],
    ),
    "ZP204": (
        [
            config(
                CPU,
                {
                    f"{ZERO}.stage3_max_live_parameters": 8_000_000_000,
                    f"{ZERO}.stage3_prefetch_bucket_size": 4_000_000_000,
                },
                cluster="rtx-3090-x8",
            )
        ],
        [config(), config(CPU, cluster="rtx-3090-x8")],
    ),
    "ZP205": (
        [config(NVME, {"gradient_accumulation_steps": 1})],
        [
            config(CPU, {"gradient_accumulation_steps": 16}),
            config(NVME, {"gradient_accumulation_steps": 128}),
        ],
    ),
    "ZP206": (
        [config(CPU, launch=BOUND, settings=SLOW_CORES), config(CPU, launch=UNBOUND)],
        [
            config(CPU, launch=FREE, settings=SLOW_CORES),
            config(CPU, launch=BOUND),
            config(launch=BOUND, settings=SLOW_CORES),
            config(CPU, settings=SLOW_CORES),
        ],
    ),
    "ZP207": (
        [config(NVME)],
        [
            config(
                NVME,
                {
                    f"{OPTIMIZER}.pipeline_read": True,
                    f"{OPTIMIZER}.pipeline_write": True,
                    f"{OPTIMIZER}.buffer_count": 12,
                },
            ),
            config(CPU),
        ],
    ),
    "ZP208": (
        [config(NVME, {f"{ZERO}.sub_group_size": 2_000_000_000, f"{OPTIMIZER}.pipeline_read": True})],
        [config(NVME, {f"{OPTIMIZER}.pipeline_read": True, f"{OPTIMIZER}.buffer_count": 8})],
    ),
    "ZP209": (
        [config(CPU, {"hybrid_engine": {"enabled": True}}), config(CPU, training={"sequence_length": 8})],
        [config(CPU), config({"hybrid_engine": {"enabled": True}})],
    ),
    "ZP211": (
        [config(CPU, model="gpt2-xl", training=SHORT), config(NVME)],
        [config(), config(CPU, model="llama-3.1-70b")],
    ),
    "ZP212": (
        [config(NVME, model="llama-2-70b")],
        [config(NVME, model="llama-2-70b", settings=SMALL), config(CPU, model="llama-2-70b")],
    ),
    "ZP213": (
        [config(cluster="2x dgx-a100-80g", settings=("links.network.bandwidth=10 Gbit/s",))],
        [config(cluster="2x dgx-a100-80g", training={"sequence_length": 8192}), config()],
    ),
    "ZP214": (
        [
            config(
                CPU, {"gradient_accumulation_steps": 64}, cluster=ONE_GPU, training={"sequence_length": 128}
            )
        ],
        [config(CPU, training={"sequence_length": 8192}), config()],
    ),
    "ZP215": ([config(NVME)], [config()]),
    "ZP216": (
        [config(NVME, cluster=ONE_GPU, training={"sequence_length": 512})],
        [config(NVME, {"gradient_accumulation_steps": 1}, cluster=ONE_GPU), config(NVME)],
    ),
    "ZP217": (
        [
            config({OPTIMIZER: {"device": "cpu", "pin_memory": False}}),
            config({OPTIMIZER: {**NVME[OPTIMIZER], "pin_memory": False}}),
        ],
        [config(CPU), config(NVME), config()],
    ),
    "ZP218": (
        [config({"wall_clock_breakdown": True}), config({"flops_profiler": {"enabled": True}})],
        [config({"wall_clock_breakdown": False})],
    ),
    "ZP219": (
        [config(NVME, {"gradient_accumulation_steps": 64}, training={"sequence_length": 512})],
        [config(CPU), config(), config(NVME, training={"sequence_length": 8192})],
    ),
    "ZP220": (
        [config({OPTIMIZER: {"device": "cpu"}, f"{ZERO}.stage": 2})],
        [
            config({OPTIMIZER: {"device": "cpu"}, f"{ZERO}.stage": 2, f"{ZERO}.round_robin_gradients": True}),
            config({OPTIMIZER: {"device": "cpu"}, f"{ZERO}.stage": 2}, cluster=ONE_GPU),
            config({OPTIMIZER: {"device": "cpu"}}),
            config({f"{ZERO}.stage": 2}),
        ],
    ),
    "ZP301": (
        [
            config({f"{OPTIMIZER}.buffer_size": 1}),
            config({"train_batch_size": 10}),
            config({f"{ZERO}.stage": 4}),
        ],
        [config(), config(CPU), config(NVME)],
    ),
    "ZP302": ([config({"offload_optimizer": {"device": "cpu"}})], [config(), config(CPU)]),
    "ZP303": ([config({f"{ZERO}.reduce_bucket_size": "auto"})], [config()]),
    "ZP304": ([config({f"{ZERO}.cpu_offload": True})], [config(CPU)]),
    "ZP305": (
        [
            config(
                {"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto"},
                training={"micro_batch_size": 1},
            )
        ],
        [config()],
    ),
    "ZP306": ([config({f"{ZERO}.zero_quantized_weights": True})], [config()]),
    "ZP307": (
        [config(training={"activation_checkpointing": GONE})],
        [config()],
    ),
    "ZP311": ([config(NVME, {f"{PARAM}.nvme_path": GONE})], [config(NVME), config(CPU)]),
    "ZP312": (
        [
            config(NVME, {f"{OPTIMIZER}.nvme_path": GONE}),
            config(NVME, {f"{OPTIMIZER}.nvme_path": "none"}, training=TRAINED, trainer="huggingface"),
        ],
        [config(NVME), config(CPU), config(NVME, {f"{OPTIMIZER}.nvme_path": "none"})],
    ),
    "ZP313": (
        [config(NVME, {f"{PARAM}.buffer_size": 65_667_071}), config(NVME, cluster=ONE_GPU)],
        [config(NVME, {f"{PARAM}.buffer_size": 65_667_072}), config(CPU)],
    ),
    "ZP314": (
        [config(NVME, {f"{PARAM}.buffer_count": 5, f"{ZERO}.stage3_max_reuse_distance": 1_000_000_000})],
        [config(NVME), config(NVME, {f"{PARAM}.buffer_count": 5, f"{ZERO}.stage3_max_reuse_distance": 0})],
    ),
    "ZP315": (
        [
            config(NVME, {f"{ZERO}.stage3_prefetch_bucket_size": GONE}),
            config(NVME, {f"{ZERO}.stage3_prefetch_bucket_size": 1}),
        ],
        [
            config(NVME),
            config(CPU),
            config(NVME, {f"{ZERO}.stage3_prefetch_bucket_size": 1, f"{PARAM}.max_in_cpu": 2_000_000_000}),
        ],
    ),
    "ZP316": (
        [config(NVME, {f"{ZERO}.stage3_allgather_sequential": True})],
        [
            config(NVME),
            config(CPU, {f"{ZERO}.stage3_allgather_sequential": True}),
            config(NVME, {f"{ZERO}.stage3_allgather_sequential": True}, training=KEPT),
        ],
    ),
    "ZP317": (
        [
            config(NVME, {f"{OPTIMIZER}.pipeline_read": True, f"{OPTIMIZER}.buffer_count": 7}),
            config(NVME, {f"{OPTIMIZER}.buffer_count": 3}),
        ],
        [
            config(NVME, {f"{OPTIMIZER}.pipeline_read": True, f"{OPTIMIZER}.buffer_count": 8}),
            config(NVME, {f"{OPTIMIZER}.buffer_count": 3, f"{ZERO}.sub_group_size": 2_000_000_000}),
        ],
    ),
    "ZP318": (
        [config(NVME, {"bf16.bf16_master_weights_and_grads": True})],
        [config(NVME), config(CPU, {"bf16.bf16_master_weights_and_grads": True})],
    ),
    "ZP319": (
        [config(NVME, {f"{ZERO}.zero_hpz_partition_size": 8})],
        [config(NVME), config(CPU, {f"{ZERO}.zero_hpz_partition_size": 8})],
    ),
    "ZP320": (
        [config(NVME, {f"{OPTIMIZER}.fast_init": True})],
        [config(NVME, {f"{OPTIMIZER}.fast_init": True, f"{PARAM}.buffer_size": 200_000_000}), config(NVME)],
    ),
    "ZP321": ([config(NVME, {"aio.block_size": 1000})], [config(NVME), config(CPU)]),
    "ZP322": (
        [
            config(NVME, {f"{OPTIMIZER}.super_offload": True}),
            config({f"{ZERO}.stage": 2, OPTIMIZER: {"device": "cpu", "super_offload": True}}),
        ],
        [config(CPU, {f"{OPTIMIZER}.super_offload": True}), config(CPU)],
    ),
    "ZP323": (
        [config(SGD), config(CPU, SGD), config({f"{ZERO}.stage": 1}, SGD)],
        [config(CPU), config(SGD, ALLOWED), config({f"{ZERO}.stage": 0}, SGD)],
    ),
    "ZP324": (
        [config(CPU, SGD, ALLOWED)],
        [config(CPU), config(SGD, ALLOWED)],
    ),
    "ZP331": ([config(CPU, {f"{ZERO}.stage": 2})], [config(CPU)]),
    "ZP332": (
        [config({f"{ZERO}.stage": 2, OPTIMIZER: {"device": "nvme", "nvme_path": "/local_nvme"}})],
        [config(NVME), config({f"{ZERO}.stage": 2, OPTIMIZER: {"device": "cpu"}})],
    ),
    "ZP333": ([config(NVME, {f"{PARAM}.max_in_cpu": GONE})], [config(NVME)]),
    "ZP334": (
        [config({OPTIMIZER: {"device": "cpu", "ratio": 0.5}, f"{ZERO}.sub_group_size": 2_000_000_000})],
        [config({OPTIMIZER: {"device": "cpu", "ratio": 0.5}}), config(CPU)],
    ),
    "ZP335": ([config(NVME, {"aio.block_size": 8 << 20})], [config(NVME)]),
    "ZP336": (
        [config(CPU, {"data_types": {"grad_accum_dtype": "fp32"}})],
        [config(CPU), config({"data_types": {"grad_accum_dtype": "fp32"}})],
    ),
    "ZP337": (
        [config({f"{ZERO}.reduce_bucket_size": 500_000_000}, cluster="rtx-3090-x8")],
        [config({f"{ZERO}.reduce_bucket_size": 500_000_000}), config(cluster="rtx-3090-x8")],
    ),
    "ZP338": (
        [config(model="deepseek-v2-lite")],
        [
            config(model="mixtral-8x7b", cluster="2x dgx-a100-80g"),
            config(),
            config({f"{ZERO}.leaf_module": {"classes": ["DeepseekV2MoE"]}}, model="deepseek-v2-lite"),
        ],
    ),
    "ZP341": (
        [config(training={"global_batch_size": 128}), config(training={"micro_batch_size": 2})],
        [config(training={"global_batch_size": 64}), config()],
    ),
    "ZP342": ([Ask(plan=plan().plan, cluster="2x dgx-a100-80g")], [plan()]),
    "ZP343": ([config({f"{ZERO}.overlap_comm": False})], [config()]),
    "ZP344": (
        [config(training=TRAINED, trainer="huggingface")],
        [
            config(),
            config({f"{ZERO}.stage": 2}, training=TRAINED, trainer="huggingface"),
            config({GATHERED: True}, training=TRAINED, trainer="huggingface"),
        ],
    ),
    "ZP401": (
        [config(CPU, cluster="rtx-3090-x8")],
        [config(CPU), config(CPU, cluster=ONE_GPU), config(cluster="rtx-3090-x8")],
    ),
    "ZP402": (
        [config(NVME, {f"{PARAM}.nvme_path": "/dev/shm/swap"})],
        [config(NVME), config(CPU)],
    ),
    "ZP403": (
        [config(NVME, settings=("tiers.nvme.read_bandwidth=200 GB/s",))],
        [config(NVME), config(CPU, settings=("tiers.nvme.read_bandwidth=200 GB/s",))],
    ),
    "ZP404": ([config(NVME)], [config(NVME, settings=("tiers.nvme.drive_count=4",)), config()]),
    "ZP405": (
        [config(NVME, {"aio.queue_depth": 1}, settings=("gpus_per_node=4",))],
        [config(NVME), config(CPU)],
    ),
    "ZP406": (
        [config(NVME, cluster=ONE_GPU, model="llama-3.2-1b")],
        [config(CPU, cluster=ONE_GPU, model="llama-3.2-1b"), config(NVME)],
    ),
    "ZP407": (
        [config(NVME), config(NVME, launch=BOUND)],
        [
            config(NVME, launch="ulimit -l unlimited\n" + BOUND),
            config(CPU),
            config(NVME, settings=("memlock_limit=1 TB",)),
        ],
    ),
    "ZP501": (
        [config({"bf16": GONE, "data_types": GONE}, cluster="dgx-2")],
        [config(), config(cluster="dgx-h100")],
    ),
    "ZP502": (
        [config(cluster="aws-g6.12xlarge", model="llama-3.2-1b")],
        [config(), config(cluster="dgx-h100")],
    ),
    "ZP503": ([plan(runtime="ideal")], [config()]),
    "ZP504": (
        [config({PARAM: {"device": "cpu"}}, model="llama-3.1-70b", training={"sequence_length": 128})],
        [config(), config(NVME)],
    ),
    "ZP511": (
        [
            Ask(gates={"max_step_time": "1 s"}),
            Ask(gates={"min_tokens_per_s": 1e9}),
            Ask(gates={"max_memory": 0.01}),
            Ask(gates={"max_memory": {"hbm": 0.01}}),
            Ask(gates={"max_memory": {"drm": 0.9}}),
            Ask({"train_batch_size": 7}, gates={"min_drive_lifetime": "1 year"}),
            Ask(NVME, gates={"max_stall_fraction": 0.01}),
            Ask(NVME, gates={"min_drive_lifetime": "100 years"}),
        ],
        [
            Ask(gates={"max_step_time": "1 h", "min_tokens_per_s": 1, "max_memory": 1.0}),
            Ask(gates={"max_memory": {"nvme": 0.9}}, cluster="rtx-4090-x8"),
            Ask(
                gates={"max_stall_fraction": 1.0, "max_memory": {"dram": 0.9}, "min_drive_lifetime": "1 year"}
            ),
            Ask(),
        ],
    ),
    "ZP512": (
        [config(CPU, baseline=config()), config(NVME, baseline=config(), max_regress=0.03)],
        [
            config(baseline=config(CPU)),
            config(baseline=config()),
            config(CPU, baseline=config(), max_regress=9),
        ],
    ),
}
"""Code to (failing, passing) questions."""
