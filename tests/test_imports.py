"""The import budget: what `ziplan --help` and `ziplan fit` may import.

What that costs in time is printed by `make bench-startup`; no test depends on a clock.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from ziplan.__main__ import SETTINGS

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

RUN = "import sys; from ziplan.__main__ import main; sys.argv[0] = 'ziplan'; main()"


def modules(code, *arguments):
    """Names of the modules that a fresh interpreter holds after `code`, which it tells in a marked line."""
    mark = "modules: "
    tell = f"import atexit, sys; atexit.register(lambda: print({mark!r}, *sys.modules, file=sys.stderr)); "
    command = [sys.executable, "-c", tell + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stderr.splitlines() if line.startswith(mark))
    return set(line.removeprefix(mark).split())


def imported(code, *arguments):
    """Top-level names of them."""
    return {name.partition(".")[0] for name in modules(code, *arguments)}


@pytest.mark.parametrize("command", COMMANDS)
def test_imports_only_what_is_allowed(command):
    found = imported(RUN, *COMMANDS[command]) - imported("pass") - set(sys.stdlib_module_names)
    # Settings that the interpreter and compiled extensions were built with have names of their own.
    built = ("_sysconfigdata", "_cython", "cython_runtime")
    assert not {name for name in found - ALLOWED if not name.startswith(built)}
    assert "ziplan" in found


def test_a_fit_of_shipped_names_loads_no_other_family_runtime_or_file():
    found = modules(RUN, "fit", "llama-3.1-8b", "dgx-a100-80g", "--sequence-length", "4096")
    families = {name for name in found if name.startswith("ziplan.workload.families.")}
    shared = ("build", "family", "kept", "moved")
    assert families == {f"ziplan.workload.families.{name}" for name in (*shared, "llama")}
    assert not {name for name in found if name.startswith(("ziplan.runtimes.fsdp", "ziplan.runtimes.ideal"))}
    unread = ("ziplan.hardware.cluster_file", "ziplan.workload.model_file", "ziplan.report.plan_record")
    assert not found & set(unread)


@pytest.mark.parametrize("caller", [{}, {"OPENBLAS_NUM_THREADS": "3", "PYDANTIC_DISABLE_PLUGINS": "mine"}])
def test_libraries_are_told_to_start_small_unless_the_caller_tells_them(caller, monkeypatch):
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    for name, value in caller.items():
        monkeypatch.setenv(name, value)
    code = (
        "import atexit, os; from ziplan.__main__ import SETTINGS, main\n"
        "atexit.register(lambda: print({name: os.environ[name] for name in SETTINGS})); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == str({**SETTINGS, **caller})
