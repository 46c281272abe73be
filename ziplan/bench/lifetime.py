"""That a process does not outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
"""include/uapi/linux/prctl.h"""


PARENT = "ZIPLAN_BENCH_PARENT"
"""Variable in which a process is told the number of the one that started it."""


def end_with_parent() -> None:
    """Have the kernel end this process when its parent ends, however that happens."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have ended before the kernel was told: then somebody else is the parent.
    if os.environ.get(PARENT, "") not in ("", str(os.getppid())):
        os._exit(1)


def started_by_this() -> dict[str, str]:
    """The environment of a process that is to end with this one."""
    return {**os.environ, PARENT: str(os.getpid())}
