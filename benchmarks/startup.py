"""CPU time of a cold command against the bare imports of the packages it is built on.

Each figure is the least of several fresh interpreters, all programs by turns, so that a machine that
is busy for a while is busy for each of them. `bare` imports the packages and nothing of them; `used`
also loads what any program that defines a pydantic model loads (pydantic fills its namespace lazily).
Modules are compiled, as an installer leaves them: each program runs once before it counts.
"""

import os
import resource
import subprocess
import sys
from pathlib import Path

TRIES = 15
BARE = "import typer, rich, pydantic, numpy, yaml"
USED = (
    BARE
    + "; from pydantic import BaseModel, Field; type('M', (BaseModel,), {'__annotations__': {'n': int}})(n=1)"
)
RUN = "import sys; from ziplan.__main__ import main; sys.argv[0] = 'ziplan'; main()"
CONFIG = str(Path(__file__).parents[1] / "examples" / "check" / "ds_config.json")
COMMANDS = {
    "--help": ["--help"],
    "models show": ["models", "show", "llama-3.1-70b"],
    "fit": ["fit", "llama-3.1-70b", "dgx-a100-80g", "--sequence-length", "4096"],
    "check": ["check", CONFIG, "llama-2-70b", "dgx-a100-80g", "--sequence-length", "4096", "--exit-zero"],
}


ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def least_seconds(programs):
    """Least CPU time of each program; a program is its code and its arguments."""
    runs = [[_once(*program) for program in programs] for _ in range(1 + TRIES)]
    return [min(times) for times in zip(*runs[1:], strict=True)]


def _once(code, arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", code, *arguments]
    subprocess.run(command, capture_output=True, check=True, env=ENVIRONMENT)  # noqa: S603 - our own program
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    bare, used, *commands = least_seconds(
        [(BARE, []), (USED, []), *((RUN, arguments) for arguments in COMMANDS.values())]
    )
    print(f"{'bare imports':14} {1e3 * bare:6.0f} ms")
    print(f"{'imports in use':14} {1e3 * used:6.0f} ms   {used / bare:.2f} x bare")
    for name, seconds in zip(COMMANDS, commands, strict=True):
        print(
            f"{name:14} {1e3 * seconds:6.0f} ms   {seconds / bare:.2f} x bare, {seconds / used:.2f} x in use"
        )
