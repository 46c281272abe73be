"""DeepSpeed's own reader and this one take the same configs, and make the same of them."""

import json

import pytest
from reading.asking import asked, taken
from reading.generated import config

CONFIGS = 300
RANKS = (1, 2, 4, 8)
UNEQUAL = (
    "leaf_module",  # DeepSpeed fills its defaults in
    *("cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory"),  # it takes them out again
    "stage3_gather_fp16_weights_on_model_save",
)

NOTES_CASES = {
    "E1 product": (
        {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1},
        1,
    ),
    "E1 division": ({"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4}, 1),
    "E1 none": ({"gradient_accumulation_steps": 2}, 1),
    "E1 fits": ({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2}, 4),
    "E3 auto batch": ({"train_batch_size": "auto"}, 2),
    "E3 auto inside": (
        {"train_batch_size": 2, "zero_optimization": {"stage": 3, "sub_group_size": "auto"}},
        2,
    ),
    "E4 buffer_size": (
        {"train_batch_size": 1, "zero_optimization": {"stage": 3, "offload_optimizer": {"buffer_size": 1}}},
        1,
    ),
    "E4 cpu_offload_params": ({"train_batch_size": 1, "zero_optimization": {"cpu_offload_params": True}}, 1),
    "E4 misspelt": (
        {"train_batch_size": 1, "zero_optimization": {"stage3_param_persitance_threshold": 1}},
        1,
    ),
    "E5 true": ({"train_batch_size": 1, "zero_optimization": {"offload_optimizer": True}}, 1),
    "E6 top": ({"train_batch_size": 1, "offload_optimizer": {"device": "cpu"}}, 1),
    "E6 stage 2": (
        {"train_batch_size": 1, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}},
        1,
    ),
    "E6 ratio": (
        {
            "train_batch_size": 1,
            "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "ratio": 0.5}},
        },
        1,
    ),
    "E7 cpu_offload": ({"train_batch_size": 1, "zero_optimization": {"stage": 2, "cpu_offload": True}}, 1),
    "E7 both": (
        {"train_batch_size": 1, "zero_optimization": {"cpu_offload": True, "offload_optimizer": {}}},
        1,
    ),
    "E12 no path": (
        {"train_batch_size": 1, "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}},
        1,
    ),
    "ratio below 3": (
        {"train_batch_size": 1, "zero_optimization": {"stage": 2, "offload_optimizer": {"ratio": 0.5}}},
        1,
    ),
    "both precisions": ({"train_batch_size": 1, "fp16": {"enabled": True}, "bf16": {"enabled": True}}, 1),
    "old bf16": ({"train_batch_size": 1, "bfloat16": {"enabled": True}}, 1),
    "zero true": ({"train_batch_size": 1, "zero_optimization": True, "allgather_size": 7}, 1),
    "two spellings": (
        {
            "train_batch_size": 1,
            "zero_optimization": {"stage3_max_live_parameters": 1, "max_live_parameters": 2},
        },
        1,
    ),
    "1.5": ({"train_batch_size": 1, "zero_optimization": {"reduce_bucket_size": 1.5}}, 1),
    "5e8 as text": ({"train_batch_size": 1, "zero_optimization": {"reduce_bucket_size": "5e8"}}, 1),
    "1e8": ({"train_batch_size": 1, "zero_optimization": {"reduce_bucket_size": 1e8}}, 1),
    "0": ({"train_batch_size": 1, "zero_optimization": {"reduce_bucket_size": 0}}, 1),
    "grad norm": ({"train_batch_size": 1, "zero_optimization": {"stage": 3, "compute_grad_norm": False}}, 1),
    "comm type": ({"train_batch_size": 1, "communication_data_type": "fp8"}, 1),
    "unknown at the top": ({"train_batch_size": 1, "zero_optimisation": {"stage": 3}}, 1),
    "unknown in aio": ({"train_batch_size": 1, "aio": {"thread_count": 4}}, 1),
    "sum": ({"train_batch_size": 1, "gradient_allreduce_op": "sum", "zero_optimization": {"stage": 3}}, 1),
    "bf16 states": ({"train_batch_size": 1, "bf16": {"enabled": True, "bf16_optimizer_states": True}}, 1),
}


def agree(config, ranks, answer):
    """Assert that both refuse, or both take it and make the same of it."""
    read, notes = taken(config, ranks)
    said = (json.dumps(config), ranks, answer.get("message"), [str(remark) for remark in notes.remarks])
    assert notes.accepted == ("answer" in answer), said
    if not notes.accepted:
        return
    theirs, zero = answer["answer"], dict(answer["answer"]["zero"])
    ours = json.loads(json.dumps(read.values["zero_optimization"]))
    for name in UNEQUAL:
        zero.pop(name, None), ours.pop(name)
    if ours["zenflow"]:
        ours["zenflow"].pop("steps_per_epoch")
    assert ours == zero, said
    assert (read.values["fp16"], read.values["bf16"]) == (theirs["fp16"], theirs["bf16"]), said
    if read.batch is None:  # fractions of sequences, of which DeepSpeed only checks the product
        assert any(size != int(size) for size in theirs["batch"]), said
    else:
        assert list(read.batch) == theirs["batch"], said


@pytest.mark.engine
@pytest.mark.parametrize("wrong", [0.02, 0.15])
def test_generated_configs(wrong):
    drawn = [(config(seed, wrong), RANKS[seed % len(RANKS)]) for seed in range(CONFIGS)]
    answers = asked(*(["deepspeed_config", made, ranks] for made, ranks in drawn))
    accepted = sum("answer" in answer for answer in answers)
    assert CONFIGS // 10 < accepted < CONFIGS, accepted
    for (made, ranks), answer in zip(drawn, answers, strict=True):
        agree(made, ranks, answer)


@pytest.mark.engine
def test_cases_of_users():
    answers = asked(*(["deepspeed_config", made, ranks] for made, ranks in NOTES_CASES.values()))
    for (made, ranks), answer in zip(NOTES_CASES.values(), answers, strict=True):
        agree(made, ranks, answer)


@pytest.mark.engine
def test_every_key_at_every_odd_value():
    """Each key of ZeRO and its offload sections alone, so that none hides behind another's refusal."""
    from reading.generated import ODD

    from ziplan.runtimes.deepspeed.reading.zero_table import ZERO_SECTIONS

    configs = []
    for section in ZERO_SECTIONS:
        for key in section.keys:
            for value in ODD:
                inside = {key.name: value}
                for name in reversed(section.path.split(".")[1:]):
                    inside = {name: inside}
                configs.append({"train_batch_size": 1, "zero_optimization": {"stage": 3, **inside}})
    answers = asked(*(["deepspeed_config", made, 1] for made in configs))
    for made, answer in zip(configs, answers, strict=True):
        agree(made, 1, answer)
