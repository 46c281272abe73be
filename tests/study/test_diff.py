"""Equal plans differ in nothing; what differs is what a single judgement says of each."""

import json
import shutil

import jsonschema
import pytest
from cli.runs import ziplan
from report.strictness import strict

from ziplan.cli.check_inputs import Asked, case_of
from ziplan.cli.inputs import Request
from ziplan.report.deciding_schemas import DIFF
from ziplan.study.diff import alike

ON = ("llama-3.1-8b", "dgx-a100-80g", "--sequence-length", "4096")
FIT = ("fit", *ON, "--global-batch-size", "64")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from ziplan.cli.main import run

    folder = tmp_path_factory.mktemp("plans")
    for name, more in (("one", ()), ("again", ()), ("other", ("--micro-batch-size", "2"))):
        quiet = ("--output", str(folder / f"{name}.txt"))
        assert run([*FIT, *more, "--out", str(folder / name), *quiet]) == 0
    return folder


def told(capsys, *arguments):
    ran = ziplan(capsys, "diff", *arguments, "--json")
    document = json.loads(ran.out)
    jsonschema.validate(document, strict(DIFF))
    assert ran.code == (0 if document["same"] else 1)
    return document


@pytest.mark.parametrize("file", ["plan.yaml", "ds_config.json"])
@pytest.mark.parametrize("on", [(), ON])
def test_equal_ones_differ_in_nothing(folder, file, on, capsys):
    document = told(capsys, folder / "one" / file, folder / "again" / file, *on)
    assert document["same"]
    assert not any(document[part] for part in ("placement", "plan", "settings", "memory", "time"))
    assert (document["verdict"], document["binding"]) == (None, None)
    assert document["predicted"] == bool(on)
    assert "no difference" in ziplan(capsys, "diff", folder / "one" / file, folder / "again" / file, *on).out


def test_a_plan_and_the_config_written_for_it_are_the_same(folder, capsys):
    one = folder / "one"
    assert told(capsys, one / "plan.yaml", one / "ds_config.json", *ON)["same"]


def test_what_differs_is_what_is_predicted_of_each(folder, capsys):
    files = [folder / name / "plan.yaml" for name in ("one", "other")]
    document = told(capsys, *files, *ON)
    request = Request(*ON[:2], training={"sequence_length": 4096})
    before, after = (case_of(file, Asked(request)) for file in files)
    plan = {entry["path"]: (entry["before"], entry["after"]) for entry in document["plan"]}
    assert plan["micro_batch_size"] == (before.plan.micro_batch_size, after.plan.micro_batch_size)
    assert "tp_degree" not in plan
    times = {row["term"]: (row["before_s"], row["after_s"]) for row in document["time"]}
    assert times["step"] == (before.estimate.step_time, after.estimate.step_time)
    assert times["a million tokens"][0] == pytest.approx(1e6 * before.estimate.time_per_token)
    terms = {*before.estimate.terms, *after.estimate.terms}
    for term in terms:
        pair = before.estimate.terms.get(term, 0.0), after.estimate.terms.get(term, 0.0)
        assert times.get(term, (pair[0], pair[0])) == (pytest.approx(pair[0]), pytest.approx(pair[1])), term
    needs = {(row["tier"], row["phase"]): row for row in document["memory"]}
    for tier, memory in after.estimate.memory.items():
        for phase, (low, high) in memory.phases.items():
            was = before.estimate.memory[tier].phases[phase]
            if not (alike(was[0], low) and alike(was[1], high)):
                row = needs[tier, phase]
                assert (row["before_low_bytes"], row["before_high_bytes"]) == was
                assert (row["after_low_bytes"], row["after_high_bytes"]) == (low, high)
            else:
                assert (tier, phase) not in needs


def test_a_change_the_other_way_round_is_the_same_change(folder, capsys):
    files = [folder / name / "plan.yaml" for name in ("one", "other")]
    there, back = told(capsys, *files, *ON), told(capsys, *reversed(files), *ON)
    for part in ("placement", "plan", "settings"):
        swapped = {(each["path"], each["after"], each["before"]) for each in back[part]}
        assert {(each["path"], each["before"], each["after"]) for each in there[part]} == swapped


def test_one_key_of_a_config(folder, tmp_path, capsys):
    config = json.loads((folder / "one" / "ds_config.json").read_text())
    config["gradient_clipping"] = 0.5
    config["steps_per_print"] = 7
    changed = tmp_path / "ds_config.json"
    changed.write_text(json.dumps(config))
    document = told(capsys, folder / "one" / "ds_config.json", changed)
    paths = {each["path"]: each["after"] for each in document["settings"]}
    assert paths == {"gradient_clipping": 0.5, "steps_per_print": 7}


