"""Reading /sys and /proc: what is not there, or not for this user, is unknown and no error."""

from __future__ import annotations

import os
from pathlib import Path


class Root:
    """A file system's root; every path given is from it."""

    def __init__(self, path: str | os.PathLike[str] = "/") -> None:
        self.path = Path(os.path.realpath(path))

    def at(self, path: str) -> Path:
        """A path below the root."""
        return self.path / path.lstrip("/")

    def text(self, path: str) -> str:
        """What a file says, without space around it; empty where it cannot be read."""
        try:
            return self.at(path).read_text(errors="replace").strip()
        except (OSError, ValueError):
            return ""

    def number(self, path: str) -> int | None:
        """The whole number in a file; None where there is none."""
        try:
            return int(self.text(path), 0)
        except ValueError:
            return None

    def names(self, folder: str) -> list[str]:
        """What is in a folder, sorted; nothing where it cannot be read."""
        try:
            return sorted(os.listdir(self.at(folder)))
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Whether there is something at a path."""
        return self.at(path).exists()

    def real(self, path: str) -> str:
        """The path without links, from the root; empty where it leads nowhere or out of the root."""
        found = Path(os.path.realpath(self.at(path)))
        if not found.exists() or not found.is_relative_to(self.path):
            return ""
        return str(Path("/") / found.relative_to(self.path))


def cpu_list(text: str) -> tuple[int, ...]:
    """Processors as the kernel lists them ("0-3,8")."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            found += range(int(first), int(last or first) + 1)
    return tuple(found)
