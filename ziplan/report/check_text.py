"""The judgement of a config on a terminal: the verdict, each finding at its place, then the numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ziplan.check.case import Case
from ziplan.check.finding import SEVERITIES, Finding, Severity
from ziplan.check.run import Checked
from ziplan.report.check_sources import excerpt
from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.page import Block, Paragraph, laid_out
from ziplan.report.phrases import gpus_words, placement_words, plan_words, shown, size_words
from ziplan.report.text import VERDICTS
from ziplan.report.tiers import tier_table
from ziplan.units import counted

STYLES: dict[Severity, str] = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
LONGEST = 1000


def check_text(checked: Checked, width: int) -> list[Line]:
    """The whole judgement."""
    case = checked.case
    lines = [*_headline(checked, width), line()]
    for finding in checked.findings:
        lines += [*finding_lines(finding, case, width), line()]
    lines += laid_out(_numbers(checked, width), width, LONGEST)
    return [*lines, *_closing(checked, width)]


def _headline(checked: Checked, width: int) -> list[Line]:
    case = checked.case
    there = case.cluster.gpu_count
    gpus = gpus_words(case.estimate.gpus if case.estimate is not None else there, there)
    what = (
        f"{case.file}: {case.workload.model.name} ({size_words(case.workload.model)}) on "
        f"{case.cluster.label} ({gpus}), {case.runtime.NAME} {case.runtime.VERSION}".rstrip()
    )
    word = checked.verdict.replace("_", " ")
    why = ", it comes to no plan" if case.plan is None else ""
    *first, last = wrapped(f"{what}: {word}{why}", width)
    text = last[0].text
    at = text.rfind(word)
    if at < 0:
        return [*first, last]
    styled = line(text[:at], Span(word, f"bold {VERDICTS[checked.verdict]}"), text[at + len(word) :])
    return [*first, styled]


def finding_lines(finding: Finding, case: Case, width: int) -> list[Line]:
    """One finding: its place, code and sentence, the source with a caret, and the remedy."""
    place = f"{finding.file}:{finding.line}:{finding.column}" if finding.line else finding.file
    head = Span(f"{finding.severity}[{finding.code}]", STYLES[finding.severity])
    source = excerpt(finding, case)
    lines = [line(head, f" {finding.title}"), *_indented(finding.message, width)]
    lines += [line(f"  --> {place}", f" ({finding.path})" if finding.path else "")]
    lines += [line(f"  {text}") for text in source]
    if finding.fix:
        lines += _indented(f"fix: {finding.fix}", width)
    return lines


def _indented(text: str, width: int) -> list[Line]:
    return [line("  ", *each) for each in wrapped(text, width - 2, indent="")]


def _numbers(checked: Checked, width: int) -> list[Block]:
    """What is predicted of the plan."""
    case, estimate = checked.case, checked.case.estimate
    if estimate is None or case.plan is None:
        return []
    return [
        *_times(checked),
        tier_table(replace(estimate, memory=case.memory), width),
        Paragraph("placement", placement_words(case.plan)),
        Paragraph("plan", plan_words(estimate)),
        [],
    ]


def _times(checked: Checked) -> Iterable[Block]:
    case, estimate = checked.case, checked.case.estimate
    if estimate is None or math.isnan(case.step_time):
        missing = ", ".join(estimate.unknown) if estimate is not None else ""
        yield Paragraph("step", f"unknown: needs {missing}")
        return
    played = "played" if case.simulation is not None else "estimated"
    words = f"{shown(case.step_time, 's')} {played}, {shown(case.tokens_per_s, 'token/s')}"
    if case.simulation is not None:
        words += f"; the estimate says {shown(float(estimate.step_time), 's')}"
    yield Paragraph("step", words)
    if case.simulation is not None and case.stall_fraction > 0:
        causes = list(case.simulation.tally.stalls_by_cause.items())[:3]
        told = ", ".join(f"{cause} {shown(time, 's')}" for cause, time in causes)
        yield Paragraph("waits", f"the GPU waits {case.stall_fraction:.0%} of it: {told}")


def _closing(checked: Checked, width: int) -> list[Line]:
    """How many findings there are, and what was left out of them and why."""
    lines: list[Line] = []
    for finding, entry in checked.suppressed:
        lines += wrapped(f"suppressed {finding.code} {finding.path}: {entry.reason}", width)
    for entry in checked.unused:
        lines += wrapped(f"unused suppression {entry}: nothing is found there ({entry.reason})", width)
    counts = [counted(checked.count(each), each) for each in SEVERITIES if checked.count(each)]
    said = ", ".join(counts) or "no findings"
    if checked.suppressed:
        said += f"; {len(checked.suppressed)} suppressed"
    return [*lines, *wrapped(f"{said}{_explain(checked.findings)}", width)]


def _explain(findings: Sequence[Finding]) -> str:
    return f"; `ziplan explain {findings[0].code}` tells why" if findings else ""
