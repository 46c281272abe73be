"""One benchmark in a process of its own, watched: it may crash, hang or run over, and the rest is kept."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from typing import IO, Any

from ziplan.bench.benchmark import Benchmark, Task
from ziplan.bench.child import result_of, task_document
from ziplan.bench.lifetime import started_by_this
from ziplan.bench.measurement import Result, Waived

SILENCE_FACTOR = 3.0
SILENCE_SECONDS = 60.0
"""A process is ended that has said nothing for this long and so many times what it should take in all."""
TICK = 0.2


def watched(
    benchmark: Benchmark, task: Task, silence: float, tick: Callable[[], None] = lambda: None
) -> Generator[Result, None, None]:
    """The results of a benchmark as they come, within `task.seconds`; last a waived one if it was ended.

    `silence` is how long it may go without a result.
    """
    with tempfile.TemporaryFile() as said:
        process, answers = _started(benchmark, task, said)
        try:
            reason = yield from _results(process, answers, task.seconds, silence, tick)
        finally:
            os.close(answers)
            _end(process)
        if reason or process.returncode:
            yield Waived(name=benchmark.name, reason=reason or _fate(process.returncode, said))


def _started(benchmark: Benchmark, task: Task, said: IO[bytes]) -> tuple[subprocess.Popen[bytes], int]:
    reading, writing = os.pipe()
    process = subprocess.Popen(  # noqa: S603 - this interpreter, a module of this package
        [sys.executable, "-m", "ziplan.bench.child", str(writing)],
        stdin=subprocess.PIPE,
        stdout=said,
        stderr=said,
        pass_fds=(writing,),
        # Ctrl-C reaches every process of the terminal: this one is ended by its parent, in its turn.
        start_new_session=True,
        env=started_by_this(),
    )
    os.close(writing)
    document: dict[str, Any] = {"benchmark": benchmark.name, "task": task_document(task)}
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(document).encode())
        process.stdin.close()
    except OSError:
        process.stdin = None  # it has ended already, which its code tells
    return process, reading


def _results(
    process: subprocess.Popen[bytes], answers: int, seconds: float, silence: float, tick: Callable[[], None]
) -> Generator[Result, None, str]:
    """Results until the process ends; returns why it was ended, empty where it ended itself."""
    begin = heard = time.monotonic()
    rest = b""
    while True:
        now = time.monotonic()
        if now - begin > seconds:
            return "the time budget was used up while it ran"
        if now - heard > silence:
            return f"gave no result for {now - heard:.0f} s and was ended"
        tick()
        if not select.select([answers], [], [], min(TICK, max(0.0, seconds - (now - begin))))[0]:
            continue
        read = os.read(answers, 1 << 16)
        if not read:
            # It closed its end: it is over, or nearly so.
            _wait(process, TICK * 10)
            return ""
        heard = time.monotonic()
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            yield result_of(line.decode())


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started; its files have no names and go with it."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            process.kill()
    process.wait()


def _fate(code: int, said: IO[bytes]) -> str:
    said.seek(0)
    lines = said.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")[:200]
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"its process {how}{f': {last}' if last else ''}"
