"""Which form a file is, and what each form says of the config that it names."""

import json

import pytest
from reading.asking import reading_of, told
from reading.public import HF_STAGE3

from ziplan.errors import BadInput
from ziplan.runtimes.deepspeed.reading import Question, open_config, read_config

OWN = """\
compute_environment: LOCAL_MACHINE
deepspeed_config:
  gradient_accumulation_steps: 4
  offload_optimizer_device: cpu
  offload_param_device: none
  zero3_init_flag: false
  zero_stage: 3
distributed_type: DEEPSPEED
mixed_precision: bf16
num_processes: 4
"""
COMMAND = """\
#!/bin/bash
# --deepspeed old.json
torchrun --nproc_per_node=4 --nnodes 2 train.py \\
  --deepspeed ds_config.json --bf16 --output_dir "a folder" \\
  --per_device_train_batch_size 2 --learning_rate=1e-5 --gradient_checkpointing True
"""


def opened(folder, text, name):
    (folder / name).write_text(text)
    return open_config(folder / name, name)


@pytest.mark.parametrize(
    ("text", "name", "form"),
    [
        ('{"train_batch_size": 8}', "a.json", "deepspeed"),
        ('{"bf16": {"enabled": true}, "zero_optimization": {}}', "a", "deepspeed"),
        ("zero_optimization: {stage: 3}", "a.hjson", "deepspeed"),
        ('{"per_device_train_batch_size": 1, "bf16": true, "deepspeed": "x.json"}', "a.json", "arguments"),
        ("deepspeed: x.json\nlearning_rate: 1e-5\nbf16: true\n", "a.yaml", "arguments"),
        (OWN, "a.yaml", "accelerate"),
        (COMMAND, "run.sh", "command"),
        ("accelerate launch --config_file own.yaml train.py", "run.sh", "command"),
        ("schema: ziplan.plan/1\n", "plan.yaml", "plan"),
    ],
)
def test_forms(tmp_path, text, name, form):
    assert opened(tmp_path, text, name).form == form


@pytest.mark.parametrize(
    ("text", "name"), [("hello: world\n", "a.yaml"), ("[1]", "a.json"), ("{}", "a.json"), ("12\n", "a.yaml")]
)
def test_what_is_none_of_them_is_refused_with_what_is_expected(tmp_path, text, name):
    with pytest.raises(BadInput) as refused:
        opened(tmp_path, text, name)
    (problem,) = refused.value.problems
    assert problem.message == "no kind of config that ziplan knows"
    assert "a DeepSpeed config (JSON), an accelerate config (YAML)" in problem.help


def test_a_file_that_is_not_there_and_one_that_is_broken(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        open_config(tmp_path / "a.json", "a.json")
    with pytest.raises(BadInput, match="not valid Hjson"):
        opened(tmp_path, '{"train_batch_size": 8', "a.json")


def test_a_command_line_starts_ranks_and_names_a_config(tmp_path):
    (tmp_path / "ds_config.json").write_text(json.dumps(HF_STAGE3))
    reading = reading_of(tmp_path, COMMAND, "run.sh", ranks=8, hidden_size=64)
    assert (reading.trainer, reading.ranks) == ("huggingface", 8)
    assert reading.batch == (16, 2, 1)
    assert reading.arguments.learning_rate == 1e-5
    assert reading.arguments.gradient_checkpointing is True
    # The Trainer is told bf16 and the config only knows fp16: accelerate adds the section.
    assert reading.settings.types.compute == "bf16"
    other = reading_of(tmp_path, COMMAND, "run.sh", ranks=16, hidden_size=64)
    assert other.ranks == 8
    assert "8 ranks are started; the machine has 16 GPUs" in told(other, "derived")[""]


def test_a_command_line_for_a_script_of_ones_own(tmp_path):
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8}')
    command = "deepspeed --num_gpus 4 train.py --deepspeed --deepspeed_config ds.json\n"
    reading = reading_of(tmp_path, command, "run.sh", ranks=4)
    assert (reading.trainer, reading.batch) == ("none", (8, 2, 1))


def test_a_config_that_is_named_and_is_not_there(tmp_path):
    with pytest.raises(BadInput, match=r"missing\.json: ZP001 no such file"):
        reading_of(tmp_path, {"deepspeed": "missing.json", "learning_rate": 1e-5}, "args.json")
    with pytest.raises(BadInput, match="names no DeepSpeed config"):
        reading_of(tmp_path, {"per_device_train_batch_size": 1}, "args.json")


