"""The import budget: what `ziplan --help` and `ziplan fit` may import.

What that costs in time is printed by `make bench-startup`; no test depends on a clock.
"""

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


def imported(code, *arguments):
    """Top-level names of the modules that a fresh interpreter holds after `code`, in a marked line."""
    mark = "modules: "
    tell = f"import atexit, sys; atexit.register(lambda: print({mark!r}, *sys.modules, file=sys.stderr)); "
    command = [sys.executable, "-c", tell + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stderr.splitlines() if line.startswith(mark))
    return {name.partition(".")[0] for name in line.removeprefix(mark).split()}


@pytest.mark.parametrize("command", COMMANDS)
def test_imports_only_what_is_allowed(command):
    found = imported(RUN, *COMMANDS[command]) - imported("pass") - set(sys.stdlib_module_names)
    # Settings that the interpreter and compiled extensions were built with have names of their own.
    built = ("_sysconfigdata", "_cython", "cython_runtime")
    assert not {name for name in found - ALLOWED if not name.startswith(built)}
    assert "ziplan" in found
