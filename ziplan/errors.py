"""What can go wrong, as data, and the exit code each kind ends in.

Nothing below the command line prints, logs or exits: it raises one of these.
"Does not fit" is an answer, not an error, and is never raised.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ExitCode(IntEnum):
    """Exit codes of every command (verdicts map onto the first four)."""

    OK = 0
    DOES_NOT_FIT = 1
    BAD_INPUT = 2
    UNKNOWN = 3
    BUG = 70
    INTERRUPTED = 130


class Problem(NamedTuple):
    """One thing wrong with one place of one input.

    `line` and `column` count from 1; 0 means that the problem has no place (a flag, a
    missing file). `text` is the source line, `length` how much of it the caret underlines.
    """

    file: str
    line: int
    column: int
    code: str
    message: str
    help: str = ""
    text: str = ""
    length: int = 1
    hint: str = ""

    @property
    def of_flag(self) -> bool:
        """Whether it is about the value of a flag ("--set nodes"), which has no lines that people count."""
        return self.file.startswith("--")

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: " if self.line and not self.of_flag else ""
        return f"{place or (f'{self.file}: ' if self.file else '')}{self.code} {self.message}"


class ZiplanError(Exception):
    """Base of everything ziplan raises on purpose."""

    exit_code = ExitCode.BAD_INPUT


class BadInput(ZiplanError):
    """Input that cannot be used; carries every problem found, sorted by place."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def of(cls, message: str, *, code: str = "ZP001", file: str = "", help: str = "") -> BadInput:
        """A single problem that has no line of its own (a flag, a path)."""
        return cls(Problem(file=file, line=0, column=0, code=code, message=message, help=help))


class CannotEmit(ZiplanError):
    """A plan that the runtime cannot express; the message says what and why."""
