"""Remarks on configs: each kind, with its place, its words and what to do."""

import pytest
from reading.asking import reading_of, taken, told

PLAIN = {"train_micro_batch_size_per_gpu": 1}


def zero(**keys):
    return {**PLAIN, "zero_optimization": keys}


def remarks(tmp_path, config, kind, **question):
    return told(reading_of(tmp_path, config, **{"trainer": "none", **question}), kind)


def test_places_are_those_of_the_keys(tmp_path):
    text = '{\n  "train_batch_size": 1,\n  "zero_optimization": {\n    "stage": 3,\n    "bogus": 1\n  }\n}\n'
    (remark,) = reading_of(tmp_path, text, trainer="none").remarks[-1:]
    assert (remark.kind, remark.line, remark.column) == ("rejected", 5, 5)
    assert (
        str(remark) == "ds_config.json:5:5: rejected: bogus: DeepSpeed knows no such key in zero_optimization"
    )


def test_comments_and_bare_keys_are_read_where_deepspeed_reads(tmp_path):
    text = "{\n  # one GPU\n  train_batch_size: 1,\n  zero_optimization: {stage: 3},\n}"
    assert reading_of(tmp_path, text, trainer="none").accepted
    refused = reading_of(tmp_path, text, trainer="accelerate", micro_batch_size=1)
    assert any("strict JSON" in remark.message and remark.line == 2 for remark in refused.remarks)


def test_repeated_keys(tmp_path):
    text = '{"train_batch_size": 1,\n "zero_optimization": {"stage": 2,\n "stage": 3}}'
    alone = reading_of(tmp_path, text, trainer="none")
    assert not alone.accepted
    assert "DeepSpeed refuses" in told(alone, "rejected")["stage"]
    trained = reading_of(tmp_path, text, trainer="huggingface", micro_batch_size=1, precision="bf16")
    assert "takes the last" in told(trained, "ignored")["stage"]
    assert trained.config["zero_optimization"]["stage"] == 3


@pytest.mark.parametrize(
    ("config", "path", "words"),
    [
        (zero(stage=4), "zero_optimization.stage", "expected 0, 1, 2 or 3, not 4"),
        (zero(reduce_bucket_size="5e8"), "zero_optimization.reduce_bucket_size", "expected a whole number"),
        (zero(reduce_bucket_size=0), "zero_optimization.reduce_bucket_size", "must be more than 0, not 0"),
        (zero(offload_optimizer=True), "zero_optimization.offload_optimizer", "expected a mapping, not true"),
        (zero(stage=3, offload_param={"device": "disk"}), "zero_optimization.offload_param.device", '"nvme"'),
        (zero(mics_shard_size=8), "zero_optimization.mics_shard_size", "MiCS is gone"),
        ({**PLAIN, "elasticity": {}}, "elasticity", "elastic training is gone"),
        (
            zero(stage=2, offload_optimizer={"ratio": 0.5}),
            "zero_optimization.offload_optimizer.ratio",
            "stage 3",
        ),
        (zero(stage=0, compute_grad_norm=False), "zero_optimization.compute_grad_norm", "stages 1 and 2"),
        ({**PLAIN, "fp16": {"enabled": True}, "bf16": {"enabled": True}}, "fp16.enabled", "both enabled"),
        ({**PLAIN, "communication_data_type": "fp8"}, "communication_data_type", "fp32 or fp16 or bf16"),
        ({"train_batch_size": "auto"}, "train_batch_size", "of at least 1, not 'auto'"),
        ({"steps_per_print": 1}, "", "neither train_batch_size nor train_micro_batch_size_per_gpu"),
    ],
)
def test_rejected_as_the_config_is_read(tmp_path, config, path, words):
    reading = reading_of(tmp_path, config, trainer="none")
    assert words in told(reading, "rejected")[path]
    assert all(remark.moment == "config" for remark in reading.remarks if remark.kind == "rejected")
    assert reading.settings is None
    assert not reading.accepted


