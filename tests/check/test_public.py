"""Configs that users reported as wrong, restated from public threads: each is told, with its key."""

import json

import pytest
from check.asked import CPU, GONE, NVME, OPTIMIZER, PARAM, ZERO, config_text
from check.run_of import told

WIDE = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "vocab_size": 256_206,
    "tie_word_embeddings": True,
    "max_position_embeddings": 1024,
}
"""As wide, and with as many words, as the NLLB model of DeepSpeed issue 3506."""

CASES = {
    # https://github.com/deepspeedai/DeepSpeed/issues/1627: legal in releases of 2021, refused now.
    "a size of optimizer buffers": (
        {f"{OPTIMIZER}.device": "nvme", f"{OPTIMIZER}.buffer_size": 2e9},
        "ZP301",
        "buffer_size",
    ),
    # https://github.com/Lightning-AI/pytorch-lightning/pull/17790
    "offload_optimizer: true": ({f"{ZERO}.stage": 2, OPTIMIZER: True}, "ZP301", "offload_optimizer"),
    # https://github.com/deepspeedai/DeepSpeed/issues/5704
    "activation checkpointing as a switch": (
        {"activation_checkpointing": {"partition_activations": True, "cpu_checkpointing": True}},
        "ZP302",
        "activation_checkpointing",
    ),
    # https://github.com/wenet-e2e/wenet/pull/2499
    "offload_param in stage 2": ({f"{ZERO}.stage": 2, PARAM: {"device": "cpu"}}, "ZP331", "offload_param"),
    # https://github.com/Lightning-AI/pytorch-lightning/issues/18134
    "cpu_offload at the top": ({f"{ZERO}.stage": 2, "cpu_offload": True}, "ZP302", "cpu_offload"),
    "stage 3 keys in stage 2": (
        {f"{ZERO}.stage": 2, f"{ZERO}.sub_group_size": 10**12},
        "ZP302",
        "sub_group_size",
    ),
    "an offload section beside ZeRO's": (
        {"offload_optimizer": {"device": "cpu"}},
        "ZP302",
        "offload_optimizer",
    ),
    "a key that is misspelt": (
        {f"{ZERO}.stage3_param_persitance_threshold": 1e5},
        "ZP301",
        "stage3_param_persitance_threshold",
    ),
    "a batch that does not divide": ({"train_batch_size": 10}, "ZP301", "train_batch_size"),
    "auto without a trainer": ({f"{ZERO}.sub_group_size": "auto"}, "ZP303", "sub_group_size"),
    "NVMe without a folder": ({**NVME, f"{PARAM}.nvme_path": GONE}, "ZP311", "nvme_path"),
    "CPU offload on a machine with too little memory": (CPU, "ZP102", "zero_optimization"),
}


@pytest.mark.parametrize("name", CASES)
def test_is_told(tmp_path, name):
    changes, code, key = CASES[name]
    settings = ("tiers.dram.capacity=128 GB",) if code == "ZP102" else ()
    found = told(tmp_path, config_text(changes), settings=settings)
    assert code in {each.code for each in found}
    (finding, *_) = (each for each in found if each.code == code and each.path.endswith(key))
    assert finding.line > 0


def test_the_embedding_that_no_buffer_held(tmp_path):
    """https://github.com/deepspeedai/DeepSpeed/issues/3506: 256,206 x 2,048 elements on one rank."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(WIDE))
    found = told(
        tmp_path,
        config_text({**NVME, f"{PARAM}.buffer_size": 100_000_000}),
        model=str(tmp_path / "model"),
        settings=("gpus_per_node=1",),
        sequence_length=512,
    )
    (finding,) = (each for each in found if each.code == "ZP313")
    assert "524,709,888" in finding.message
    assert finding.number.value == 256_206 * 2_048


@pytest.mark.parametrize(
    ("file", "arguments", "key"),
    [
        # https://github.com/sahil280114/codealpaca/issues/14: the file says 256 and 1, the trainer 8 x 4 x 8.
        (
            {"train_batch_size": 256, "gradient_accumulation_steps": 1},
            {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4},
            "gradient_accumulation_steps",
        ),
        # https://github.com/CarperAI/trlx/issues/376: the file was made for another number of GPUs.
        ({"train_batch_size": 32}, {"per_device_train_batch_size": 1}, "train_batch_size"),
        # A precision in the file that the trainer was not told.
        ({"fp16": {"enabled": True}}, {"per_device_train_batch_size": 1, "bf16": True}, "fp16"),
    ],
)
def test_the_trainer_says_something_else(tmp_path, file, arguments, key):
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 3}, **file}))
    text = json.dumps({"output_dir": "out", "bf16": "fp16" not in file, "deepspeed": "ds.json", **arguments})
    found = told(tmp_path, text, name="args.json")
    rejected = [each for each in found if each.code == "ZP301"]
    assert any(key in f"{each.path} {each.message}" for each in rejected), rejected
