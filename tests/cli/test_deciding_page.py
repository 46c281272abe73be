"""The commands of the pages on deciding run as they stand, and print what the pages show."""

import importlib.util
import itertools
import re
import shlex
from pathlib import Path

import pytest
from cli.runs import ziplan

ROOT = Path(__file__).parents[2]
DECIDING = ("sweep", "compare", "diff", "report")


def _shown():
    spec = importlib.util.spec_from_file_location("shown", ROOT / "docs" / "shown.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SHOWN = _shown()


def commands():
    """Every command of the pages once, and of the README those that are about deciding."""
    told = {}
    for page in SHOWN.PAGES:
        for words in SHOWN.commands(page):
            told.setdefault(tuple(words), page)
    for text in re.findall(r"^\$ ziplan (.*)$", (ROOT / "README.md").read_text(), re.M):
        words = shlex.split(text, comments=True)
        written = [word for word in words if word.endswith((".yaml", ".json"))]
        if (words[0] in DECIDING or "--map" in words) and all((ROOT / file).exists() for file in written):
            told.setdefault(tuple(words), "README.md")
    return [pytest.param(list(words), id=f"{page}: {words[0]}") for words, page in told.items()]


@pytest.mark.slow
@pytest.mark.parametrize("words", commands())
def test_a_documented_command_runs(words, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    names = [word for before, word in itertools.pairwise(words) if before in ("-o", "--plot", "--out")]
    into = {name: re.sub(r"[^=]+$", lambda file: str(tmp_path / file[0]), name) for name in names}
    ran = ziplan(capsys, *(into.get(word, word) for word in words))
    assert ran.code in (0, 1), ran.err
    assert ran.code == 0 or words[0] in ("diff", "check"), ran.err
    assert ran.out or names
    assert all(Path(each.partition("=")[2] or each).stat().st_size for each in into.values())


@pytest.mark.slow
@pytest.mark.parametrize("page", SHOWN.PAGES)
def test_a_page_shows_what_its_commands_print(page):
    stale = f"docs/{page} is stale: run docs/generate.py"
    assert SHOWN.shown(page) == (ROOT / "docs" / page).read_text(encoding="utf-8"), stale


@pytest.mark.parametrize("page", SHOWN.PAGES)
def test_a_page_is_linked_from_the_readme(page):
    assert f"(docs/{page})" in (ROOT / "README.md").read_text()
