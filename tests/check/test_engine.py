"""Where a rule says that DeepSpeed dies, the real engine does, and it runs where no rule says so.

Each config differs in one thing from one that trains. A model of 21 million parameters and its
config are judged as they are trained, by the same file.
"""

import json

import pytest
from check.asked import GONE, changed

from engine.harness import EngineFailed, Spec, World, run
from ziplan.check.run import findings
from ziplan.cli.check_inputs import Asked, case_of
from ziplan.cli.inputs import Request

pytestmark = [pytest.mark.engine, pytest.mark.slow]

MODEL = {
    "model_type": "llama",
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 1024,
    "tie_word_embeddings": False,
    "max_position_embeddings": 64,
}
TOKENS = 2
PARAM, OPTIMIZER = "zero_optimization.offload_param", "zero_optimization.offload_optimizer"
TRAINS = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "bf16": {"enabled": True},
    "data_types": {"grad_accum_dtype": "bf16"},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": True,
        "reduce_bucket_size": 2_000_000,
        "sub_group_size": 2_000_000,
        "stage3_prefetch_bucket_size": 0,
        "stage3_max_live_parameters": 2_000_000,
        "stage3_max_reuse_distance": 0,
        "stage3_param_persistence_threshold": 100_000,
        "offload_param": {
            "device": "nvme",
            "nvme_path": "/local_nvme",
            "buffer_count": 4,
            "buffer_size": 2_000_000,
            "max_in_cpu": 0,
        },
        "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 4},
    },
    "aio": {"block_size": 1_048_576, "queue_depth": 8, "intra_op_parallelism": 1},
}
DIES = {
    # code: (what is changed, ranks, what DeepSpeed says)
    "ZP311": ({f"{PARAM}.nvme_path": GONE}, 1, "nvme_path"),
    "ZP312": ({f"{OPTIMIZER}.nvme_path": GONE}, 1, "not NoneType"),
    "ZP313": ({f"{PARAM}.buffer_size": 1_572_863}, 1, "More elements"),
    "ZP314": ({"zero_optimization.stage3_max_reuse_distance": 1_000_000_000}, 1, "Not enough buffers"),
    "ZP315": (
        {"zero_optimization.stage3_prefetch_bucket_size": 1, f"{PARAM}.buffer_count": 40},
        1,
        "already assigned swap buffer",
    ),
    "ZP316": ({"zero_optimization.stage3_allgather_sequential": True}, 1, "already assigned swap buffer"),
    "ZP317": ({f"{OPTIMIZER}.pipeline_read": True, f"{OPTIMIZER}.buffer_count": 7}, 1, "Error"),
    "ZP318": (
        {"bf16.bf16_master_weights_and_grads": True, "bf16.bf16_optimizer_states": True},
        1,
        "AssertionError",
    ),
    "ZP319": ({"zero_optimization.zero_hpz_partition_size": 2}, 2, "nvme"),
    "ZP320": ({f"{OPTIMIZER}.fast_init": True}, 1, "too small"),
    "ZP323": (
        {PARAM: GONE, OPTIMIZER: GONE, "aio": GONE, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}},
        1,
        "untested ZeRO Optimizer",
    ),
}
RECOMPUTES = {"ZP316"}
"""Where layers are recomputed."""

RUNS = {
    "gradients added up in fp32 on the host": {
        PARAM: GONE,
        f"{OPTIMIZER}": {"device": "cpu"},
        "aio": GONE,
        "gradient_accumulation_steps": 2,
        "data_types.grad_accum_dtype": "fp32",
        "zero_optimization.stage3_prefetch_bucket_size": 3_000_000,
    },
    "all kept in DRAM, so prefetch is harmless": {
        "zero_optimization.stage3_prefetch_bucket_size": 4_000_000,
        f"{PARAM}.max_in_cpu": 1_000_000_000,
    },
    "with the buffers that pipelining takes, and a sequential gather without recomputation": {
        f"{OPTIMIZER}.pipeline_read": True,
        f"{OPTIMIZER}.pipeline_write": True,
        f"{OPTIMIZER}.buffer_count": 12,
        f"{PARAM}.buffer_size": 1_572_864,
        "zero_optimization.stage3_allgather_sequential": True,
    },
}


def case_in(folder, config, ranks, recomputes=False):
    """The config as check takes it."""
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(MODEL))
    path = folder / "ds_config.json"
    path.write_text(json.dumps(config))
    training = {"sequence_length": TOKENS, "activation_checkpointing": "full" if recomputes else "none"}
    settings = (f"gpus_per_node={ranks}",)
    return case_of(
        path, Asked(Request(str(folder / "model"), "dgx-a100-80g", settings=settings, training=training))
    )


def errors(case):
    """The codes of errors that check finds."""
    assert case.plan is not None
    return {each.code for each in findings(case) if each.severity == "error"}


def trained(folder, config, ranks, recomputes=False):
    mode = "non_reentrant" if recomputes else "none"
    spec = Spec(MODEL, sequence_length=TOKENS, checkpointing=mode)
    return run(config, spec, World(ranks), folder / "run")


@pytest.mark.parametrize("code", DIES)
def test_dies_where_the_rule_fires(tmp_path, code):
    changes, ranks, said = DIES[code]
    config, recomputes = changed(TRAINS, changes), code in RECOMPUTES
    assert errors(case_in(tmp_path, config, ranks, recomputes)) == {code}
    with pytest.raises(EngineFailed, match=said):
        trained(tmp_path, config, ranks, recomputes)


@pytest.mark.parametrize("name", RUNS)
def test_runs_where_no_rule_fires_and_holds_what_is_predicted_of_its_settings(tmp_path, name):
    config = changed(TRAINS, RUNS[name])
    case = case_in(tmp_path, config, 1)
    assert not errors(case)
    done = trained(tmp_path, config, 1)
    assert len(done.losses) == 3
    read, written = case.estimate.traffic.get("nvme", (0.0, 0.0))
    pinned = sum(line.low for line in case.lines("dram") if line.pinned)
    assert sum(done.read_bytes.values()) == pytest.approx(read, rel=0.01)
    assert sum(done.write_bytes.values()) == pytest.approx(written, rel=0.01)
    assert sum(done.locked_bytes.values()) == pytest.approx(pinned, rel=0.01)
