"""The judgement of a config in the forms that other programs read: one function a form."""

from __future__ import annotations

import csv as tables
import io
import math
from collections.abc import Callable, Iterator
from hashlib import sha256
from json import dumps as encode
from xml.sax.saxutils import escape, quoteattr

from ziplan.check.finding import Finding, Severity
from ziplan.check.run import Checked
from ziplan.report.check_html import html
from ziplan.report.check_json import check_document
from ziplan.report.check_sarif import sarif
from ziplan.report.check_text import check_text
from ziplan.report.json import dumps
from ziplan.report.lines import plain, visible
from ziplan.report.phrases import shown

FILE_WIDTH = 100
ANNOTATIONS: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "notice"}
"""Severities as GitHub's workflow commands name them."""

QUALITY: dict[Severity, str] = {"error": "critical", "warning": "major", "note": "info"}
"""Severities as GitLab's code quality report names them."""

COLUMNS = ("code", "severity", "title", "message", "file", "path", "line", "column", "fix", "value", "unit")


def text(checked: Checked) -> str:
    """As on a terminal, without colour."""
    return plain(check_text(checked, FILE_WIDTH))


def json(checked: Checked) -> str:
    """`ziplan.check/1`."""
    return dumps(check_document(checked))


def csv(checked: Checked) -> str:
    """A line for each finding, with a header."""
    out = io.StringIO()
    writer = tables.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in checked.findings:
        known = each.number is not None and not math.isnan(each.number.value)
        number = (each.number.value, each.number.unit) if each.number is not None and known else ("", "")
        writer.writerow((*(getattr(each, name) for name in COLUMNS[:9]), *number))
    return out.getvalue()


def github(checked: Checked) -> str:
    """Workflow commands of GitHub Actions, which it shows as annotations of the file."""
    return "".join(f"{command}\n" for command in _commands(checked))


def _commands(checked: Checked) -> Iterator[str]:
    for each in checked.findings:
        places = {"file": each.file, "line": each.line or "", "col": each.column or ""}
        places["title"] = f"{each.code} {each.title}"
        told = ",".join(f"{name}={_property(str(value))}" for name, value in places.items() if value)
        yield f"::{ANNOTATIONS[each.severity]} {told}::{_data(_with_fix(each))}"


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def _with_fix(finding: Finding) -> str:
    return f"{finding.message}\nfix: {finding.fix}" if finding.fix else finding.message


def gitlab(checked: Checked) -> str:
    """GitLab's code quality report."""
    seen: dict[str, int] = {}
    rows = []
    for each in checked.findings:
        identity = f"{each.code}:{each.file}:{each.path}"
        seen[identity] = seen.get(identity, 0) + 1
        rows.append(
            {
                "description": f"{each.title}: {_with_fix(each)}",
                "check_name": each.code,
                "fingerprint": sha256(f"{identity}:{seen[identity]}".encode()).hexdigest(),
                "severity": QUALITY[each.severity],
                "location": {"path": each.file, "lines": {"begin": max(1, each.line)}},
            }
        )
    return encode(rows, indent=2) + "\n"


def junit(checked: Checked) -> str:
    """JUnit XML: a test for the verdict and one for each finding; what is an error has failed."""
    cases = [*_junit_cases(checked)]
    failed = sum("<failure" in case for case in cases)
    counts = f'tests="{len(cases)}" failures="{failed}" errors="0"'
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="ziplan check" {counts}>',
        f"  <testsuite name={_attribute(checked.case.file)} {counts}>",
        *(f"    {case}" for case in cases),
        "  </testsuite>",
        "</testsuites>",
    ]
    return "\n".join(lines) + "\n"


def _junit_cases(checked: Checked) -> Iterator[str]:
    name = _attribute(checked.case.file)
    verdict = checked.verdict
    inside = f'<failure message="{verdict}" type="verdict"/>' if verdict == "does_not_fit" else ""
    yield f'<testcase classname={name} name="verdict">{inside}</testcase>'
    for each in checked.findings:
        message, title = _with_fix(each), f"{each.code} {each.title}"
        if each.severity == "error":
            inside = f"<failure message={_attribute(each.title)} type={_attribute(each.code)}>"
            inside += f"{escape(_shown(message))}</failure>"
        else:
            inside = f"<system-out>{escape(_shown(f'{each.severity}: {message}'))}</system-out>"
        place = f" file={_attribute(each.file)} line={_attribute(str(each.line))}"
        yield f"<testcase classname={name} name={_attribute(title)}{place}>{inside}</testcase>"


def _attribute(value: str) -> str:
    return quoteattr(_shown(value))


def _shown(value: str) -> str:
    """Text without the control characters that XML has no place for."""
    return "\n".join(visible(part) for part in value.split("\n"))


def md(checked: Checked) -> str:
    """Markdown, as for the summary of a pipeline."""
    case = checked.case
    lines = [f"### ziplan check: {checked.verdict.replace('_', ' ')}", ""]
    lines += [f"`{_cell(case.file)}`, {_cell(case.workload.model.name)} on {_cell(case.cluster.label)}", ""]
    if case.estimate is not None:
        lines += _md_numbers(checked)
    if checked.findings:
        lines += ["| | finding | where | fix |", "|---|---|---|---|"]
        lines += [_md_row(each) for each in checked.findings]
    else:
        lines.append("No findings.")
    lines += [""] * bool(checked.suppressed)
    for each, entry in checked.suppressed:
        lines.append(f"- suppressed: {each.code} {_cell(each.path)}: {_cell(entry.reason)}")
    return "\n".join(lines) + "\n"


def _md_numbers(checked: Checked) -> list[str]:
    case, estimate = checked.case, checked.case.estimate
    assert estimate is not None
    step = "unknown"
    if not math.isnan(case.step_time):
        step = f"{shown(case.step_time, 's')}, {shown(case.tokens_per_s, 'token/s')}"
    rows = [
        f"| {name} | {shown(memory.low, 'B')} to {shown(memory.high, 'B')} | {shown(memory.available, 'B')} |"
        for name, memory in case.memory.items()
    ]
    return [f"Step: {step}", "", "| tier | need | have |", "|---|---|---|", *rows, ""]


def _md_row(finding: Finding) -> str:
    place = f"`{_cell(finding.file)}:{finding.line}`" if finding.line else f"`{_cell(finding.file)}`"
    key = f" `{_cell(finding.path)}`" if finding.path else ""
    return (
        f"| {finding.severity} | **{finding.code}** {_cell(finding.title)}: {_cell(finding.message)} "
        f"| {place}{key} | {_cell(finding.fix)} |"
    )


def _cell(value: str) -> str:
    """Text that neither ends a cell nor becomes markup of its own."""
    flat = visible(" ".join(value.split()))
    return escape(flat).replace("|", "\\|").replace("`", "'").replace("*", "\\*")


FORMATS: dict[str, Callable[[Checked], str]] = {
    "text": text,
    "json": json,
    "md": md,
    "csv": csv,
    "github": github,
    "gitlab": gitlab,
    "junit": junit,
    "sarif": sarif,
    "html": html,
}
"""Name of a form to what writes it."""


def rendered(checked: Checked, form: str) -> str:
    """The judgement in the form called `form`."""
    return FORMATS[form](checked)
