"""What the Hugging Face Trainer and accelerate replace and refuse, as they do."""

import copy
import json
import random

import pytest
from reading.asking import asked, reading_of, told

CONFIGS = 150
HIDDEN_SIZE = 64
TOP = {
    "train_micro_batch_size_per_gpu": ["auto", "auto", 2, 3],
    "train_batch_size": ["auto", "auto", 32, 7],
    "gradient_accumulation_steps": ["auto", "auto", 4, 1],
    "gradient_clipping": ["auto", 1.0, 0.5],
}
OPTIMIZER = {"lr": ["auto", 5e-5, 1e-3], "weight_decay": ["auto", 0.0, 0.1]}
ADAM = {"betas": ["auto", [0.9, 0.999], [0.9, 0.95]], "eps": ["auto", 1e-8]}
SCHEDULER = {
    "warmup_min_lr": ["auto", 0],
    "warmup_max_lr": ["auto", 5e-5],
    "warmup_num_steps": ["auto", 10, 1],
    "total_num_steps": ["auto", 100],
}
ZERO = {
    "stage": [0, 1, 2, 3, 3, 3, "auto"],
    "reduce_bucket_size": ["auto", 5e8],
    "stage3_prefetch_bucket_size": ["auto", 5e7],
    "stage3_param_persistence_threshold": ["auto", 1e5],
    "stage3_gather_16bit_weights_on_model_save": ["auto", True],
}
RARE = {"sub_group_size": [1e9, "auto"], "overlap_comm": [True, "auto"]}
ENABLED = [{"enabled": value} for value in ("auto", "auto", "auto", True, False)]
OFFLOAD = {"device": ["cpu", "none", "auto"], "nvme_path": ["/x", "auto", None]}


def _drawn(dice, choices, likely=0.75):
    return {name: dice.choice(values) for name, values in choices.items() if dice.random() < likely}


def _config(seed, adam):
    dice = random.Random(seed)
    made = _drawn(dice, TOP)
    made |= _drawn(dice, {"bf16": ENABLED, "fp16": ENABLED})
    if dice.random() < 0.6:
        made["optimizer"] = {"type": "AdamW", "params": _drawn(dice, {**OPTIMIZER, **adam})}
    if dice.random() < 0.5:
        made["scheduler"] = {"type": "WarmupDecayLR", "params": _drawn(dice, SCHEDULER)}
    zero = {**_drawn(dice, ZERO), **_drawn(dice, RARE, 0.05)}
    for name in ("offload_optimizer", "offload_param"):
        if dice.random() < 0.5:
            zero[name] = _drawn(dice, OFFLOAD)
    if dice.random() < 0.95:
        made["zero_optimization"] = zero
    if seed % 3:
        _leave_to_trainer(made)
    return made


def _leave_to_trainer(made):
    """What most people do: `auto` wherever a trainer has a value."""
    made |= dict.fromkeys(set(TOP) & set(made), "auto")
    for section in {"optimizer", "scheduler"} & set(made):
        params = made[section]["params"]
        params |= dict.fromkeys(params, "auto")


def _arguments(dice):
    arguments = {"max_steps": dice.choice([100, 50])}
    optional = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": dice.choice([1, 4]),
        dice.choice(["bf16", "bf16", "fp16"]): True,
        "learning_rate": 1e-3,
        "weight_decay": 0.1,
        "warmup_steps": dice.choice([10, 0.1, 0]),
    }
    return arguments | {name: value for name, value in optional.items() if dice.random() < 0.6}


def _compare(cases, answers, equal_configs):
    """Both refuse, or both hand the same config to DeepSpeed and it takes it."""
    handed = [
        (ranks, answer["answer"])
        for (_, ranks, _), answer in zip(cases, answers, strict=True)
        if "answer" in answer
    ]
    read = iter(asked(*(["deepspeed_config", config, ranks] for ranks, config in handed)))
    accepted = 0
    for (config, _, reading), answer in zip(cases, answers, strict=True):
        refused = [
            remark for remark in reading.remarks if remark.kind == "rejected" and remark.moment != "training"
        ]
        said = (json.dumps(config), answer.get("message"), [str(remark) for remark in refused])
        judged = next(read) if "answer" in answer else answer
        assert bool(refused) == ("error" in judged), said
        if refused:
            continue
        accepted += 1
        assert list(reading.batch) == judged["answer"]["batch"], said
        if equal_configs:
            theirs = {k: v for k, v in answer["answer"].items() if k != "zero_allow_untested_optimizer"}
            assert json.loads(json.dumps(reading.config)) == theirs, said
    assert CONFIGS // 10 < accepted < CONFIGS


