"""A process that has imported torch and the engine once, and forks a child for every run.

Imports take most of a small run, and no run changes them: a child starts from the same imported modules
as a fresh process, before any process group, thread or patch exists, and ends with its run. The nursery
refuses to fork when it has a thread, so that a lock can never be copied while it is held.

A program is a module here with `run(job)`, whose result is written as JSON, and `IMPORTS`, the modules
that it needs. As a command, `python -m engine.nursery PROGRAM...` imports the programs named and then
reads requests, a line of JSON each: `program`, `timeout_s` and `workers`, each with `job`, `result`,
`folder` and `said` (a file for what it prints). It answers with a line, the list of exit statuses as
`subprocess` gives them; null stands for a worker that was ended because it took too long.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
TIMEOUT = 240
"""Seconds that a run may take."""

NURSERIES = (
    ("engine.train", "engine.several", "engine.swept"),
    ("engine.fsdp_train", "engine.fsdp_several", "engine.fsdp_swept"),
    ("engine.puppet",),
)
"""Programs that one nursery serves; FSDP2's never sees DeepSpeed."""

ENVIRONMENT = {
    "PYTHONPATH": str(TESTS),
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "PYTHONWARNINGS": "ignore",
    "DS_ACCELERATOR": "cpu",
    "DS_PIN_MEMORY_BACKEND": "native",
    # Tensors that were freed are used again, and not faulted in anew by the page.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
}

_started: dict[tuple[int, tuple[str, ...]], subprocess.Popen[str]] = {}


class RunFailed(AssertionError):
    """A worker ended badly: `rank` is the first that did, `status` how, `said` the end of what it said."""

    def __init__(self, rank: int, status: int | None, said: str) -> None:
        how = "took too long" if status is None else f"ended with {status}"
        super().__init__(f"rank {rank} {how} and said\n{said}")
        self.rank, self.status, self.said = rank, status, said


def run(program: str, jobs: Sequence[Mapping[str, Any]], folder: Path, timeout: float = TIMEOUT) -> list[Any]:
    """Run a worker of `program` for each job, all at the same time; what each of them found."""
    workers = [_prepared(job, folder / f"rank{rank}") for rank, job in enumerate(jobs)]
    request = {"program": program, "timeout_s": timeout, "workers": workers}
    (programs,) = (each for each in NURSERIES if program in each)
    statuses = _ask(programs, request)
    for rank, (status, worker) in enumerate(zip(statuses, workers, strict=True)):
        if status != 0 or not Path(worker["result"]).exists():
            said = Path(worker["said"]).read_text(errors="replace")
            raise RunFailed(rank, status, "\n".join(said.splitlines()[-40:]))
    return [json.loads(Path(worker["result"]).read_text()) for worker in workers]


def _prepared(job: Mapping[str, Any], folder: Path) -> dict[str, str]:
    folder.mkdir()
    (folder / "job.json").write_text(json.dumps(job))
    names = {"job": "job.json", "result": "result.json", "said": "said.txt"}
    return {"folder": str(folder)} | {key: str(folder / name) for key, name in names.items()}


def _ask(programs: tuple[str, ...], request: Mapping[str, Any]) -> list[int | None]:
    """What the nursery of these programs answers; a nursery that has ended is started again."""
    key = (os.getpid(), programs)
    nursery = _started.get(key)
    if nursery is None or nursery.poll() is not None:
        nursery = _started[key] = _start(programs)
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write(json.dumps(request) + "\n")
    nursery.stdin.flush()
    answer = nursery.stdout.readline()
    assert answer, f"the nursery of {programs} ended with {nursery.wait()}"
    return json.loads(answer)


def _start(programs: tuple[str, ...]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "engine.nursery", *programs]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    nursery = subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, text=True, **pipes)
    atexit.register(_end, nursery)
    return nursery


def _end(nursery: subprocess.Popen[str]) -> None:
    """It ends by itself when nobody can ask any more."""
    assert nursery.stdin is not None
    nursery.stdin.close()
    nursery.wait()


# In the nursery itself.


def main() -> None:
    # Answers go where nobody else writes: what libraries print goes to the tests' errors.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    programs = {name: importlib.import_module(name) for name in sys.argv[1:]}
    for name in sorted({name for program in programs.values() for name in program.IMPORTS}):
        importlib.import_module(name)
    _ask_for_the_processor_once()
    gc.freeze()  # so that no collection in a child touches, and so copies, what was imported
    for line in sys.stdin:
        request = json.loads(line)
        statuses = _serve(programs[request["program"]], request)
        answers.write(json.dumps(statuses) + "\n")
        answers.flush()


def _ask_for_the_processor_once() -> None:
    """DeepSpeed's CPU optimizers ask cpuinfo for its vendor, which takes a second and several processes."""
    cpuinfo = sys.modules.get("cpuinfo")
    if cpuinfo:
        known = cpuinfo.get_cpu_info()
        cpuinfo.get_cpu_info = lambda: known


def _serve(program: Any, request: Mapping[str, Any]) -> list[int | None]:
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, "a process with threads must not be forked"
    end = time.monotonic() + request["timeout_s"]
    children = [_fork(program, worker) for worker in request["workers"]]
    return _statuses(children, end)


def _fork(program: Any, worker: Mapping[str, str]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        _become(worker)
        found = program.run(json.loads(Path(worker["job"]).read_text()))
        Path(worker["result"]).write_text(json.dumps(found))
        status = 0
    except BaseException:  # noqa: BLE001 (whatever it is, it is the child's end)
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads of torch and DeepSpeed sometimes abort while the interpreter is taken down


def _become(worker: Mapping[str, str]) -> None:
    """Take the place of a process started for this worker."""
    os.chdir(worker["folder"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    said = os.open(worker["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream, file in ((0, nothing), (1, said), (2, said)):
        os.dup2(file, stream)


def _statuses(children: Sequence[int], end: float) -> list[int | None]:
    """How each child ended; those that run when time is over are ended."""
    found: dict[int, int | None] = {}
    while len(found) < len(children):
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            found[child] = os.waitstatus_to_exitcode(status)
        elif time.monotonic() > end:
            for late in set(children) - set(found):
                os.kill(late, signal.SIGKILL)
                os.waitpid(late, 0)
                found[late] = None
        else:
            time.sleep(0.01)
    return [found[child] for child in children]


if __name__ == "__main__":
    main()
