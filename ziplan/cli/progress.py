"""How far a long measurement is, on stderr: a line that is rewritten on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

from ziplan.cli.output import complain
from ziplan.units import show, show_duration

if TYPE_CHECKING:
    from ziplan.bench.runner import Progress

BETWEEN = 0.5
WIDTH = 70


class Told:
    """Tells how far a run is: each result, and on a terminal the time left in between."""

    def __init__(self) -> None:
        self._rewrites = bool(sys.stderr and sys.stderr.isatty())
        self._said = 0.0

    def tell(self, progress: Progress) -> None:
        """A moment of a run."""
        if progress.result is not None:
            self.clear()
            complain(_words(progress))
            return
        now = time.monotonic()
        if not self._rewrites or now - self._said < BETWEEN:
            return
        self._said = now
        left = show_duration(max(0.0, progress.whole - progress.done), 2)
        share = progress.done / progress.whole if progress.whole else 1.0
        self._put(f"\r{f'{progress.benchmark}: {share:.0%}, {left} left':<{WIDTH}}")

    def clear(self) -> None:
        """Take the line away."""
        if self._rewrites:
            self._put(f"\r{'':<{WIDTH}}\r")

    def _put(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(text)
            sys.stderr.flush()


def _words(progress: Progress) -> str:
    result = progress.result
    median = getattr(result, "median", None)
    left = show_duration(max(0.0, progress.whole - progress.done), 2)
    if median is not None and result is not None:
        unit = getattr(result, "unit", "1")
        mark = ", unstable" if getattr(result, "unstable", False) else ""
        return f"{result.name} {show(median, unit, 4)}{mark} ({left} left)"
    name = result.name if result is not None else progress.benchmark
    reason = getattr(result, "reason", None) or getattr(result, "text", "")
    return f"{name}: {reason}"[:200]
