"""docs/simulate.md: every command on the page runs, in the order of the page."""

import json
import re
import shlex
from pathlib import Path

from cli.runs import ziplan

PAGE = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text(encoding="utf-8")


def test_every_command_of_the_page_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ ziplan (.+)$", PAGE, re.M)
    assert len(commands) == 7
    for command in commands:
        ran = ziplan(capsys, *shlex.split(command, comments=True))
        assert ran.code == 0, (command, ran.err)
    assert json.loads((tmp_path / "step.json").read_text())["schema"] == "ziplan.simulate/1"
    assert json.loads((tmp_path / "step-trace.json").read_text())["traceEvents"]
