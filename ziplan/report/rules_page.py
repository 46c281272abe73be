"""docs/rules.md, and the page of one rule on a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from ziplan.check.finding import Rule
from ziplan.check.rules import RULES
from ziplan.report.lines import Line, Span, line, wrapped

CHAPTERS = {
    "ZP1": "Memory",
    "ZP2": "Stalls",
    "ZP3": "The config",
    "ZP4": "Wires, drives and the operating system",
    "ZP5": "Trust, and what the project asks for",
}
PARTS = (("what", "What"), ("why", "Why"), ("example", "Example"), ("fix", "Fix"))


def rule_lines(rule: Rule, width: int) -> list[Line]:
    """The page of one rule."""
    lines = [line(Span(f"{rule.code} {rule.title}", "bold"), f" ({rule.severity})"), line()]
    for field, title in PARTS:
        lines += wrapped(f"{title}: {getattr(rule, field)}", width)
    return lines


def rule_list(rules: Iterable[Rule], width: int) -> list[Line]:
    """Every rule in a line."""
    lines: list[Line] = []
    for rule in rules:
        lines += wrapped(f"{rule.code}  {rule.severity:<7}  {rule.title}", width, indent=" " * 16)
    return lines


def rules_page() -> str:
    """The text of docs/rules.md."""
    lines = [
        "# Rules of `ziplan check`",
        "",
        "Written by `docs/generate.py` from the table of rules; `ziplan explain CODE` prints a rule's page.",
        "An `error` fails the check, a `warning` does under `--fail-on warning`, a `note` never does.",
        "[check.md](check.md) tells how to live with a finding.",
    ]
    for prefix, title in CHAPTERS.items():
        lines += ["", f"## {title}"]
        for rule in RULES.values():
            if rule.code.startswith(prefix):
                lines += ["", *_section(rule)]
    return "\n".join(lines) + "\n"


def _section(rule: Rule) -> list[str]:
    lines = [f"### {rule.code}: {rule.title}", "", f"Severity: {rule.severity}.", ""]
    for field, title in PARTS:
        lines.append(f"- **{title}**: {getattr(rule, field)}")
    return lines
