"""plan.yaml: written, read back, refused at its place."""

import re

import pytest
from report.answers import plan

from ziplan.errors import BadInput
from ziplan.files import read
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.report.figures import placement_of
from ziplan.report.plan_file import differences, load_plan, plan_yaml, written_beside
from ziplan.workload.load import load_workload

OTHER = Plan(
    dp_degree=8,
    zero_stage=2,
    placement=Placement(optimizer={"dram": 1 / 3, "nvme": 2 / 3}),
    activation_checkpointing=Checkpointing.NONE,
    prefetch_depth=0,
    tile_count=4,
    sub_group_params=12345678.0,
    param_buffer_count=7,
)


@pytest.mark.parametrize("made", [plan(), OTHER])
def test_a_plan_comes_back_as_it_was(made, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(plan_yaml(made, "handmade", "a test"))
    back = load_plan(read(path))
    assert placement_of(back) == placement_of(made)
    for name in Plan.__dataclass_fields__:
        if name != "placement":
            assert getattr(back, name) == getattr(made, name), name


def test_it_reads_like_a_plan():
    text = plan_yaml(plan(), "handmade", "llama on a box")
    assert text.startswith("# llama on a box\nschema: ziplan.plan/1\nruntime: handmade\n")
    assert "activation_checkpointing: full\n" in text
    assert "  optimizer: {dram: 0.75, hbm: 0.25}\n" in text


def test_it_lists_what_was_written_beside_it(tmp_path):
    path = tmp_path / "plan.yaml"
    files = {".deepspeed_env": "a" * 64, "ds_config.json": "b" * 64}
    path.write_text(plan_yaml(plan(), "handmade", "a test", files))
    assert written_beside(read(path)) == files
    assert placement_of(load_plan(read(path))) == placement_of(plan())
    path.write_text(plan_yaml(plan(), "handmade", "a test", {"../mine.txt": "a" * 64}))
    with pytest.raises(BadInput, match=r"names of files in this folder, not '\.\./mine\.txt'"):
        written_beside(read(path))


def test_every_mistake_has_its_place(tmp_path):
    path = tmp_path / "plan.yaml"
    written = plan_yaml(plan(), "handmade", "a test")
    path.write_text(written.replace("zero_stage: 3", "zero_stage: 7").replace("hbm: 0.25", "hbm: 0.5"))
    with pytest.raises(BadInput) as raised:
        load_plan(read(path))
    assert [problem.text.strip() for problem in raised.value.problems] == [
        "zero_stage: 7",
        "optimizer: {dram: 0.75, hbm: 0.5}",
    ]


PRECISIONS = ("bf16", "fp16", "fp32")
LORA = {"trainable": {"lora_rank": 16, "targets": ["q_proj"]}}


def asked(model="llama-3.1-8b", **training):
    return load_workload(model, {"sequence_length": 2048, **training}, PRECISIONS)


def recorded(tmp_path, workload):
    path = tmp_path / "plan.yaml"
    path.write_text(plan_yaml(plan(), "handmade", "a test", None, workload))
    assert placement_of(load_plan(read(path))) == placement_of(plan())
    return read(path)


@pytest.mark.parametrize("training", [{}, LORA, {"trainable": {"frozen": ["embed_tokens"]}}])
def test_the_training_that_a_plan_is_for_is_no_difference(tmp_path, training):
    assert differences(recorded(tmp_path, asked(**training)), asked(**training)) == ((), ())


@pytest.mark.parametrize(
    ("made", "question", "said", "at"),
    [
        (asked(), asked("llama-3.1-70b"), "llama-3.1-8b of 8,030,261,248 parameters, not", "model"),
        (
            asked(**LORA),
            asked(),
            "trained parameters 4,194,304 ({lora_rank: 16, targets: [q_proj]}), not 8,030,261,248 (all)",
            "trainable",
        ),
        (asked(), asked(precision="fp32"), "precision bf16, not fp32", "precision"),
        (asked(), asked(optimizer={"kind": "lion"}), "optimizer adamw, not lion", "optimizer"),
        (asked(), asked(master_precision="bf16"), "master_precision fp32, not bf16", "master_precision"),
    ],
)
def test_other_training_is_told_at_its_place(tmp_path, made, question, said, at):
    (wrong,), remarks = differences(recorded(tmp_path, made), question)
    assert said in wrong.message
    assert wrong.text.strip().startswith(f"{at}: ")
    assert not remarks


def test_another_sequence_length_is_remarked_on(tmp_path):
    wrong, (remark,) = differences(recorded(tmp_path, asked()), asked(sequence_length=4096))
    assert not wrong
    assert remark.endswith("planned for sequences of 2,048 tokens, not 4,096")


KERNELS = {"kernels": "compiled", "loss": "fused", "attention": "eager", "expandable_segments": False}
SETTINGS = {
    **KERNELS,
    "softmax": "fp32",
    "dropout": False,
    "data_workers": 4,
    "optimizer_threads": 8,
    "gradient_clipping": False,
    "saving": "gathered",
    "pinned_rounding": True,
    "longest_sequence": 4096,
    "optimizer": {"fused": False},
}


@pytest.mark.parametrize("key", SETTINGS)
def test_other_settings_are_remarked_on(tmp_path, key):
    made = asked(**SETTINGS)
    assert differences(recorded(tmp_path, made), made) == ((), ())
    others = {name: value for name, value in SETTINGS.items() if name != key}
    wrong, (remark,) = differences(recorded(tmp_path, made), asked(**others))
    assert not wrong
    assert f"other settings of the training: {key}: " in remark
    assert ";" not in remark


def test_all_that_differs_is_in_one_remark(tmp_path):
    _, remarks = differences(recorded(tmp_path, asked(**KERNELS)), asked(sequence_length=4096))
    assert [remark.partition(" was ")[2] for remark in remarks] == [
        "planned for sequences of 2,048 tokens, not 4,096",
        "planned with other settings of the training: attention: eager, now flash; "
        "kernels: compiled, now not stated; loss: fused, now not stated; "
        "expandable_segments: false, now true",
    ]


def test_packed_samples_and_a_named_kernel_are_remarked_on(tmp_path):
    packed = {"packing": True, "mean_sample_length": 512.0, "attention_kernel": "flash-2"}
    made = recorded(tmp_path, asked(**packed))
    assert differences(made, asked(**packed)) == ((), ())
    _, (remark,) = differences(made, asked())
    assert all(f"{key}: " in remark for key in packed)


def test_a_record_of_earlier_days_says_nothing_of_settings(tmp_path):
    path = tmp_path / "plan.yaml"
    whole = plan_yaml(plan(), "handmade", "a test", None, asked(**KERNELS))
    path.write_text(re.sub(r"(?m)^  settings:\n(    .*\n)+", "", whole))
    assert "settings" not in read(path).data["planned_for"]
    assert differences(read(path), asked()) == ((), ())


def test_a_plan_without_a_record_is_taken_for_what_is_asked(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(plan_yaml(plan(), "handmade", "a test"))
    assert differences(read(path), asked()) == ((), ())


@pytest.mark.parametrize(
    "stated", [{"gradient_clipping": True}, {"data_workers": 0}, {"longest_sequence": 2048}], ids=str
)
def test_what_a_setting_is_anyway_may_be_stated(tmp_path, stated):
    assert differences(recorded(tmp_path, asked()), asked(**stated)) == ((), ())
    assert differences(recorded(tmp_path, asked(**stated)), asked()) == ((), ())
