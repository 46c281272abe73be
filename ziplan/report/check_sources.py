"""The line of a config that a finding is about."""

from __future__ import annotations

from ziplan.check.finding import Finding
from ziplan.files import Document
from ziplan.report.lines import visible

WIDEST = 90


def excerpt(finding: Finding, document: Document) -> list[str]:
    """The source line with a caret; nothing where the file is another one, or the finding has no key."""
    if finding.file != document.name or not finding.line or not finding.path:
        return []
    place = document.locate(tuple(finding.path.split(".")), key=True)
    if (place.line, place.column) != (finding.line, finding.column):
        return []
    text, number = place.text.rstrip(), str(place.line)
    if len(text) > WIDEST or not text.strip():
        return []
    gutter = " " * len(number)
    lead = "".join("\t" if character == "\t" else " " for character in text[: place.column - 1])
    return [
        f"{number} | {_visible(text)}",
        f"{gutter} | {lead}{'^' * max(1, min(place.length, len(text) - place.column + 1))}",
    ]


def _visible(text: str) -> str:
    return "\t".join(map(visible, text.split("\t")))