@pytest.mark.parametrize(
    ("config", "path", "moment"),
    [
        ({**PLAIN, "gradient_clipping": "auto"}, "gradient_clipping", "training"),
        (
            {**PLAIN, "optimizer": {"type": "Adam", "params": {"lr": "auto"}}},
            "optimizer.params.lr",
            "training",
        ),
        (
            {**PLAIN, "optimizer": {"type": "Adam", "params": {"max_grad_norm": 1}}},
            "optimizer.params.max_grad_norm",
            "start",
        ),
        (zero(stage=1, legacy_stage1=True), "zero_optimization.legacy_stage1", "start"),
        (zero(offload_optimizer={"device": "cpu"}), "zero_optimization.offload_optimizer", "training"),
        ({**PLAIN, "data_types": {"grad_accum_dtype": "fp8"}}, "data_types.grad_accum_dtype", "start"),
    ],
)
def test_rejected_later(tmp_path, config, path, moment):
    reading = reading_of(tmp_path, config, trainer="none")
    (remark,) = [remark for remark in reading.remarks if remark.kind == "rejected"]
    assert (remark.path, remark.moment) == (path, moment)
    assert taken(config)[1].accepted


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({**PLAIN, "offload_optimizer": {"device": "cpu"}}, "offload_optimizer"),
        ({**PLAIN, "stage": 3}, "stage"),
        (zero(stage=2, offload_param={"device": "cpu"}), "zero_optimization.offload_param"),
        (zero(stage=2, stage3_max_live_parameters=1), "zero_optimization.stage3_max_live_parameters"),
        (zero(stage=2, sub_group_size=1), "zero_optimization.sub_group_size"),
        (zero(stage=3, allgather_bucket_size=1), "zero_optimization.allgather_bucket_size"),
        (zero(stage=1, offload_optimizer={"device": "nvme"}), "zero_optimization.offload_optimizer.device"),
        (
            zero(stage=3, offload_optimizer={"device": "nvme", "nvme_path": "/x", "ratio": 0.5}),
            "zero_optimization.offload_optimizer.ratio",
        ),
        (
            zero(stage=3, offload_optimizer={"device": "cpu", "pipeline_read": True}),
            "zero_optimization.offload_optimizer.pipeline_read",
        ),
        (
            zero(stage=3, offload_param={"device": "cpu", "buffer_count": 9}),
            "zero_optimization.offload_param.buffer_count",
        ),
        ({**zero(stage=3), "aio": {"block_size": 1 << 20}}, "aio"),
        ({**PLAIN, "activation_checkpointing": {"cpu_checkpointing": True}}, "activation_checkpointing"),
        ({**PLAIN, "data_types": {"grad_acc": "fp32"}}, "data_types.grad_acc"),
        ({**PLAIN, "bf16": {}, "bfloat16": {"enabled": True}}, "bfloat16"),
    ],
)
def test_ignored(tmp_path, config, path):
    reading = reading_of(tmp_path, config, trainer="none")
    assert list(told(reading, "ignored")) == [path]
    assert reading.accepted


@pytest.mark.parametrize(
    "config",
    [
        zero(stage=2, stage3_max_live_parameters=1e9),
        zero(stage=2, offload_param={"device": "none"}),
        zero(stage=3, offload_optimizer={"device": "cpu", "buffer_count": 4, "nvme_path": None}),
        zero(stage=3, overlap_comm=True, reduce_scatter=True),
    ],
)
def test_what_says_the_default_is_not_worth_a_word(tmp_path, config):
    assert not told(reading_of(tmp_path, config, trainer="none"), "ignored")


def test_deprecated_keys_set_what_they_stand_for(tmp_path):
    reading = reading_of(tmp_path, zero(stage=3, cpu_offload=True, cpu_offload_param=True), trainer="none")
    assert set(told(reading, "deprecated")) == {
        "zero_optimization.cpu_offload",
        "zero_optimization.cpu_offload_param",
    }
    assert reading.settings.offload_optimizer.device == "cpu"
    assert reading.settings.offload_param.device == "cpu"
    both = reading_of(tmp_path, zero(cpu_offload=False, offload_optimizer={}), trainer="none")
    assert "refuses it beside" in told(both, "rejected")["zero_optimization.cpu_offload"]
    old = reading_of(tmp_path, {**PLAIN, "zero_optimization": True}, trainer="none")
    assert old.settings.stage == 1


def test_misspelt_keys_name_the_key_that_was_meant(tmp_path):
    reading = reading_of(tmp_path, zero(stage3_param_persitance_threshold=1), trainer="none")
    (remark,) = [remark for remark in reading.remarks if remark.kind == "rejected"]
    assert remark.fix == "did you mean `stage3_param_persistence_threshold`?"
    reading = reading_of(tmp_path, {**PLAIN, "zero_optimisation": {"stage": 3}}, trainer="none")
    (remark,) = [remark for remark in reading.remarks if remark.kind == "ignored"]
    assert remark.fix == "did you mean `zero_optimization`?"


