"""The line of a config that a finding is about."""

from __future__ import annotations

from ziplan.check.case import Case
from ziplan.check.finding import Finding
from ziplan.report.lines import visible

WIDEST = 90


def excerpt(finding: Finding, case: Case) -> list[str]:
    """The source line with a caret; nothing where the finding has no key, or its line is very long."""
    places = [
        document.locate((*within, *finding.path.split(".")), key=True)
        for document, within in case.documents
        if document.name == finding.file and finding.line and finding.path
    ]
    place = next(
        (each for each in places if (each.line, each.column) == (finding.line, finding.column)), None
    )
    if place is None:
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
