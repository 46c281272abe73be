"""A document: a file's data, and where in the file each part of it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from ziplan.errors import Problem

Path = tuple[str | int, ...]
"""Where a value is in a document: keys and list positions, outermost first."""

LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


class Place(NamedTuple):
    """A stretch of one line of a file; line and column count from 1."""

    line: int
    column: int
    length: int
    text: str


@dataclass
class Spot:
    """Where a value stands, and where its parts do: those of a list in order, of a mapping by key."""

    line: int
    column: int
    length: int = 1
    parts: Any = None
    keys: dict[str, Spot] | None = None


class Document:
    """A file's data and where each part of it stands."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.data: Any = None
        self.repeated: list[tuple[str, Place, Place]] = []
        """Keys given again, with the places of the first and of the later one, where that is allowed."""
        self.text = text
        self._lines: list[str] | None = None
        self.root = Spot(1, 1)

    def locate(self, path: Path, key: bool = False) -> Place:
        """The place of the value at `path`, or of its key; of the nearest part around it if it has none."""
        spot, key_spot = self.root, self.root
        for index, step in enumerate(path):
            parts = spot.parts
            found = step in parts if isinstance(parts, dict) else is_index(step, parts)
            if not found:
                key = key or index > 0
                break
            key_spot = spot.keys[cast(str, step)] if spot.keys is not None else parts[step]
            spot = parts[step]
        return self.place(key_spot if key else spot)

    def problem(
        self, path: Path, code: str, message: str, help: str = "", hint: str = "", key: bool = False
    ) -> Problem:
        """A problem with the value at `path`, or with its key."""
        return self.problem_at(self.locate(path, key), code, message, help, hint)

    def problem_at(self, place: Place, code: str, message: str, help: str = "", hint: str = "") -> Problem:
        """A problem with a stretch of the text."""
        return Problem(
            file=self.name,
            line=place.line,
            column=place.column,
            code=code,
            message=message,
            help=help,
            text=place.text,
            length=place.length,
            hint=hint,
        )

    def place(self, spot: Spot) -> Place:
        """The place of a spot, cut to its line."""
        if self._lines is None:
            self._lines = LINE_BREAK.split(self.text)
        text = self._lines[spot.line - 1] if spot.line <= len(self._lines) else ""
        return Place(spot.line, spot.column, max(1, min(spot.length, len(text) - spot.column + 1)), text)


def is_index(step: str | int, parts: Any) -> bool:
    """Whether `step` is a position in the list `parts`."""
    return isinstance(parts, list) and isinstance(step, int) and 0 <= step < len(parts)


def dotted(path: Path) -> str:
    """A path as messages print it: "tiers.dram.capacity", "findings[2].code"."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint that names the known word closest to `name`; empty when none is close."""
    import difflib  # only where something is misspelt

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else ""


MOST_SUGGESTED = 3
SURE = 0.9
"""Likeness from which on a word is taken to be the one that was meant."""


def suggested(name: str, known: Iterable[str]) -> str:
    """The hint that names what a name stands for: words that it is part of, then those closest to it."""
    import difflib  # only where something is misspelt

    words = list(known)
    close = difflib.get_close_matches(name, words, n=MOST_SUGGESTED, cutoff=0.6)
    if close and difflib.SequenceMatcher(None, name, close[0]).ratio() >= SURE:
        return f"did you mean `{close[0]}`?"
    within = [word for word in words if len(name) > 1 and name in word]
    both = [word for word in close if word in within]
    quoted = [f"`{word}`" for word in dict.fromkeys((*both, *within, *close))][:MOST_SUGGESTED]
    *others, last = quoted or [""]
    return f"did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if last else ""
