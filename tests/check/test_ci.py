"""The pre-commit hook, the action and the examples: what they run, run here, without a network."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cli.runs import ziplan

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "check" / "ds_config.json"
ASKED = ("llama-2-70b", "dgx-a100-80g", "--sequence-length", "4096", "--checkpointing", "full")


def loaded(name):
    return yaml.safe_load((ROOT / name).read_text())


@pytest.fixture
def on_path(tmp_path):
    """A folder with `ziplan` and `python` in it, as an installation has them."""
    folder = tmp_path / "ziplan" / "bin"
    folder.mkdir(parents=True)
    script = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ziplan "$@"\n'
    (folder / "ziplan").write_text(script)
    (folder / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    for path in folder.iterdir():
        path.chmod(0o755)
    return folder


def environment(**more):
    return {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PYTHONPATH": str(ROOT), **more}


def test_the_hook_runs_the_command_with_its_args(on_path):
    (hook,) = loaded(".pre-commit-hooks.yaml")
    assert hook["id"] == "ziplan-check"
    assert hook["pass_filenames"] is False
    command = [*shlex.split(hook["entry"]), str(EXAMPLE), *ASKED]
    path = f"{on_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, env=environment(PATH=path), capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "ZP315" in done.stdout


def run_action(on_path, folder, **inputs):
    """What the action's step does, with the inputs that are given: (process, outputs, summary)."""
    action = loaded("action.yml")
    _, step = action["runs"]["steps"]
    names = {name: re.fullmatch(r"\$\{\{ inputs\.(.+) \}\}", text)[1] for name, text in step["env"].items()}
    given = {name: inputs.get(key, action["inputs"][key].get("default", "")) for name, key in names.items()}
    output, summary = folder / "output", folder / "summary"
    output.touch()
    summary.touch()
    done = subprocess.run(
        [shutil.which("bash"), "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder,
        env=environment(
            **given,
            RUNNER_TEMP=str(on_path.parents[1]),
            GITHUB_OUTPUT=str(output),
            GITHUB_STEP_SUMMARY=str(summary),
        ),
        capture_output=True,
        text=True,
    )
    written = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return done, written, summary.read_text()


def test_the_action_annotates_sums_up_and_fails(on_path, tmp_path):
    done, outputs, summary = run_action(
        on_path,
        tmp_path,
        config=str(EXAMPLE),
        model="llama-2-70b",
        cluster="dgx-a100-80g",
        arguments="--sequence-length 4096 --checkpointing full",
        sarif="ziplan.sarif",
    )
    assert done.returncode == 1, done.stderr
    assert "::error file=" in done.stdout
    assert outputs["verdict"] in ("fits", "tight")
    assert outputs["step-time-s"] == ""  # its step does not end for want of buffers
    assert outputs["exit-code"] == "1"
    assert "ZP315" in summary
    assert json.loads((tmp_path / "ziplan.sarif").read_text())["version"] == "2.1.0"


def test_the_action_tells_how_long_a_step_is(on_path, tmp_path):
    config = tmp_path / "ds.json"
    config.write_text('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}')
    arguments = "--sequence-length 1024 --checkpointing full"
    inputs = {
        "config": str(config),
        "model": "llama-3.2-1b",
        "cluster": "dgx-a100-80g",
        "arguments": arguments,
    }
    done, outputs, _ = run_action(on_path, tmp_path, **inputs)
    assert done.returncode == 0, done.stderr
    assert (outputs["verdict"], outputs["exit-code"]) == ("fits", "0")
    assert float(outputs["step-time-s"]) > 0


def test_the_action_tells_when_there_is_no_answer(on_path, tmp_path):
    inputs = {"config": "no such.json", "model": "llama-2-70b", "cluster": "dgx-a100-80g"}
    done, outputs, summary = run_action(on_path, tmp_path, **inputs)
    assert done.returncode == 2
    assert outputs == {"exit-code": "2"}
    assert summary == ""
    assert "no such.json" in done.stderr


def test_the_actions_outputs_are_those_that_the_step_writes():
    action = loaded("action.yml")
    step = action["runs"]["steps"][1]
    for name, output in action["outputs"].items():
        assert output["value"] == f"${{{{ steps.check.outputs.{name} }}}}"
        assert f"{name}=" in step["run"]


def test_the_examples_give_what_the_action_and_the_hook_take():
    steps = loaded("examples/ci/github-workflow.yml")["jobs"]["check"]["steps"]
    (used,) = (step for step in steps if "ziplan" in step.get("uses", ""))
    inputs = loaded("action.yml")["inputs"]
    assert set(used["with"]) <= set(inputs)
    assert {name for name, spec in inputs.items() if spec.get("required")} <= set(used["with"])
    (repo,) = loaded("examples/ci/pre-commit-config.yaml")["repos"]
    assert [hook["id"] for hook in repo["hooks"]] == [loaded(".pre-commit-hooks.yaml")[0]["id"]]


def test_the_gitlab_job_is_a_command_line(capsys, tmp_path, monkeypatch):
    *_, command = loaded("examples/ci/gitlab-ci.yml")["ziplan"]["script"]
    words = shlex.split(command)
    assert words[:2] == ["ziplan", "check"]
    monkeypatch.chdir(tmp_path)
    replaced = [str(EXAMPLE), "llama-2-70b", "dgx-a100-80g"]
    ran = ziplan(capsys, "check", *replaced, *ASKED[2:], *words[5:])
    assert ran.code == 1
    reports = loaded("examples/ci/gitlab-ci.yml")["ziplan"]["artifacts"]["reports"]
    assert json.loads((tmp_path / reports["codequality"]).read_text())
    assert (tmp_path / reports["junit"]).read_text().startswith("<?xml")


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_pages_commands_are_ones(capsys, tmp_path, monkeypatch):
    """Every `ziplan check` and `explain` of docs/check.md and the README, on the example's config."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copy(EXAMPLE, tmp_path / "ds_config.json")
    texts = [(ROOT / name).read_text() for name in ("docs/check.md", "README.md")]
    lines = [line for text in texts for block in blocks(text, "console") for line in block.splitlines()]
    commands = [
        shlex.split(line.removeprefix("$ "), comments=True) for line in lines if line.startswith("$ ziplan")
    ]
    mine = [
        words
        for words in commands
        if words[1] == "check" or (words[1] == "explain" and words[2][:2] in ("ZP", "--"))
    ]
    assert len(mine) >= 4
    for words in mine:
        ran = ziplan(capsys, *words[1:])
        assert ran.code in (0, 1), (words, ran.err)
        assert ran.out


def test_the_pages_policy_is_one(tmp_path, capsys):
    (policy,) = (
        block for block in blocks((ROOT / "docs" / "check.md").read_text(), "yaml") if "gates" in block
    )
    shutil.copy(EXAMPLE, tmp_path / "ds_config.json")
    (tmp_path / ".ziplan.yaml").write_text(policy)
    ran = ziplan(capsys, "check", tmp_path / "ds_config.json", *ASKED, "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["unused_suppressions"]


def test_the_page_of_rules_is_fresh():
    from ziplan.report.rules_page import rules_page

    assert (ROOT / "docs" / "rules.md").read_text() == rules_page()
