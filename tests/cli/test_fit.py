"""`fit`: exit codes by verdict, forms of the answer, files whole or not at all."""

import json
import os
import re
import stat
from pathlib import Path

import jsonschema
import pytest
from cli.runs import FIT, ziplan
from report.answers import answer

from ziplan.cli.folder import digest
from ziplan.errors import CannotEmit
from ziplan.files import read
from ziplan.report.figures import placement_of
from ziplan.report.plan_file import load_plan
from ziplan.report.schemas import DOCUMENTS


@pytest.fixture
def answers(monkeypatch):
    """Makes `fit` answer with a hand-built answer of a verdict."""

    def answers(verdict):
        monkeypatch.setattr("ziplan.cli.fit.answer_to", lambda request, **_: answer(verdict))
        # What purchases save is solved for, which a hand-built runtime cannot be.
        monkeypatch.setattr("ziplan.solve.relief.reliefs", lambda problem, best: ())

    return answers


@pytest.mark.parametrize(
    ("verdict", "flags", "code"),
    [
        ("fits", (), 0),
        ("tight", (), 0),
        ("tight", ("--on-tight", "fail"), 1),
        ("does_not_fit", (), 1),
        ("does_not_fit", ("--exit-zero",), 0),
        ("unknown", (), 3),
        ("unknown", ("--on-unknown", "pass"), 0),
    ],
)
def test_the_exit_code_is_the_verdict(verdict, flags, code, answers, capsys):
    answers(verdict)
    ran = ziplan(capsys, *FIT, *flags)
    assert ran.code == code
    assert verdict.replace("_", " ") in ran.out
    assert ("warning: a tight fit" in ran.err) == (verdict == "tight" and not flags)


@pytest.mark.parametrize("form", [("--json",), ("--format", "json")])
def test_json_is_the_documented_document(form, answers, capsys):
    answers("fits")
    ran = ziplan(capsys, *FIT, *form)
    document = json.loads(ran.out)
    jsonschema.validate(document, DOCUMENTS["fit"])
    assert set(document["files"]) == {"handmade.json", "plan.yaml"}
    assert ziplan(capsys, *FIT, *form).out == ran.out


def test_the_format_may_come_from_the_environment(answers, capsys, monkeypatch):
    answers("fits")
    monkeypatch.setenv("ZIPLAN_FORMAT", "json")
    assert json.loads(ziplan(capsys, *FIT).out)["verdict"] == "fits"


@pytest.mark.parametrize("command", ["simulate", "limits", "compare"])
def test_so_it_may_for_every_command_that_has_several(command, capsys, monkeypatch):
    words = (command, *FIT[1:])
    asked = ziplan(capsys, *words, "--json").out
    monkeypatch.setenv("ZIPLAN_FORMAT", "json")
    assert json.loads(ziplan(capsys, *words).out).keys() == json.loads(asked).keys()
    shape = ziplan(capsys, "models", "show", "llama-3.1-8b")
    assert json.loads(shape.out)["schema"] == "ziplan.model/1"


@pytest.mark.parametrize(("command", "form"), [("fit", "github"), ("fit", "csv"), ("sweep", "github")])
def test_a_form_of_the_environment_that_a_command_lacks_is_left_aside_with_a_hint(
    answers, capsys, monkeypatch, command, form
):
    answers("fits")
    words = [command, *FIT[1:], *(["--vary", "nodes=1"] if command == "sweep" else [])]
    plainly = ziplan(capsys, *words).out
    monkeypatch.setenv("ZIPLAN_FORMAT", form)
    ran = ziplan(capsys, *words)
    assert (ran.code, ran.out) == (0, plainly)
    assert f"this command does not print ZIPLAN_FORMAT={form}, so text; it has text, json" in ran.err


@pytest.mark.parametrize("asked", [("--json",), ("--format", "json"), ("--format=json",)])
def test_a_form_that_is_asked_for_needs_no_hint(answers, capsys, monkeypatch, asked):
    answers("fits")
    monkeypatch.setenv("ZIPLAN_FORMAT", "github")
    ran = ziplan(capsys, *FIT, *asked)
    assert json.loads(ran.out)["verdict"] == "fits"
    assert "hint" not in ran.err


def test_a_form_that_no_command_has_is_a_mistake(answers, capsys, monkeypatch):
    answers("fits")
    monkeypatch.setenv("ZIPLAN_FORMAT", "jsn")
    ran = ziplan(capsys, *FIT)
    assert (ran.code, ran.out) == (2, "")
    assert "ZIPLAN_FORMAT: ZP001 'jsn' is no form of an answer" in ran.err


