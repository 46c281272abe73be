"""Writes what the estimate knows of its own residuals: `ziplan/estimate/residuals.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ziplan.report.validation import Score

HEAD = '''\
"""Measured over predicted step time by runtime and kind of run: (runs of a release, low end, high end).

Written by docs/generate.py from the shipped measurements; what the numbers are for is in
`ziplan.estimate.fidelity`.
"""

from __future__ import annotations

RESIDUALS: dict[str, dict[str, tuple[int, float, float]]] = {
'''


MEANING = '''\
"""Of these, runs of a page that a parameter was taken from, off another run of it."""
'''

TAIL = """\

OWN_SOURCE: dict[str, dict[str, int]] = {
"""


def residuals_module(scores: Iterable[Score]) -> str:
    """The text of the module."""
    by_runtime: dict[str, list[str]] = {}
    own: dict[str, list[str]] = {}
    for score in scores:
        if score.own_source:
            own.setdefault(score.runtime, []).append(f'        "{score.kind}": {score.own_source},\n')
        if score.interval is None:
            continue
        count, low, high = score.interval
        entry = f'        "{score.kind}": ({count}, {low:.3g}, {high:.3g}),\n'
        by_runtime.setdefault(score.runtime, []).append(entry)
    return f"{HEAD}{_blocks(by_runtime)}}}\n{TAIL}{_blocks(own)}}}\n{MEANING}"


def _blocks(entries: Mapping[str, Iterable[str]]) -> str:
    return "".join(f'    "{name}": {{\n{"".join(lines)}    }},\n' for name, lines in entries.items())
