"""What is said about a key of a config: whether it holds, and what becomes of it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ziplan.files import Document, dotted
from ziplan.files.document import Path
from ziplan.runtimes.deepspeed.reading.kinds import WrongValueError

RemarkKind = Literal["rejected", "ignored", "defaulted", "deprecated", "derived", "not_planned", "unknown"]
"""Rejected: DeepSpeed or the trainer raises. Ignored: it changes nothing. Defaulted: `auto` that nothing
replaces becomes the default. Deprecated: another key is set by it. Derived: its value follows from others.
Not planned: it works, but ziplan's ledger and step do not know it. Unknown: an input is missing."""

Moment = Literal["config", "start", "training"]
"""When a rejected key is noticed: as the config is read, as the engine is made, or in a step."""


class Remark(NamedTuple):
    """One remark on one place; line and column count from 1, and 0 is a file that says nothing of it."""

    kind: RemarkKind
    file: str
    path: str
    line: int
    column: int
    message: str
    fix: str = ""
    moment: Moment = "config"

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: " if self.line else f"{self.file}: "
        return f"{place}{self.kind}: {self.message}"


class Notes:
    """Remarks on one document, as they are found."""

    def __init__(self, document: Document, within: Path = ()) -> None:
        self.document = document
        self.remarks: list[Remark] = []
        self.within = within
        """Where in the document the config is."""

    def add(
        self, kind: RemarkKind, path: Path, message: str, fix: str = "", moment: Moment = "config"
    ) -> None:
        """Remark on the key at `path` (on the nearest part around it, where the file has no such key)."""
        place = self.document.locate((*self.within, *path), key=True)
        name = dotted(path)
        remark = Remark(kind, self.document.name, name, place.line, place.column, message, fix, moment)
        if remark not in self.remarks:
            self.remarks.append(remark)

    def refuse(self, path: Path, error: WrongValueError) -> None:
        """Remark on the key at `path` that its value is none that is taken."""
        self.add("rejected", path, f"{path[-1]}: {error}", error.fix)

    @property
    def accepted(self) -> bool:
        """Whether the config is read without an exception."""
        return not any(r.kind == "rejected" and r.moment == "config" for r in self.remarks)
