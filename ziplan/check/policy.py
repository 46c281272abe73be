"""What a project asks of its configs: findings it lives with, and gates that must hold."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from ziplan.check.finding import Finding
from ziplan.check.rules import RULES
from ziplan.errors import BadInput
from ziplan.files.record import FileRecord
from ziplan.units import Seconds, UnitError

FILE = ".ziplan.yaml"
"""Looked for beside the config."""


class Ignore(NamedTuple):
    """A finding that is lived with: its code, a pattern of its path ("" is any), and why.

    One that a comment states is about findings on its own line of its file.
    """

    code: str
    path: str
    reason: str
    file: str = ""
    line: int = 0

    def covers(self, finding: Finding) -> bool:
        """Whether it is about this finding."""
        there = not self.line or (finding.file, finding.line) == (self.file, self.line)
        named = not self.path or fnmatchcase(finding.path, self.path)
        return there and named and finding.code == self.code

    def __str__(self) -> str:
        where = self.path or (f"{self.file}:{self.line}" if self.line else "")
        return f"{self.code}@{where}" if where else self.code


def _known(code: str) -> str:
    if code not in RULES:
        raise ValueError(f"no rule is called {code!r:.20}: docs/rules.md lists them")
    return code


def _positive(value: float) -> float:
    if value <= 0:
        raise UnitError("must be greater than 0")
    return value


Duration = Annotated[Seconds, AfterValidator(_positive)]
Share = Annotated[float, Field(gt=0, le=1)]


class IgnoreFile(FileRecord):
    """One entry under `ignore:`; nothing is ignored without a reason."""

    code: Annotated[str, AfterValidator(_known)]
    path: str = ""
    reason: str = Field(min_length=1)


class Gates(FileRecord):
    """Limits that a config must keep; None is no limit.

    Times are those of the played step. `max_memory` is a share of what a tier has, of every tier or
    by name, at the high end of the need; `max_stall_fraction` is the share of the step in which the
    GPU waits.
    """

    max_step_time: Duration | None = None
    min_tokens_per_s: float | None = Field(default=None, gt=0)
    max_memory: Share | dict[str, Share] | None = None
    max_stall_fraction: Annotated[float, Field(ge=0, le=1)] | None = None
    min_drive_lifetime: Duration | None = None


class PolicyFile(FileRecord):
    """A `.ziplan.yaml`."""

    ignore: list[IgnoreFile] = Field(default_factory=list)
    gates: Gates = Field(default_factory=Gates)

    @property
    def ignores(self) -> tuple[Ignore, ...]:
        """The entries as the findings are held against them."""
        return tuple(Ignore(entry.code, entry.path, entry.reason) for entry in self.ignore)


_FLAG = re.compile(r"(?P<code>[^@\s]+)(?:@(?P<path>\S+))?")


def from_flags(texts: Iterable[str]) -> tuple[Ignore, ...]:
    """What `--ignore CODE[@path]` says."""
    found = []
    for text in texts:
        match = _FLAG.fullmatch(text.strip())
        if match is None or match["code"] not in RULES:
            raise BadInput.of(
                f"--ignore {text!r:.60}: no rule is called that",
                help="a code as ZP203, or with a path: ZP302@zero_optimization.*",
            )
        found.append(Ignore(match["code"], match["path"] or "", "on the command line"))
    return tuple(found)
