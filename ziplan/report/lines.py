"""Styled text: lines of spans, as plain text or in colour, and the ASCII form of both."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

PLAINER = str.maketrans(
    {
        "\u00b7": "*",
        "\u00d7": "x",
        "\u2013": "-",
        "\u2014": "-",
        "\u2192": "->",
        "\u2248": "~",
        "\u2264": "<=",
        "\u2265": ">=",
        "\u2026": "...",
        "\u00b2": "^2",
    }
)
"""What stands for a sign where only ASCII can be written."""


class Span(NamedTuple):
    """A piece of a line; `style` is a style of rich, or nothing."""

    text: str
    style: str = ""


Line = tuple[Span, ...]
Lines = Sequence[Line]


def line(*pieces: str | Span) -> Line:
    """A line of text and styled pieces."""
    return tuple(Span(piece) if isinstance(piece, str) else piece for piece in pieces)


GLUE = "\u00a0"


def glued(text: str) -> str:
    """Text that is not broken over lines: a number and its unit."""
    return text.replace(" ", GLUE)


def wrapped(
    text: str, width: int, indent: str = "  ", most: int | None = None, keep_words: bool = False
) -> list[Line]:
    """A paragraph as lines no wider than `width`, at most so many; all but the first are indented.

    With `keep_words` a word that is wider stays whole: an address can then be copied.
    """
    parts = textwrap.wrap(
        text,
        width,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=not keep_words,
        max_lines=most,
        placeholder=" ...",
    )
    return [line(part) for part in parts]


def visible(text: str) -> str:
    """Text without control characters: what a file or a flag says cannot drive the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text.replace(GLUE, " "))


def plain(lines: Lines) -> str:
    """The lines without style."""
    return "".join(visible("".join(span.text for span in each)).rstrip() + "\n" for each in lines)


def coloured(lines: Lines) -> str:
    """The lines with terminal colours."""
    from rich.console import Console
    from rich.text import Text

    console = Console(force_terminal=True, color_system="standard", width=1000, legacy_windows=False)
    with console.capture() as captured:
        for each in lines:
            console.print(
                Text.assemble(*((visible(span.text), span.style) for span in each)), end="\n", soft_wrap=True
            )
    return captured.get()


def in_ascii(text: str) -> str:
    """Text for a stream that is not UTF-8."""
    return text.translate(PLAINER).encode("ascii", "backslashreplace").decode("ascii")
