"""Whole commands with the real solver and the real DeepSpeed emitter, as a user runs them."""

import json
import os

import jsonschema
import pytest
from cli.runs import FIT, process, ziplan
from report.strictness import strict

from ziplan.files import read
from ziplan.report.plan_file import load_plan
from ziplan.report.schemas import DOCUMENTS

BIG = ("fit", "llama-3.1-70b", "dgx-a100-80g", "--sequence-length", "4096", "--global-batch-size", "64")
HOPELESS = ("fit", "llama-3.1-70b", "rtx-4090-desktop", "--sequence-length", "2048")


@pytest.mark.parametrize(("arguments", "verdict", "code"), [(BIG, "fits", 0), (HOPELESS, "does_not_fit", 1)])
def test_a_real_answer_is_the_documented_document(arguments, verdict, code, capsys):
    ran = ziplan(capsys, *arguments, "--json")
    document = json.loads(ran.out)
    jsonschema.validate(document, strict(DOCUMENTS["fit"]))
    assert (ran.code, document["verdict"]) == (code, verdict)
    assert sum(document["estimate"]["terms_s"].values()) == pytest.approx(document["estimate"]["step_time_s"])
    assert bool(document["files"]) == (verdict == "fits")


def test_two_processes_print_the_same_document():
    first, second = (process(*BIG, "--json", env={"PYTHONHASHSEED": seed}) for seed in ("1", "2"))
    assert first.code == 0, first.err
    assert first.out == second.out


