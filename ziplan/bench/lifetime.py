"""That a process does not outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
"""include/uapi/linux/prctl.h"""


def end_with_parent() -> None:
    """Have the kernel end this process when its parent ends, however that happens."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have ended before the kernel was told.
    if os.getppid() == 1 and os.environ.get("ZIPLAN_BENCH_PARENT") not in (None, "1"):
        os._exit(1)