def test_an_accelerate_config_of_its_own(tmp_path):
    reading = reading_of(tmp_path, OWN, "own.yaml", ranks=4, micro_batch_size=2)
    assert reading.batch == (32, 2, 4)
    assert reading.settings.offload_optimizer.device == "cpu"
    assert reading.settings.types.compute == "bf16"
    missing = reading_of(tmp_path, OWN, "own.yaml", ranks=4)
    assert "data loader's batch size" in told(missing, "unknown")["train_micro_batch_size_per_gpu"]
    assert missing.settings is None


def test_an_accelerate_config_beside_a_deepspeed_config(tmp_path):
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": 3},
        "bf16": {"enabled": True},
    }
    (tmp_path / "ds.json").write_text(json.dumps(config))
    own = {"distributed_type": "DEEPSPEED", "deepspeed_config": {"deepspeed_config_file": "ds.json"}}
    reading = reading_of(tmp_path, own, "own.json", ranks=4)
    assert reading.batch == (8, 2, 1)
    refused = reading_of(tmp_path, {**own, "mixed_precision": "bf16"}, "own.json", ranks=4)
    assert "refuses it beside" in told(refused, "rejected")["mixed_precision"]
    assert {remark.file for remark in refused.remarks} == {"own.json", "ds.json"}


def test_places_are_in_the_file_that_the_config_stands_in(tmp_path):
    (tmp_path / "ds.json").write_text('{"train_batch_size": 4,\n "zero_optimization":\n  {"stage": 3}}')
    named = reading_of(tmp_path, {"deepspeed": "ds.json", "bf16": True}, "args.json", ranks=4)
    file, place = named.place(("zero_optimization", "stage"))
    assert (file, place.line, place.column) == ("ds.json", 3, 4)
    inline = "bf16: true\ndeepspeed:\n  train_batch_size: 4\n  zero_optimization: {stage: 3}\n"
    file, place = reading_of(tmp_path, inline, "args.yaml", ranks=4).place(("zero_optimization", "stage"))
    assert (file, place.line, place.column) == ("args.yaml", 4, 23)


def test_an_accelerate_config_without_deepspeed(tmp_path):
    with pytest.raises(BadInput, match="MEGATRON_LM does not use DeepSpeed") as refused:
        reading_of(tmp_path, "distributed_type: MEGATRON_LM\n", "own.yaml")
    assert "FSDP" in refused.value.problems[0].help


def test_no_batch_below_one_is_proposed(tmp_path):
    sizes = {"train_batch_size": 16, "train_micro_batch_size_per_gpu": -1_000_000_000}
    reading = reading_of(tmp_path, {**sizes, "gradient_accumulation_steps": 1}, ranks=8)
    (fix,) = {remark.fix for remark in reading.remarks if remark.kind == "rejected"}
    assert fix == "write a whole number of at least 1"


@pytest.mark.parametrize("count", ["0", "-1", "many", "2.5", "[8]"])
def test_processes_that_are_no_number_of_ranks_are_refused(tmp_path, count):
    with pytest.raises(BadInput, match="num_processes: expected a whole number of at least 1"):
        opened(tmp_path, OWN.replace("num_processes: 4", f"num_processes: {count}"), "a.yaml")


def test_a_command_line_with_an_accelerate_config(tmp_path):
    (tmp_path / "own.yaml").write_text(OWN)
    command = (
        "accelerate launch --config_file own.yaml --num_processes 2 t.py --per_device_train_batch_size 3"
    )
    reading = reading_of(tmp_path, command, "run.sh", ranks=2)
    assert (reading.trainer, reading.ranks, reading.batch) == ("accelerate", 2, (24, 3, 4))


def test_wrong_arguments_are_said_where_they_stand(tmp_path):
    text = "deepspeed: {zero_optimization: {stage: 2}}\nper_device_train_batch_size: many\nbf16: true\n"
    refused = told(reading_of(tmp_path, text, "args.yaml"), "rejected")
    assert "expected a whole number" in refused["per_device_train_batch_size"]


def test_yaml_is_no_deepspeed_config(tmp_path):
    reading = reading_of(tmp_path, "train_batch_size: 8\n", "ds.yaml", trainer="none")
    assert "not YAML" in told(reading, "rejected")[""]


def test_a_plan_is_not_read_here(tmp_path):
    with pytest.raises(ValueError, match="a plan already"):
        read_config(opened(tmp_path, "schema: ziplan.plan/1\n", "plan.yaml"), Question(1))


def test_a_batch_that_follows_is_written_out(tmp_path):
    reading = reading_of(tmp_path, {"train_micro_batch_size_per_gpu": 262144}, ranks=8)
    said = "train_batch_size follows from the others and 8 ranks: 2,097,152"
    assert said in [remark.message for remark in reading.remarks]