@pytest.mark.parametrize("arguments", [FIT, BIG, HOPELESS])
@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_real_answer_keeps_its_size(arguments, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = ziplan(capsys, *arguments).out.splitlines()
    assert 12 <= len(lines) <= 22 * 100 / min(width, 100)
    assert max(map(len, lines)) <= min(width, 100)


def test_text_and_json_tell_the_same_verdict_and_files(capsys, tmp_path):
    text = ziplan(capsys, *BIG, "--out", tmp_path).out
    document = json.loads(ziplan(capsys, *BIG, "--json").out)
    assert document["verdict"] in text
    for name, content in document["files"].items():
        assert (tmp_path / name).read_text() == content
    assert sorted(os.listdir(tmp_path)) == sorted(document["files"])
    config = json.loads(document["files"]["ds_config.json"])
    plan = load_plan(read(tmp_path / "plan.yaml"))
    assert config["zero_optimization"]["stage"] == plan.zero_stage
    assert config["train_micro_batch_size_per_gpu"] == plan.micro_batch_size


def test_what_does_not_fit_names_bytes_place_and_the_change(capsys):
    said = ziplan(capsys, *HOPELESS).out
    for word in ("does not fit, at least", "too much for dram in", "biggest ", "change "):
        assert word in said


def test_explained_answers_show_every_tier_and_phase(capsys):
    said = ziplan(capsys, *BIG, "--explain").out
    for word in ("hbm: ", "dram: ", "  forward: ", "  backward: ", "other placements", "assumptions"):
        assert f"\n{word}" in said


def test_the_rate_of_gpu_memory_is_told_with_its_share_of_the_data_sheets(capsys):
    """Wherever its seconds are: in the text, in JSON, and of the played step."""
    said = " ".join(ziplan(capsys, *FIT, "--explain").out.split())
    assert "tiers.hbm.read_bandwidth = 1.774 TB/s (1.733 TB/s to 1.815 TB/s), assumed: 0.87 of" in said
    for command in ("fit", "simulate"):
        document = json.loads(ziplan(capsys, command, *FIT[1:], "--json").out)
        found = [each for each in document["assumptions"] if each["kind"] == "assumed"]
        (memory,) = (each for each in found if each["name"] == "tiers.hbm.read_bandwidth")
        assert memory["value"] == pytest.approx(0.87 * 2.039e12)


def test_limits_and_init_work_together(capsys, tmp_path):
    assert ziplan(capsys, "init", tmp_path).code == 0
    files = (tmp_path / "model.yaml", tmp_path / "cluster.yaml")
    assert ziplan(capsys, "fit", *files).code == 0
    document = json.loads(ziplan(capsys, "limits", *files, "--json").out)
    jsonschema.validate(document, strict(DOCUMENTS["limits"]))
    assert document["limits"]["max_params_by_capacity_params"] > 0


def test_a_mistake_in_a_file_is_shown_at_its_place(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ziplan(capsys, "init").code == 0
    path = tmp_path / "cluster.yaml"
    path.write_text(path.read_text().replace("nodes: 1", "node: 1"))
    ran = ziplan(capsys, "fit", "model.yaml", "cluster.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert (
        ran.err
        == """\
cluster.yaml:4:1: ZP012 unknown key `node`
  |
4 | node: 1
  | ^^^^ did you mean `nodes`?
"""
    )


def test_the_ideal_runtime_has_no_files_to_write(capsys, tmp_path):
    ran = ziplan(capsys, *FIT, "--runtime", "ideal")
    assert ran.code == 0
    assert "files     none: " in ran.out
    assert ziplan(capsys, *FIT, "--runtime", "ideal", "--out", tmp_path / "run").code == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("runtime", ["deepspeed", "fsdp", "ideal"])
def test_a_rate_that_nobody_stated_leaves_memory_answered_and_time_unknown(runtime, capsys):
    asked = (
        "llama-3.1-8b",
        "dgx-2",
        "--sequence-length",
        "2048",
        "--precision",
        "fp32",
        "--runtime",
        runtime,
    )
    ran = ziplan(capsys, "fit", *asked, "--explain")
    assert (ran.code, ran.err) == (3, "")
    assert "unknown, not stated: gpu.peak_flops_per_s.fp32" in ran.out
    assert "--set gpu.peak_flops_per_s.fp32=VALUE does" in " ".join(ran.out.split())
    assert "hbm per GPU" in ran.out
    document = json.loads(ziplan(capsys, "fit", *asked, "--json").out)
    jsonschema.validate(document, strict(DOCUMENTS["fit"]))
    assert (document["verdict"], document["estimate"]["step_time_s"]) == ("unknown", None)
    assert document["memory"]["hbm"]["needed_high_bytes"] > 0
    assert document["binding"]["link"] is None
    stated = ("--set", "gpu.peak_flops_per_s.fp32=15.7 TFLOP/s")
    assert ziplan(capsys, "fit", *asked, *stated).code == 0
    assert ziplan(capsys, "limits", *asked).code == 0


def test_odd_values_are_warned_about_on_stderr(capsys):
    ran = ziplan(capsys, *FIT, "--set", "links.network.bandwidth=25 GB/s")
    assert ran.code == 0
    assert "warning" not in ran.out
    assert "did you mean '25 Gbit/s'?" in ran.err


TRAINED = ("llama-2-7b", "dgx-a100-80g", "--sequence-length", "1024")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("check", "ds.json", *TRAINED, "-o", "ds.json"), "ds.json: ZP001 is read by this command"),
        (("check", "ds.json", *TRAINED, "-o", "json=./ds.json"), "ZP001 is read by this command"),
        (("check", "ds.json", *TRAINED, "-o", "json=a", "-o", "html=a"), "a: ZP001 is to be written twice"),
        (("report", *TRAINED, "ds.json", "-o", "link.json"), "link.json: ZP001 is read by this command"),
        (("report", *TRAINED, "--plot", "memory=a.svg", "--plot", "terms=a.svg"), "is to be written twice"),
        (("report", *TRAINED, "--plot", "a.svg", "-o", "a.svg"), "a.svg: ZP001 is to be written twice"),
        (("simulate", *TRAINED, "-o", "a", "--trace", "a"), "a: ZP001 is to be written twice"),
        (("diff", "ds.json", "ds.json", "-o", "ds.json"), "ds.json: ZP001 is read by this command"),
        (("fit", "model.yaml", TRAINED[1], "-o", "model.yaml"), "is read by this command"),
        (
            ("sweep", "model.yaml", TRAINED[1], "--vary", "nodes=1", "-o", "model.yaml"),
            "is read by this command",
        ),
        (("compare", "model.yaml", TRAINED[1], "-o", "model.yaml"), "is read by this command"),
        (("limits", "model.yaml", TRAINED[1], "-o", "model.yaml"), "is read by this command"),
    ],
)
def test_no_answer_replaces_what_is_read_or_another_answer(capsys, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    texts = {
        "ds.json": '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}',
        "model.yaml": "model: llama-2-7b\ntraining: {sequence_length: 1024}\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "link.json").symlink_to("ds.json")
    ran = ziplan(capsys, *arguments)
    assert ran.code == 2
    assert said in ran.err
    assert {each.name for each in tmp_path.iterdir()} == {*texts, "link.json"}
    assert all((tmp_path / name).read_text() == text for name, text in texts.items())


def test_a_device_takes_two_answers(capsys):
    assert ziplan(capsys, "simulate", *TRAINED, "-o", "/dev/null", "--trace", "/dev/null").code == 0
