"""The commands that docs/deciding.md and the README's lines on deciding show run as they stand."""

import re
import shlex
from pathlib import Path

import pytest
from cli.runs import ziplan

ROOT = Path(__file__).parents[2]
DECIDING = ("sweep", "compare", "diff")


def commands():
    for page in ("README.md", "docs/deciding.md"):
        for text in re.findall(r"^\$ ziplan (.*)$", (ROOT / page).read_text(), re.M):
            words = shlex.split(text, comments=True)
            written = [word for word in words if word.endswith((".yaml", ".json"))]
            if (words[0] in DECIDING or "--map" in words) and all((ROOT / file).exists() for file in written):
                yield pytest.param(words, id=f"{page}: {words[0]}")


@pytest.mark.parametrize("words", list(commands()))
def test_a_documented_command_runs(words, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    ran = ziplan(capsys, *words)
    assert ran.code in ((0, 1) if words[0] == "diff" else (0,)), ran.err
    assert ran.out
