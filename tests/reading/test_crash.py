"""Whatever a file holds, it is read with remarks or refused with its place: never a traceback."""

import json
import random

import pytest
from reading.asking import reading_of
from reading.generated import ODD, config

from ziplan.errors import BadInput
from ziplan.hardware.profiles import load_cluster
from ziplan.runtimes.deepspeed.reading import settled_plan, stated_training
from ziplan.workload.load import load_workload

CONFIGS = 250
WILD = [*ODD, 10**199, -(10**199), 1e300, -1e300, 1e-300, "ünï", [[]], {"": 1}, {"strict": True}]
STRAY = (
    "auto",
    "",
    "offload_param",
    "stage",
    "enabled",
    "x.y",
    "gradient_accumulation_steps",
    "train_batch_size",
)
ARGUMENTS = {"per_device_train_batch_size": 2, "bf16": True, "max_steps": -1, "warmup_steps": 0.1}
PLUGIN = {
    "zero_stage": 3,
    "gradient_clipping": 1.0,
    "offload_param_device": "cpu",
    "offload_param_nvme_path": "/x",
}
OWN = {"distributed_type": "DEEPSPEED", "mixed_precision": "bf16", "num_processes": 4}


def spoilt(data, dice):
    """The data with values and keys of it replaced here and there."""
    made = {}
    for key, value in data.items():
        inside = spoilt(value, dice) if isinstance(value, dict) else value
        made[key] = dice.choice(WILD) if dice.random() < 0.12 else inside
    if dice.random() < 0.1:
        made[dice.choice(STRAY)] = dice.choice(WILD)
    return json.loads(json.dumps(made))


def file_of(form, dice, folder, seed):
    """A spoilt file of a form."""
    drawn = spoilt(config(seed, 0.1), dice)
    if form == "bare":
        return drawn
    if form == "arguments":
        return spoilt({**ARGUMENTS, "deepspeed": drawn}, dice)
    if form == "own":
        return spoilt({**OWN, "deepspeed_config": PLUGIN}, dice)
    (folder / "inner.json").write_text(json.dumps(drawn))
    return spoilt({**OWN, "deepspeed_config": {"deepspeed_config_file": "inner.json"}}, dice)


@pytest.mark.parametrize("form", ["bare", "arguments", "own", "beside"])
def test_spoilt_files(tmp_path, form):
    cluster = load_cluster("dgx-a100-80g", [])
    stated = {"sequence_length": 1024, "precision": "bf16"}
    workload = load_workload("gpt2-xl", stated, ("bf16", "fp16", "fp32"))
    plans = 0
    for seed in range(CONFIGS):
        dice = random.Random(seed)
        question = {
            "ranks": dice.choice([1, 8]),
            "hidden_size": dice.choice([None, 64]),
            "trainer": dice.choice([None, "none", "huggingface", "accelerate"]),
            "micro_batch_size": dice.choice([None, 2]),
            "precision": dice.choice([None, "bf16"]),
        }
        try:
            reading = reading_of(tmp_path, file_of(form, dice, tmp_path, seed), "file.json", **question)
        except BadInput as refused:
            assert refused.problems
            continue
        assert all(str(remark) and remark.file for remark in reading.remarks)
        stated_training(reading)
        plans += settled_plan(reading, cluster, workload).plan is not None
    assert plans > 0