@pytest.mark.engine
def test_the_trainer_fills_the_same_values_and_refuses_the_same(tmp_path):
    cases, questions = [], []
    for seed in range(CONFIGS):
        dice = random.Random(-seed)
        config, arguments, ranks = _config(seed, ADAM), _arguments(dice), dice.choice([1, 4])
        inline = {**arguments, "deepspeed": config, "output_dir": "out"}
        reading = reading_of(tmp_path, inline, "args.json", ranks=ranks, hidden_size=HIDDEN_SIZE)
        cases.append((config, ranks, reading))
        questions.append(["trainer", config, arguments, ranks, HIDDEN_SIZE])
    _compare(cases, asked(*questions), equal_configs=True)


@pytest.mark.engine
def test_accelerate_fills_the_same_values_and_refuses_the_same(tmp_path):
    cases, questions = [], []
    for seed in range(CONFIGS):
        dice = random.Random(-seed)
        config, ranks, steps = _config(seed, {}), dice.choice([1, 4]), dice.choice([1, 4])
        precision = dice.choice(["no", "bf16", "fp16"])
        known = {"micro_batch_size": 2, "accumulation_steps": steps, "precision": precision}
        reading = reading_of(
            tmp_path, config, ranks=ranks, hidden_size=HIDDEN_SIZE, trainer="accelerate", **known
        )
        cases.append((config, ranks, reading))
        questions.append(["accelerate", config, {}, precision, ranks, HIDDEN_SIZE, 2, steps])
    # A script's own learning rate is nobody's business here, so the mappings differ by it.
    _compare(cases, asked(*questions), equal_configs=False)


PLUGINS = [
    {},
    {"zero_stage": 3, "offload_optimizer_device": "cpu", "offload_param_device": "cpu"},
    {"zero_stage": 3, "zero3_save_16bit_model": True, "gradient_clipping": 0.5},
    {"zero_stage": 1, "gradient_accumulation_steps": 4},
]


@pytest.mark.engine
@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
def test_accelerates_own_settings_become_the_same_config(tmp_path, precision):
    answers = asked(*(["plugin", settings, precision] for settings in PLUGINS))
    for settings, answer in zip(PLUGINS, answers, strict=True):
        own = {"distributed_type": "DEEPSPEED", "deepspeed_config": settings, "mixed_precision": precision}
        reading = reading_of(tmp_path, own, "accelerate.json", ranks=4, micro_batch_size=2)
        theirs, ours = copy.deepcopy(answer["answer"]), json.loads(json.dumps(reading.config))
        for name, value in theirs.items():
            assert ours[name] == value or value == "auto", name
        assert ours["train_batch_size"] == 2 * 4 * settings.get("gradient_accumulation_steps", 1)


@pytest.mark.engine
def test_accelerate_launch_hands_no_nvme_path_on(tmp_path):
    own = {
        "distributed_type": "DEEPSPEED",
        "num_processes": 2,
        "num_machines": 1,
        "deepspeed_config": {
            "zero_stage": 3,
            "offload_param_device": "nvme",
            "offload_param_nvme_path": "/fast",
        },
    }
    (tmp_path / "own.json").write_text(json.dumps(own))
    (answer,) = asked(["handed_on", str(tmp_path / "own.json")])
    assert answer["answer"]["ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE"] == "nvme"
    assert "/fast" not in answer["answer"].values()
    reading = reading_of(tmp_path, own, "own.json", ranks=2, micro_batch_size=1)
    assert "does not hand it on" in told(reading, "ignored")["deepspeed_config.offload_param_nvme_path"]
    assert reading.config["zero_optimization"]["offload_param"]["nvme_path"] == "none"
