"""The `ziplan` script and `python -m ziplan`: from the first import on, Ctrl-C ends it without a word.

Nothing but the standard library may be imported here before `main` runs: until the command
line is loaded, which takes a tenth of a second, nobody else would catch an interrupt.
"""

from __future__ import annotations

import gc
import os
import signal

SETTINGS = {"OPENBLAS_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"}
"""What libraries read when they are imported, for this process and unless the caller has set it.

numpy would start a thread for each core (ziplan multiplies no matrices), and pydantic would read the
metadata of every installed package to find plugins (ziplan's records are for none).
"""

OBJECTS_OF_AN_ANSWER = 300_000
"""More than an ordinary command holds, modules included: a `fit` 77 thousand, a `check` 218 thousand while a
step of 70B parameters is played; what goes on for longer is collected."""


def main() -> None:
    """Run ziplan and exit with its code; interrupted while it loads, exit 130 and say nothing."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    # Modules are no garbage: they are not searched for it while they load, nor once more at the end.
    gc.set_threshold(OBJECTS_OF_AN_ANSWER)
    # Where a shell starts ziplan with interrupts ignored (`nohup`, `&`), they stay ignored.
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        # Not an exception: an import that is interrupted by one may swallow or rename it.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from ziplan.cli.main import main as run

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
