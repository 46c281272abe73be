"""docs/cli.md says what the commands have, no less and no more."""

import re
from pathlib import Path

import pytest
from cli.runs import ziplan

from ziplan.cli.lazy import COMMANDS

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


NAMES = [(), *((name,) for name in COMMANDS), ("bench", "merge"), ("bench", "import")]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name, capsys):
    assert f"`ziplan {name}" in PAGE
    for option in re.findall(
        r"(?<!\S)--[a-z-]+", ziplan(capsys, name, "--help").out.partition("Options:")[2]
    ):
        assert f"`{option}" in PAGE or option == "--help"


def test_nothing_is_documented_that_does_not_exist(capsys):
    helps = "".join(ziplan(capsys, *name, "--help").out for name in NAMES)
    for option in re.findall(r"`(--[a-z-]+)", PAGE):
        assert option in helps, option
    for name in re.findall(r"`ziplan ([a-z]+)", PAGE):
        assert name in COMMANDS
