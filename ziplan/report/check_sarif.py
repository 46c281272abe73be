"""SARIF 2.1.0: findings as code scanners of several hosts read them.

Format: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from ziplan import __version__
from ziplan.check.finding import Finding, Rule, Severity
from ziplan.check.policy import Ignore
from ziplan.check.rules import RULES
from ziplan.check.run import Checked
from ziplan.report.json import dumps

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "note"}


def sarif(checked: Checked) -> str:
    """A log with one run: every rule, the findings, and those that are suppressed with their reason."""
    every = [(each, None) for each in checked.findings]
    every += list(checked.suppressed)  # type: ignore[arg-type]
    codes = sorted({each.code for each, _ in every})
    run = {
        "tool": {
            "driver": {
                "name": "ziplan",
                "version": __version__,
                "rules": [_rule(RULES[code]) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(each, entry, codes) for each, entry in every],
        "properties": {"verdict": checked.verdict},
    }
    return dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.title.replace("-", " ").split() if word.isalnum()),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.what},
        "help": {"text": f"{rule.what}\n\n{rule.why}\n\nFix: {rule.fix}"},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
    }


def _result(finding: Finding, entry: Ignore | None, codes: list[str]) -> dict[str, Any]:
    identity = sha256(f"{finding.code}:{finding.file}:{finding.path}".encode()).hexdigest()
    location: dict[str, Any] = {"physicalLocation": _place(finding)}
    if finding.path:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.path}]
    said = f"{finding.message}. Fix: {finding.fix}" if finding.fix else finding.message
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": LEVELS[finding.severity],
        "message": {"text": said},
        "locations": [location],
        "partialFingerprints": {"ziplan/v1": identity},
    }
    if entry is not None:
        kind = "inSource" if entry.line else "external"
        result["suppressions"] = [{"kind": kind, "justification": entry.reason}]
    return result


def _place(finding: Finding) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.file)}}
    if finding.line:
        place["region"] = {"startLine": finding.line, "startColumn": max(1, finding.column)}
    return place


def _uri(file: str) -> str:
    """A file as a URI: a relative one stays relative to where the check ran."""
    return Path(file).as_uri() if PurePath(file).is_absolute() else quote(PurePath(file).as_posix())
