"""The commands of README run as they stand, one after the other, as somebody new would type them."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from cli.runs import ziplan
from study.calibrated import config, log_of, subject

ROOT = Path(__file__).parents[2]
COMMANDS = [
    shlex.split(text, comments=True)
    for text in re.findall(r"^\$ ziplan (.*)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
]
PAGES_ON_DECIDING = ("sweep", "compare", "report")
"""Commands of README that are run with the pages on deciding."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with what the commands take to be there: examples, a config and a log of a run."""
    place = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", place / "examples")
    truth = subject(settings=[("gpu.sustained_flops_per_s.bf16", "150 TFLOP/s")])
    (place / "ds_config.json").write_text(config())
    (place / "train.log").write_text("\n".join(log_of(truth)))
    return place


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=lambda number: " ".join(COMMANDS[number][:2]))
def test_a_command_of_readme_runs(number, folder, capsys, monkeypatch):
    words = COMMANDS[number]
    if words[0] in PAGES_ON_DECIDING:
        pytest.skip("run with the pages on deciding")
    monkeypatch.chdir(folder)
    if "plan/plan.yaml" in words and not Path("plan/plan.yaml").exists():
        assert ziplan(capsys, *COMMANDS[0]).code == 0
    ran = ziplan(capsys, *words)
    assert ran.code in (0, 1), ran.err
    assert ran.out or "-o" in words or "--out" in words
    assert "bug" not in ran.err