def test_output_goes_to_a_file(answers, capsys, tmp_path):
    answers("fits")
    expected = ziplan(capsys, *FIT).out
    ran = ziplan(capsys, *FIT, "-o", tmp_path / "answer.txt")
    assert (ran.code, ran.out) == (0, "")
    assert (tmp_path / "answer.txt").read_text() == expected
    assert os.listdir(tmp_path) == ["answer.txt"]


def test_out_writes_the_runtimes_files_and_the_plan(answers, capsys, tmp_path):
    answers("fits")
    folder = tmp_path / "deep" / "run"
    ran = ziplan(capsys, *FIT, "--out", folder)
    assert ran.code == 0
    assert sorted(os.listdir(folder)) == ["handmade.json", "plan.yaml"]
    assert "".join(f"handmade.json, plan.yaml written to {folder}".split()) in "".join(ran.out.split())
    assert placement_of(load_plan(read(folder / "plan.yaml"))) == placement_of(answer().best.plan)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((folder / "plan.yaml").stat().st_mode) == 0o666 & ~umask


def test_out_replaces_what_is_there(answers, capsys, tmp_path):
    answers("fits")
    (tmp_path / "handmade.json").write_text("old")
    (tmp_path / "mine.txt").write_text("mine")
    assert ziplan(capsys, *FIT, "--out", tmp_path).code == 0
    assert json.loads((tmp_path / "handmade.json").read_text()) == {"stage": 3}
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_out_removes_what_an_earlier_plan_wrote_there_and_nothing_else(
    answers, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # a short name, so that no width cuts what is said of it
    folder = Path("p")
    answers("fits")
    runtime = type(answer().problem.runtime)
    emitted = {
        "handmade.json": "{}",
        ".hidden_env": "A=1",
        "launch.sbatch": "#",
        "edited.sh": "#",
        "linked": "#",
    }
    monkeypatch.setattr(runtime, "emit", lambda *_, **__: emitted)
    assert ziplan(capsys, *FIT, "--out", folder).code == 0
    (folder / "mine.txt").write_text("mine")
    (folder / "edited.sh").write_text("# by me")
    (folder / "linked").unlink()
    (folder / "linked").symlink_to("mine.txt")
    monkeypatch.setattr(runtime, "emit", lambda *_, **__: {"handmade.json": "{}"})
    ran = ziplan(capsys, *FIT, "--out", folder)
    assert sorted(os.listdir(folder)) == ["edited.sh", "handmade.json", "linked", "mine.txt", "plan.yaml"]
    assert "removed, of an earlier plan: .hidden_env, launch.sbatch" in " ".join(ran.out.split())
    assert "edited.sh is of an earlier plan and was changed since" in ran.err
    assert (folder / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("planted", ["not: [a, plan", "schema: ziplan.plan/1", "files: {../mine.txt: x}"])
def test_a_plan_file_that_is_none_makes_nothing_go(planted, answers, capsys, tmp_path):
    answers("fits")
    (tmp_path / "mine.txt").write_text("mine")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "plan.yaml").write_text(planted)
    assert ziplan(capsys, *FIT, "--out", folder).code == 0
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_out_with_a_path_in_the_list_of_files_leaves_it_alone(answers, capsys, tmp_path):
    answers("fits")
    folder = tmp_path / "run"
    (tmp_path / "mine.txt").write_text("mine")
    assert ziplan(capsys, *FIT, "--out", folder).code == 0
    path = folder / "plan.yaml"
    path.write_text(path.read_text().replace("  handmade.json:", f"  {digest(b'mine')}: x\n  ../mine.txt:"))
    assert ziplan(capsys, *FIT, "--out", folder).code == 0
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_removed_files_are_told_in_json_too(answers, capsys, tmp_path, monkeypatch):
    answers("fits")
    runtime = type(answer().problem.runtime)
    for emitted in ({"a.json": "{}", "b.sh": "#"}, {"a.json": "{}"}):
        monkeypatch.setattr(runtime, "emit", lambda *_, emitted=emitted, **__: emitted)
        ran = ziplan(capsys, *FIT, "--out", tmp_path, "--json")
    assert "files: removed, of an earlier plan: b.sh" in json.loads(ran.out)["notes"]


def test_files_of_an_earlier_plan_are_told_where_the_new_one_does_not_fit(
    answers, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    answers("fits")
    assert ziplan(capsys, *FIT, "--out", "p").code == 0
    answers("does_not_fit")
    ran = ziplan(capsys, *FIT, "--out", "p")
    assert "p keeps those of an earlier plan".replace(" ", "") in "".join(ran.out.split())
    assert sorted(os.listdir("p")) == ["handmade.json", "plan.yaml"]


@pytest.mark.parametrize(
    "arguments",
    [
        (*FIT, "--out", ""),
        (*FIT, "--out", "  "),
        (*FIT, "-o", ""),
        (*FIT, "--nvme-path", ""),
        ("limits", *FIT[1:], "-o", ""),
        ("validate", "-o", ""),
        ("validate", ""),
        ("init", ""),
    ],
)
def test_an_empty_path_is_refused_and_nothing_written(arguments, answers, capsys, tmp_path, monkeypatch):
    answers("fits")
    monkeypatch.chdir(tmp_path)
    ran = ziplan(capsys, *arguments)
    assert (ran.code, ran.out, os.listdir(tmp_path)) == (2, "", [])
    assert "is empty" in ran.err


def test_out_refuses_a_file(answers, capsys, tmp_path):
    answers("fits")
    (tmp_path / "file").write_text("mine")
    ran = ziplan(capsys, *FIT, "--out", tmp_path / "file")
    assert (ran.code, ran.out) == (2, "")
    assert "is a file" in ran.err
    assert (tmp_path / "file").read_text() == "mine"


def test_nothing_half_written_is_left(answers, capsys, tmp_path, monkeypatch):
    answers("fits")
    (tmp_path / "handmade.json").write_text("old")

    def refuse(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ziplan.cli.output.os.replace", refuse)
    ran = ziplan(capsys, *FIT, "--out", tmp_path)
    assert ran.code == 2
    assert "No space left on device" in ran.err
    assert os.listdir(tmp_path) == ["handmade.json"]
    assert (tmp_path / "handmade.json").read_text() == "old"


def test_a_plan_that_does_not_fit_is_not_written(answers, capsys, tmp_path):
    answers("does_not_fit")
    ran = ziplan(capsys, *FIT, "--out", tmp_path / "run")
    assert ran.code == 1
    assert not (tmp_path / "run").exists()
    assert "not written out" in ran.out
    assert "files" not in ziplan(capsys, *FIT).out


def test_a_plan_that_cannot_be_emitted_is_said(capsys, monkeypatch, tmp_path):
    made = answer()

    def refuse(*_):
        raise CannotEmit("no tiles here")

    monkeypatch.setattr(type(made.problem.runtime), "emit", refuse)
    monkeypatch.setattr("ziplan.cli.fit.answer_to", lambda request, **_: made)
    assert "none: no tiles here" in ziplan(capsys, *FIT).out
    ran = ziplan(capsys, *FIT, "--out", tmp_path)
    assert (ran.code, ran.err) == (2, "ziplan: no tiles here\n")


def test_explain_adds_the_derivation_and_the_ledger(answers, capsys):
    answers("fits")
    said = ziplan(capsys, *FIT, "--explain").out
    assert "derivation" in said
    assert "formulas of the ledger's lines" in said


def test_explain_ranks_what_a_little_more_would_save(capsys):
    said = ziplan(
        capsys, "fit", "qwen2.5-7b", "rtx-4090-desktop", "--sequence-length", "4096", "--explain"
    ).out
    table = said.partition("what a little more would save\n")[2].partition("\n\n")[0].splitlines()
    shares = [float(row.split()[-1].rstrip("%")) for row in table[1:]]
    assert {row.split("  ")[1] for row in table[1:]} >= {
        "256 GB more dram per node",
        "one more drive per node",
    }
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 3


@pytest.mark.parametrize("width", [80, 100])
def test_the_answer_keeps_to_the_terminals_width(width, answers, capsys, monkeypatch):
    answers("does_not_fit")
    monkeypatch.setenv("COLUMNS", str(width))
    lines = ziplan(capsys, *FIT).out.splitlines()
    assert max(map(len, lines)) <= width
    assert 12 <= len(lines) <= 22 * 100 / min(width, 100)


def test_flags_become_settings(capsys, monkeypatch):
    asked = []
    monkeypatch.setattr("ziplan.cli.fit.answer_to", lambda request, **_: asked.append(request) or answer())
    ziplan(
        capsys, *FIT, "--global-batch-size", 64, "--checkpointing", "full", "--optimizer", "adamw",
        "--set", "tiers.dram.capacity=2 TiB", "--set", "nodes=4", "--objective", "wear", "--allow-tiling",
    )  # fmt: skip
    (request,) = asked
    assert request.training == {
        "sequence_length": 4096,
        "global_batch_size": 64,
        "activation_checkpointing": "full",
        "optimizer": {"kind": "adamw"},
    }
    assert request.settings == ("tiers.dram.capacity=2 TiB", "nodes=4")
    assert (request.objective, request.allow_tiling) == ("wear", True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fit", "llama-3.1-8b", "dgx-a100-80g"), "--sequence-length"),
        (("fit", "lama-3.1-8b", "dgx-a100-80g"), "did you mean `llama-3.1-8b`?"),
        (("fit", "llama-3.1-8b", "dgx-a100-80"), "did you mean `dgx-a100-80g`?"),
        ((*FIT, "--runtime", "deepsped"), "deepspeed"),
        ((*FIT, "--set", "tiers.dram.capacity"), "KEY=VALUE"),
        ((*FIT, "--set", "tiers.dram.capacty=1 TB"), "did you mean `capacity`?"),
        ((*FIT, "--set", "tiers.dram.capacity=1 GB/s"), "ZP011"),
        (("fit", "no/such/model.yaml", "dgx-a100-80g"), "no such file"),
    ],
)
def test_wrong_input_is_told_with_its_remedy(arguments, said, capsys):
    ran = ziplan(capsys, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.parametrize("runtime", ["deepspeed", "fsdp", "megatron"])
def test_a_gpu_whose_memory_has_no_rate_is_answered_but_for_the_time(runtime, capsys):
    lacking = ("--set", "gpu.memory.bandwidth=null", "--micro-batch-size", "1")
    ran = ziplan(capsys, *FIT, "--runtime", runtime, *lacking, "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["verdict"], told["estimate"]["step_time_s"]) == (3, "unknown", None)
    assert "hbm" in told["memory"]
    assert "tiers.hbm.read_bandwidth" in ran.out


def test_all_inputs_are_looked_at_before_giving_up(capsys):
    ran = ziplan(capsys, "fit", "lama-3.1-8b", "dgx-a100-80", "--runtime", "none", "--set", "nodes")
    assert ran.code == 2
    for said in ("lama-3.1-8b", "dgx-a100-80", "--set 'nodes'", "unknown runtime 'none'"):
        assert said in ran.err


def test_the_emitter_is_told_of_trainer_and_drives(answers, capsys, monkeypatch):
    answers("fits")
    told = []
    runtime = type(answer().problem.runtime)
    monkeypatch.setattr(runtime, "emit", lambda *_, **asked: told.append(asked) or {})
    for flags in ((), ("--trainer", "none"), ("--trainer", "accelerate", "--nvme-path", "/mnt/drives")):
        assert ziplan(capsys, *FIT, *flags).code == 0
    assert told == [{}, {}, {"trainer": "accelerate", "nvme_path": "/mnt/drives"}]


@pytest.mark.parametrize("path", ["", " ", "drives", "./drives", "~/drives", "/drives\n", "/a\x1b[31m"])
def test_a_path_of_drives_is_absolute_and_plain_text(path, answers, capsys):
    answers("fits")
    ran = ziplan(capsys, *FIT, "--nvme-path", path)
    assert (ran.code, ran.out) == (2, "")
    assert "--nvme-path" in ran.err
    assert "for example --nvme-path /local_nvme" in ran.err
    assert "\x1b" not in ran.err


def test_what_plans_fewer_gpus_plans_what_was_told(capsys):
    """The options that the advice names, given beside what was asked, give its numbers."""
    slow = (
        "--set",
        "links.network.bandwidth=1 Gbit/s",
        "--sequence-length",
        "1024",
        "--global-batch-size",
        "64",
    )
    asked = ("fit", "gpt2-xl", "2x aws-g5.48xlarge", *slow, "--global-batch-size", "64")
    told = json.loads(ziplan(capsys, *asked, "--json").out)["faster_on_fewer"]
    said = " ".join(ziplan(capsys, *asked).out.split())
    (options,) = re.findall(r"sequences; (.*?) plans it", said)
    again = json.loads(ziplan(capsys, *asked, *options.split(), "--json").out)
    assert again["plan"] == told["plan"]
    assert again["estimate"]["step_time_s"] == pytest.approx(told["estimate"]["step_time_s"], rel=1e-12)
    assert again["problem"]["gpu_count"] == told["gpu_count"]
