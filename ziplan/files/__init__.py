"""The located reader: YAML 1.2 and JSON in, plain data out, with the place of every key and value.

Depth and size are bounded, and all problems of a file are raised together. Codes: ZP001 cannot
be read, ZP002 not YAML or JSON, ZP003 duplicate key, ZP004 a feature that is not supported,
ZP010 wrong value, ZP011 wrong unit, ZP012 unknown key, ZP013 missing key.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ziplan.errors import BadInput, Problem
from ziplan.files.compose import UNREADABLE, read_text
from ziplan.files.document import LINE_BREAK, Document, Path, Place, dotted, nearest, suggested
from ziplan.files.validation import Located, known_keys, validate

__all__ = [
    "LARGEST_FILE",
    "Document",
    "Located",
    "Path",
    "Place",
    "dotted",
    "known_keys",
    "nearest",
    "read",
    "read_text",
    "suggested",
    "validate",
]

LARGEST_FILE = 2_000_000
_MARKS = {
    b"\xef\xbb\xbf": "starts with a byte order mark",
    b"\xff\xfe": "is UTF-16, not UTF-8",
    b"\xfe\xff": "is UTF-16, not UTF-8",
}


def read(
    path: str | os.PathLike[str], name: str = "", parse: Callable[[str, str], Document] = read_text
) -> Document:
    """The data of a file (YAML or JSON, unless `parse` reads another grammar); BadInput with every problem.

    It is called `name` in problems.
    """
    name = name or os.fspath(path)
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise BadInput.of("no such file", file=name) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput.of(f"cannot be read: {reason[:1].lower()}{reason[1:]}", file=name) from None
    if len(content) > LARGEST_FILE:
        raise BadInput.of(
            f"is larger than {LARGEST_FILE // 1_000_000} MB, which no input of ziplan is", file=name
        )
    return parse(_decoded(content, name), name)


def _decoded(content: bytes, name: str) -> str:
    for mark, what in _MARKS.items():
        if content.startswith(mark):
            raise BadInput.of(what, file=name, help="save it as UTF-8 without a byte order mark")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode(errors="replace")
        breaks = list(LINE_BREAK.finditer(before))
        column = len(before) - (breaks[-1].end() if breaks else 0) + 1
        message = f"is not UTF-8 text (byte 0x{content[error.start]:02x})"
        raise BadInput(Problem(name, len(breaks) + 1, column, UNREADABLE, message)) from None
