"""The configs that people copy are read without a surprise."""

import pytest
from reading.asking import reading_of, told
from reading.public import HF_NVME, HF_STAGE3, PUBLIC

HIDDEN_SIZE = 4096


def _read(tmp_path, config, **arguments):
    precision = "bf16" if "bf16" in config else "fp16"
    given = {"per_device_train_batch_size": 2, precision: True, "deepspeed": config, **arguments}
    return reading_of(tmp_path, given, "args.json", ranks=8, hidden_size=HIDDEN_SIZE)


@pytest.mark.parametrize("name", PUBLIC)
def test_each_is_accepted_under_the_trainer(tmp_path, name):
    reading = _read(tmp_path, PUBLIC[name], gradient_accumulation_steps=4)
    assert reading.accepted
    assert reading.batch == (64, 2, 4)
    assert reading.settings is not None
    said = {remark.kind for remark in reading.remarks}
    assert said <= {"derived"} | ({"ignored"} if name == "hugging face nvme" else set())


def test_what_is_computed_from_the_width(tmp_path):
    settings = _read(tmp_path, HF_STAGE3).settings
    assert settings.reduce_bucket_size == HIDDEN_SIZE**2
    assert settings.prefetch_bucket_size == int(0.9 * HIDDEN_SIZE**2)
    assert settings.param_persistence_threshold == 10 * HIDDEN_SIZE
    assert settings.sub_group_size == 1_000_000_000
    assert settings.gradient_clipping == 1.0


def test_the_nvme_example_has_a_key_that_nobody_reads(tmp_path):
    ignored = told(_read(tmp_path, HF_NVME), "ignored")
    assert list(ignored) == ["aio.thread_count"]


def test_the_nvme_example_with_the_buffer_of_older_releases_is_refused(tmp_path):
    zero = HF_NVME["zero_optimization"]
    optimizer = {**zero["offload_optimizer"], "buffer_size": 2e9}
    reading = _read(tmp_path, {**HF_NVME, "zero_optimization": {**zero, "offload_optimizer": optimizer}})
    (refused,) = [remark for remark in reading.remarks if remark.kind == "rejected"]
    assert refused.path == "zero_optimization.offload_optimizer.buffer_size"
    assert refused.fix == "it belongs in zero_optimization.offload_param"


def test_without_a_trainer_auto_becomes_the_default_or_fails(tmp_path):
    reading = reading_of(tmp_path, HF_STAGE3, ranks=8, trainer="none")
    refused, defaulted = told(reading, "rejected"), told(reading, "defaulted")
    assert "train_batch_size" in refused
    assert "optimizer.params.lr" in refused
    assert "500000000" in defaulted["zero_optimization.reduce_bucket_size"]
    assert "fp16.enabled" in defaulted
    assert reading.settings is None


def test_alone_it_is_read_as_the_trainer_does(tmp_path):
    reading = reading_of(
        tmp_path, HF_STAGE3, ranks=8, hidden_size=HIDDEN_SIZE, micro_batch_size=1, precision="fp16"
    )
    assert reading.trainer == "huggingface"
    assert reading.batch == (8, 1, 1)
    assert reading.settings.types.compute == "fp16"
    assert any("read as the Hugging Face Trainer" in remark.message for remark in reading.remarks)


def test_accumulation_that_only_the_file_states_is_the_trainers_too(tmp_path):
    config = {**HF_STAGE3, "gradient_accumulation_steps": 4}
    known = {"ranks": 8, "hidden_size": HIDDEN_SIZE, "micro_batch_size": 1, "precision": "fp16"}
    reading = reading_of(tmp_path, config, **known)
    assert reading.accepted
    assert reading.batch == (32, 1, 4)
    assert not reading_of(tmp_path, config, **known, accumulation_steps=2).accepted


def test_alone_and_with_nothing_known_it_says_what_is_missing(tmp_path):
    reading = reading_of(tmp_path, HF_STAGE3, ranks=8)
    missing = told(reading, "unknown")
    assert {"train_micro_batch_size_per_gpu", "fp16.enabled", "zero_optimization.reduce_bucket_size"} <= set(
        missing
    )
    assert not told(reading, "rejected")
    assert not any("default" in remark.message for remark in reading.remarks if remark.kind == "defaulted")
    assert reading.settings is None
    assert reading.batch is None
