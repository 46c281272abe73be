"""The `ziplan` script and `python -m ziplan`: from the first import on, Ctrl-C ends it without a word.

Nothing but the standard library may be imported here before `main` runs: until the command
line is loaded, which takes a tenth of a second, nobody else would catch an interrupt.
"""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Run ziplan and exit with its code; interrupted while it loads, exit 130 and say nothing."""
    # Where a shell starts ziplan with interrupts ignored (`nohup`, `&`), they stay ignored.
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        # Not an exception: an import that is interrupted by one may swallow or rename it.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from ziplan.cli.main import main as run

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
