"""Findings that a comment on a key's line lives with: `# ziplan: ignore ZP203, ZP217 why`.

In YAML and in what DeepSpeed itself reads, which is Hjson; trainers read strict JSON, which has no comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ziplan.check.policy import Ignore
from ziplan.check.rules import RULES
from ziplan.errors import BadInput, Problem
from ziplan.files import Document, read_text
from ziplan.files.document import LINE_BREAK, Spot
from ziplan.files.hjson import read_hjson

YAML_ENDINGS = (".yaml", ".yml")
MARK = "ziplan:"
_MARK = re.compile(rf"(?:#|//)[ \t]*{MARK}(?P<line>[^\r\n]*)|/\*[ \t]*{MARK}(?P<block>[^\r\n]*?)\*/")
_SAID = re.compile(r"\s*ignore\s+(?P<codes>[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)\s*(?P<reason>.*)")


def in_comments(documents: Iterable[Document]) -> tuple[Ignore, ...]:
    """What comments in these files live with; BadInput where one names no rule."""
    wrong: list[Problem] = []
    files = {document.name: document for document in documents if MARK in document.text}
    found = [each for document in files.values() for each in _of(document, wrong)]
    if wrong:
        raise BadInput(*wrong)
    return tuple(found)


def _of(document: Document, wrong: list[Problem]) -> Iterator[Ignore]:
    for match in _MARK.finditer(document.text):
        if not _is_comment(document, match):
            continue
        starts = [0, *(each.end() for each in LINE_BREAK.finditer(document.text, 0, match.start()))]
        line = len(starts)
        place = document.place(Spot(line, match.start() - starts[-1] + 1, len(match.group())))
        said = _SAID.fullmatch((match["line"] or match["block"] or "").rstrip())
        codes = re.findall(r"[A-Z]+[0-9]+", said["codes"]) if said else []
        unknown = [code for code in codes if code not in RULES]
        if unknown or not codes:
            message = f"no rule is called {unknown[0]!r:.20}" if unknown else "a comment that ignores no rule"
            fix = "write for example `# ziplan: ignore ZP203 why`; docs/rules.md lists the rules"
            wrong.append(document.problem_at(place, "ZP010", message, fix))
            continue
        reason = said["reason"].strip(" -:") if said else ""
        for code in codes:
            yield Ignore(code, "", reason or f"in line {line}", document.name, line)


def _is_comment(document: Document, match: re.Match[str]) -> bool:
    """Whether the file says the same without it: text in a value is no comment."""
    text, parse = document.text, read_text if document.name.endswith(YAML_ENDINGS) else read_hjson
    blank = text[: match.start()] + " " * len(match.group()) + text[match.end() :]
    try:
        return bool(parse(blank, document.name).data == document.data)
    except BadInput:
        return False