WRAPPED = "fsdp_version: 2, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"
REFUSED = {
    "ds.json": (
        '{"zero_optimization": {"stage": 9}}',
        "ds.json:1:24: rejected: stage: expected 0, 1, 2 or 3",
    ),
    "a.yaml": (
        "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stag: 3}\n",
        "a.yaml:2:20: ignored: zero_stag: ",
    ),
    "f.yaml": (
        f"distributed_type: FSDP\nfsdp_config: {{{WRAPPED}, fsdp_nope: 1}}\n",
        "f.yaml:2:79: ignored: fsdp_nope",
    ),
    "t.json": ('{"deepspeed": "ds.json", "gradient_accumulation_steps": "x"}', "t.json:1:26: rejected: "),
}
"""File to its text, and what is said of it."""


@pytest.mark.parametrize("name", REFUSED)
def test_keys_that_the_runtime_refuses_are_told_without_a_model_too(tmp_path, capsys, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, said = REFUSED[name]
    (tmp_path / name).write_text(text)
    document = told(capsys, name, name)
    assert document["same"]
    assert any(said in note for note in document["notes"]), document["notes"]
    assert said in " ".join(ziplan(capsys, "diff", name, name).out.split())


def test_an_fsdp_that_is_not_planned_is_compared_all_the_same(tmp_path, capsys):
    for version in (1, 2):
        path = tmp_path / f"{version}.yaml"
        path.write_text(f"distributed_type: FSDP\nfsdp_config: {{fsdp_version: {version}}}\n")
    (entry,) = told(capsys, tmp_path / "1.yaml", tmp_path / "2.yaml")["settings"]
    assert entry == {"path": "fsdp_config.fsdp_version", "before": 1, "after": 2}


def test_what_nobody_reads_is_told_beside_a_model(folder, tmp_path, capsys):
    config = json.loads((folder / "one" / "ds_config.json").read_text())
    changed = tmp_path / "ds_config.json"
    changed.write_text(json.dumps({**config, "bogus": 3}))
    document = told(capsys, folder / "one" / "ds_config.json", changed, *ON)
    (note,) = [note for note in document["notes"] if "ds_config.json" in note]
    assert "ignored: bogus: DeepSpeed looks for no such key" in note


def test_a_long_key_is_whole_where_there_is_room(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    said = ziplan(capsys, "diff", *(folder / name / "ds_config.json" for name in ("one", "other"))).out
    assert "\ntrain_micro_batch_size_per_gpu " in said


def test_a_default_that_is_written_is_no_difference(tmp_path, capsys):
    plain, written = tmp_path / "a.json", tmp_path / "b.json"
    plain.write_text(json.dumps({"train_batch_size": 8, "zero_optimization": {"stage": 3}}))
    zero = {"stage": 3, "sub_group_size": 1e9, "stage3_prefetch_bucket_size": 50_000_000}
    written.write_text(
        json.dumps({"train_batch_size": 8, "gradient_predivide_factor": 1.0, "zero_optimization": zero})
    )
    assert told(capsys, plain, written)["same"]


def test_auto_is_another_value_than_the_default(tmp_path, capsys):
    plain, auto = tmp_path / "a.json", tmp_path / "b.json"
    plain.write_text(json.dumps({"train_batch_size": 8, "zero_optimization": {"stage": 3}}))
    zero = {"stage": 3, "stage3_prefetch_bucket_size": "auto"}
    auto.write_text(json.dumps({"train_batch_size": "auto", "zero_optimization": zero}))
    changed = {each["path"]: each["after"] for each in told(capsys, plain, auto)["settings"]}
    assert changed == {
        "train_batch_size": "auto",
        "zero_optimization.stage3_prefetch_bucket_size": "auto",
    }


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_text_keeps_its_width(folder, width, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", str(width))
    for name in ("one", "other"):
        shutil.copytree(folder / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    ran = ziplan(capsys, "diff", "one/plan.yaml", "other/plan.yaml", *ON)
    assert ran.code == 1
    assert max(map(len, ran.out.splitlines())) <= width
    for title in ("Plan", "Settings", "Memory needed", "Time of a step"):
        assert title in ran.out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("one/plan.yaml",), "expected A B"),
        (("one/plan.yaml", "no.yaml"), "no such file"),
        (("one/plan.yaml", "one/ds_config.json"), "ziplan diff A B MODEL CLUSTER"),
        (("one/plan.yaml", "one/plan.yaml", "llama-3.1-8b"), "expected A B"),
        (
            ("one/plan.yaml", "one/plan.yaml", "--sequence-length", "8"),
            "say nothing without MODEL and CLUSTER",
        ),
        (
            ("one/plan.yaml", "one/plan.yaml", "llama-3.1-8b", "rtx-4090-desktop", "--sequence-length", "8"),
            "GPU",
        ),
        (("odd.yaml", "odd.yaml"), "no kind of config"),
        (("bad.json", "bad.json", *ON), "comes to no plan"),
        (("", "one/plan.yaml"), "is empty"),
    ],
)
def test_what_cannot_be_answered_exits_2(folder, arguments, said, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "odd.yaml").write_text("a: 1\n")
    (folder / "bad.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 9}}')
    ran = ziplan(capsys, "diff", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err
