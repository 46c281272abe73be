"""Writes what the estimate knows of its own residuals: `ziplan/estimate/residuals.py`."""

from __future__ import annotations

from collections.abc import Iterable

from ziplan.report.validation import Score

HEAD = '''\
"""Measured over predicted step time by runtime and kind of run: (scored runs, low end, high end).

Written by docs/generate.py from the shipped measurements; what the numbers are for is in
`ziplan.estimate.fidelity`.
"""

from __future__ import annotations

RESIDUALS: dict[str, dict[str, tuple[int, float, float]]] = {
'''


def residuals_module(scores: Iterable[Score]) -> str:
    """The text of the module."""
    by_runtime: dict[str, list[str]] = {}
    for score in scores:
        entry = f'        "{score.kind}": ({score.count}, {score.low:.3g}, {score.high:.3g}),\n'
        by_runtime.setdefault(score.runtime, []).append(entry)
    blocks = (f'    "{name}": {{\n{"".join(entries)}    }},\n' for name, entries in by_runtime.items())
    return f"{HEAD}{''.join(blocks)}}}\n"
