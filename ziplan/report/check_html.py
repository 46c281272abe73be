"""The judgement of a config as one HTML page: no script, nothing fetched, readable in the dark."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from ziplan.check.finding import Finding
from ziplan.check.run import Checked
from ziplan.report.check_sources import excerpt
from ziplan.report.json import formula
from ziplan.report.lines import visible
from ziplan.report.phrases import placement_words, plan_words, shown, spread

STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; padding: .25rem .75rem .25rem 0; vertical-align: top; }
pre { overflow-x: auto; padding: .5rem; border-left: 3px solid gray; }
section { margin: 1.5rem 0; }
.error { color: #c62828; } .warning { color: #b26a00; } .note { color: #1565c0; }
@media (prefers-color-scheme: dark) {
  .error { color: #ff8a80; } .warning { color: #ffcc80; } .note { color: #90caf9; }
}
"""


def html(checked: Checked) -> str:
    """The page."""
    case = checked.case
    title = f"{case.file}: {checked.verdict.replace('_', ' ')}"
    body = [
        f"<h1>{_text(title)}</h1>",
        f"<p>{_text(case.workload.model.name)} on {_text(case.cluster.label)}, "
        f"{_text(case.runtime.NAME)} {_text(case.runtime.VERSION)}</p>",
        *_numbers(checked),
        f"<h2>Findings ({len(checked.findings)})</h2>",
        *(part for each in checked.findings for part in _finding(checked, each)),
        *_left_out(checked),
    ]
    head = f'<meta charset="utf-8"><title>{_text(title)}</title><style>{STYLE}</style>'
    parts = ['<!doctype html><html lang="en">', f"<head>{head}</head>", "<body>", *body, "</body></html>"]
    return "\n".join(parts) + "\n"


def _text(value: str) -> str:
    return escape(visible(value))


def _numbers(checked: Checked) -> Iterator[str]:
    case, estimate = checked.case, checked.case.estimate
    if estimate is None or case.plan is None:
        yield "<p>The config comes to no plan, so nothing is predicted.</p>"
        return
    if math.isfinite(case.step_time):
        told = f"{shown(case.step_time, 's')} a step, {shown(case.tokens_per_s, 'token/s')}"
        yield f"<p>{_text(told)}</p>"
    yield "<table><tr><th>tier</th><th>need</th><th>have</th></tr>"
    for name, memory in case.memory.items():
        need, have = spread(memory.low, memory.high, "B"), shown(memory.available, "B")
        yield f"<tr><td>{_text(name)}</td><td>{_text(need)}</td><td>{_text(have)}</td></tr>"
    yield "</table>"
    yield f"<p>{_text(placement_words(case.plan))}<br>{_text(plan_words(estimate))}</p>"


def _finding(checked: Checked, finding: Finding) -> Iterator[str]:
    place = f"{finding.file}:{finding.line}:{finding.column}" if finding.line else finding.file
    yield f'<section id="{finding.code}-{finding.line}-{finding.column}">'
    severity = f'<span class="{finding.severity}">{finding.severity}</span>'
    yield f"<h3>{severity} {finding.code} {_text(finding.title)}</h3>"
    yield f"<p>{_text(finding.message)}</p>"
    yield f"<p><code>{_text(place)}</code> <code>{_text(finding.path)}</code></p>"
    source = excerpt(finding, checked.case)
    if source:
        yield "<pre>" + "\n".join(map(_text, source)) + "</pre>"
    if finding.fix:
        yield f"<p>Fix: {_text(finding.fix)}</p>"
    if finding.number is not None and finding.number.step is not None:
        law = f"<code>{_text(formula(finding.number.step))}</code>"
        yield f"<details><summary>How the number comes about</summary>{law}</details>"
    yield "</section>"


def _left_out(checked: Checked) -> Iterator[str]:
    for finding, entry in checked.suppressed:
        yield f"<p>Suppressed: {finding.code} <code>{_text(finding.path)}</code>: {_text(entry.reason)}</p>"
    for entry in checked.unused:
        yield f"<p>Unused suppression: {_text(str(entry))}</p>"
