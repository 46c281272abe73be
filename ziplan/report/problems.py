"""Problems of input as text: place, message, the source line with a caret, and the remedy."""

from __future__ import annotations

from ziplan.errors import Problem
from ziplan.report.lines import visible

WIDEST_SOURCE = 160


def problem_text(problem: Problem) -> str:
    """One problem as people read it."""
    # Under the whole of a flag's value a caret points at nothing.
    whole = problem.of_flag and problem.length >= len(problem.text.strip())
    shown = bool(problem.text and problem.line) and not whole
    hint = "" if shown or problem.hint in problem.message else f"; {problem.hint}"
    parts = [_visible(f"{problem}{hint}")]
    if shown:
        parts += _source(problem)
    if problem.help:
        gutter = " " * len(str(problem.line)) if shown else " "
        parts.append(f"{gutter} = help: {_visible(problem.help)}")
    return "\n".join(parts)


def _source(problem: Problem) -> list[str]:
    text, column = _window(problem.text.rstrip("\r\n"), max(problem.column, 1))
    number = str(problem.line)
    gutter = " " * len(number)
    lead = "".join("\t" if character == "\t" else " " for character in text[: column - 1])
    length = max(1, min(problem.length, len(text) - column + 1))
    caret = f"{lead}{'^' * length} {_visible(problem.hint)}".rstrip()
    return [f"{gutter} |", f"{number} | {_visible(text)}", f"{gutter} | {caret}"]


def _window(text: str, column: int) -> tuple[str, int]:
    if len(text) <= WIDEST_SOURCE:
        return text, column
    start = max(0, min(column - 1 - WIDEST_SOURCE // 2, len(text) - WIDEST_SOURCE))
    return text[start : start + WIDEST_SOURCE], column - start


def _visible(text: str) -> str:
    """Text without control characters; a tab stays, as it is what a caret is set under."""
    return "\t".join(map(visible, text.split("\t")))
