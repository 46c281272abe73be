"""Whatever a config holds, a check of it ends in findings or in a problem with its place, in every form."""

import json
import random

import pytest
from check.asked import BASE, GONE, OPTIMIZER, PARAM, ZERO, changed
from reading.generated import config as drawn_config

from ziplan.check.run import check
from ziplan.cli.check_inputs import Asked, case_of
from ziplan.cli.inputs import Request
from ziplan.errors import BadInput
from ziplan.report.check_formats import FORMATS

MODELS = ("llama-3.2-1b", "gpt2", "mixtral-8x7b", "flan-t5-xl", "bert-base", "deepseek-v2-lite")
CLUSTERS = ("dgx-a100-80g", "rtx-4090-desktop", "2x dgx-h100", "aws-g5.12xlarge", "rtx-3090-x8", "gh200-96g")
SWAP = {"device": "nvme", "nvme_path": "/x"}
PLAUSIBLE = {
    f"{ZERO}.stage": [0, 1, 2, 3, 3],
    PARAM: [None, {"device": "cpu"}, SWAP, {"device": "nvme"}, {**SWAP, "max_in_cpu": 0, "buffer_count": 3}],
    OPTIMIZER: [
        None,
        {"device": "cpu"},
        {**SWAP, "pipeline_read": True},
        {"device": "cpu", "ratio": 0.3},
        SWAP,
    ],
    f"{ZERO}.stage3_prefetch_bucket_size": [0, 1, 5e7, 5e9, "auto"],
    f"{ZERO}.stage3_max_live_parameters": [0, 1, 1e9, 1e12],
    f"{ZERO}.stage3_max_reuse_distance": [0, 1e9],
    f"{ZERO}.sub_group_size": [0, 1e6, 1e9, 1e12],
    f"{ZERO}.reduce_bucket_size": [1, 5e8, 1e12],
    f"{ZERO}.stage3_param_persistence_threshold": [0, 1e5, 1e12],
    "bf16": [{"enabled": True}, {"enabled": False}, GONE],
    "fp16": [GONE, {"enabled": True}],
    "train_micro_batch_size_per_gpu": [1, 64, "auto", 0],
    "gradient_accumulation_steps": [1, 8, "auto"],
    "aio": [GONE, {"block_size": 1000}, {"queue_depth": 0}],
    "data_types": [GONE, {"grad_accum_dtype": "fp32"}],
    "optimizer": [GONE, {"type": "Lion", "params": {"lr": 1}}, {"type": "Muon", "params": {}}],
    "hybrid_engine": [GONE, {"enabled": True}],
}


def judged(folder, text, draw):
    path = folder / "ds_config.json"
    path.write_text(text)
    training = {"sequence_length": draw.choice([1, 128, 512])}
    if draw.random() < 0.5:
        training["activation_checkpointing"] = draw.choice(["none", "full"])
    request = Request(draw.choice(MODELS), draw.choice(CLUSTERS), training=training)
    try:
        checked = check(case_of(path, Asked(request)))
    except BadInput as error:
        assert error.problems
        return
    for form in FORMATS.values():
        assert form(checked)


@pytest.mark.parametrize("seed", range(40))
def test_plausible_configs(tmp_path, seed):
    draw = random.Random(seed)
    changes = {key: draw.choice(values) for key, values in PLAUSIBLE.items() if draw.random() < 0.6}
    judged(tmp_path, json.dumps(changed(BASE, changes)), draw)


@pytest.mark.parametrize("seed", range(40))
def test_drawn_configs(tmp_path, seed):
    judged(tmp_path, json.dumps(drawn_config(seed, 0.1)), random.Random(seed))
