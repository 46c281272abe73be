"""The import budget: what `ziplan --help` and `ziplan fit` may import, and how much CPU time they take.

Time is compared with the bare imports of the same packages, measured in the same test.
"""

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

QUICKSTART = Path(__file__).parent.parent / "examples" / "quickstart"
FIT = ["fit", str(QUICKSTART / "model.yaml"), str(QUICKSTART / "cluster.yaml")]
COMMANDS = {"help": ["--help"], "fit": FIT, "fit-json": [*FIT, "--json"]}

ALLOWED = {
    "ziplan",
    *("typer", "click", "rich", "shellingham", "annotated_doc", "pygments", "markdown_it", "mdurl"),
    *("pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"),
    *("numpy", "yaml", "_yaml"),
}
"""Third-party packages that may be imported; scipy, torch and their like are not among them."""

RUN = "import sys; from ziplan.cli.main import main; sys.argv[0] = 'ziplan'; main()"
BARE = "import typer, rich.console, rich.table, pydantic, numpy, yaml"


def imported(code, *arguments):
    """Top-level names of everything that a fresh interpreter imports for `code`."""
    command = [sys.executable, "-X", "importtime", "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]
    names = re.findall(r"^import time:\s+\d+ \|\s+\d+ \|\s+(\S+)$", done.stderr, re.MULTILINE)
    return {name.partition(".")[0] for name in names}


def cpu_seconds(code, *arguments, tries=5):
    """Least CPU time of some runs in fresh interpreters."""
    return min(one_cpu_seconds(code, arguments) for _ in range(tries))


def one_cpu_seconds(code, arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", code, *arguments]
    subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("command", COMMANDS)
def test_imports_only_what_is_allowed(command):
    found = imported(RUN, *COMMANDS[command]) - imported("pass") - set(sys.stdlib_module_names)
    assert not found - ALLOWED
    assert "ziplan" in found


@pytest.mark.slow
@pytest.mark.parametrize(("command", "times"), [("help", 1.2), ("fit", 1.6)])
def test_takes_little_more_than_the_bare_imports(command, times):
    assert cpu_seconds(RUN, *COMMANDS[command]) <= times * cpu_seconds(BARE)