@pytest.mark.parametrize(
    ("sizes", "ranks", "batch"),
    [
        ({"train_batch_size": 64}, 8, (64, 8, 1)),
        ({"train_micro_batch_size_per_gpu": 2}, 8, (16, 2, 1)),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2}, 8, (64, 2, 4)),
        ({"train_batch_size": 64, "gradient_accumulation_steps": 4}, 8, (64, 2, 4)),
        ({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}, 8, (64, 2, 4)),
        ({"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4}, 1, None),
        ({"train_batch_size": 4}, 8, None),
        ({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 0}, 8, None),
    ],
)
def test_batch_arithmetic(tmp_path, sizes, ranks, batch):
    reading = reading_of(tmp_path, sizes, ranks=ranks, trainer="none")
    assert reading.batch == batch
    assert reading.accepted == (batch is not None)
    if batch is None and "train_micro_batch_size_per_gpu" not in sizes:
        assert "train_batch_size must be" in told(reading, "rejected")["train_batch_size"]


@pytest.mark.parametrize("size", [1.5, 1e300, 10**60, 10**190])
def test_a_batch_that_is_no_number_of_sequences(tmp_path, size):
    """DeepSpeed's arithmetic holds for it, and no loader makes it."""
    config = {"train_micro_batch_size_per_gpu": size, "gradient_accumulation_steps": 2}
    if size > 1e180:
        config |= {"gradient_accumulation_steps": size}
    reading = reading_of(tmp_path, config, ranks=2, trainer="none")
    assert taken(config, 2)[1].accepted
    assert "no number of sequences" in next(iter(told(reading, "rejected").values()))
    assert (reading.batch, reading.settings) == (None, None)


def test_mismatches_with_the_trainers_arguments_name_both(tmp_path):
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_clipping": 0.5,
        "zero_optimization": {"stage": 2},
    }
    given = {"per_device_train_batch_size": 2, "deepspeed": config, "bf16": True}
    refused = told(reading_of(tmp_path, given, "args.json", ranks=2), "rejected")
    assert "4 here, and per_device_train_batch_size is 2" in refused["train_micro_batch_size_per_gpu"]
    assert "0.5 here, and max_grad_norm is 1.0" in refused["gradient_clipping"]


def test_accumulation_that_the_config_leaves_out_is_one(tmp_path):
    config = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}
    given = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 8,
        "deepspeed": config,
        "bf16": True,
    }
    reading = reading_of(tmp_path, given, "args.json", ranks=2)
    assert "makes 1" in told(reading, "ignored")["gradient_accumulation_steps"]
    assert reading.batch == (4, 2, 1)


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({**PLAIN, "optimizer": {"type": "Lamb"}}, "optimizer.type"),
        (zero(stage=3, zero_hpz_partition_size=8), "zero_optimization.zero_hpz_partition_size"),
        (zero(stage=3, zero_quantized_weights=True), "zero_optimization.zero_quantized_weights"),
        (
            zero(stage=3, leaf_module={"name_suffixes": ["mlp"]}),
            "zero_optimization.leaf_module.name_suffixes",
        ),
        ({**PLAIN, "tensor_parallel": {"autotp_size": 2}}, "tensor_parallel.autotp_size"),
        ({**PLAIN, "compile": {"deepcompile": True}}, "compile.deepcompile"),
        ({**PLAIN, "torch_autocast": {"enabled": True, "dtype": "bfloat16"}}, "torch_autocast"),
    ],
)
def test_what_is_not_planned_is_said(tmp_path, config, path):
    assert list(remarks(tmp_path, config, "not_planned")) == [path]


def test_types(tmp_path):
    bf16 = {**zero(stage=3), "bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "float32"}}
    types = reading_of(tmp_path, bf16, trainer="none").settings.types
    assert types[:5] == ("bf16", "fp32", "fp32", "fp32", "bf16")
    own = {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    types = reading_of(tmp_path, {**zero(stage=2), "bf16": own}, trainer="none").settings.types
    assert types[:4] == ("bf16", "bf16", "bf16", "bf16")
    assert reading_of(tmp_path, PLAIN, trainer="none").settings.types[:4] == ("fp32", "fp32", "fp32", "fp32")
