"""Pages that show what commands print: the text under each is what the command prints now.

In a block of a page that is marked `console` and has anything beside `$ ziplan ...` lines, all that stands
under a command is its output. A block of commands alone is left as it is.
"""

import contextlib
import io
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[1]
PAGES = ("deciding.md", "one-card.md", "deadline.md", "platform-team.md", "researcher.md")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"^\$ ziplan (.*)$", re.M)
WIDTH = "100"


def shown(page: str) -> str:
    """The text of a page with what its commands print now."""
    return BLOCK.sub(_block, (ROOT / "docs" / page).read_text(encoding="utf-8"))


def commands(page: str) -> Iterator[list[str]]:
    """The words of every command of a page that needs no file of the reader's own."""
    for text in COMMAND.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
        words = shlex.split(text, comments=True)
        read = [word for word in words if word.endswith((".yaml", ".json")) and "=" not in word]
        if words[0] == "explain" or all((ROOT / file).exists() for file in read):
            yield words


def _block(found: re.Match[str]) -> str:
    lines = found[1].splitlines()
    if all(line.startswith("$ ") for line in lines):
        return found[0]
    told = []
    for line in lines:
        if line.startswith("$ ziplan "):
            told += [line, printed(shlex.split(line.removeprefix("$ ziplan "), comments=True)).rstrip()]
    return "\n".join(["```console", *told, "```"])


def printed(words: list[str]) -> str:
    """What a command prints to stdout, run from the top of the checkout."""
    from ziplan.cli.main import run

    out, before = io.StringIO(), Path.cwd()
    os.chdir(ROOT)
    try:
        with (
            mock.patch.dict(os.environ, {"COLUMNS": WIDTH, "NO_COLOR": "1"}),
            contextlib.redirect_stdout(out),
        ):
            code = run(words)
    finally:
        os.chdir(before)
    if code not in (0, 1, 3):
        raise SystemExit(f"{shlex.join(words)} ends with {code}")
    return out.getvalue()
