"""Running ziplan: in this process, or as a process of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass

from ziplan.cli.main import run

FIT = ("fit", "llama-3.1-8b", "dgx-a100-80g", "--sequence-length", "4096")


@dataclass
class Ran:
    code: int
    out: str
    err: str


def ziplan(capsys, *arguments):
    """The code and the output of one command line, run in this process."""
    capsys.readouterr()
    code = run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return Ran(int(code), out, err)


def process(*arguments, env=None, cwd=None, stdout=subprocess.PIPE):
    """The same as a process of its own; `env` is laid over a plain environment."""
    plain = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", "from ziplan.cli.main import main; main()", *map(str, arguments)],
        env={**plain, "PYTHONUTF8": "0", "LC_ALL": "C.UTF-8", **(env or {})},
        cwd=cwd,
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, (done.stdout or b"").decode("utf-8", "replace"), done.stderr.decode())
