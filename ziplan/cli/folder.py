"""The folder that --out names: what an earlier plan left there goes, what anybody else put there stays."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from ziplan.cli.output import save_all, warn
from ziplan.errors import BadInput

PLAN_FILE = "plan.yaml"


def digest(content: bytes) -> str:
    """The SHA-256 by which a plan.yaml tells the files that were written beside it."""
    return sha256(content).hexdigest()


def write_plan(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Write a plan's files, then remove those of the plan that was there before; the names of these.

    Only a file that the earlier plan.yaml lists, and that nobody has changed since, is removed.
    """
    earlier = _listed(folder)
    save_all(folder, files)
    left = {name: known for name, known in earlier.items() if name not in files}
    removed = []
    for name, known in left.items():
        content = _content(folder / name)
        if content is None:
            continue
        if digest(content) != known:
            warn(f"{folder / name} is of an earlier plan and was changed since: it stays, though unused")
            continue
        try:
            (folder / name).unlink()
            removed.append(name)
        except OSError as error:
            warn(f"{folder / name} is of an earlier plan and cannot be removed: {error.strerror or error}")
    return removed


def has_plan(folder: Path) -> bool:
    """Whether ziplan wrote a plan into this folder before."""
    return bool(_listed(folder))


def _listed(folder: Path) -> dict[str, str]:
    """Name to digest of what the plan.yaml in a folder says was written there; else nothing."""
    from ziplan.files import read
    from ziplan.report.plan_file import written_beside

    try:
        return written_beside(read(folder / PLAN_FILE))
    except BadInput:
        return {}


def _content(path: Path) -> bytes | None:
    """What stands in a file; None where there is none of its own (a link leads to somebody else's)."""
    try:
        return path.read_bytes() if path.is_file() and not path.is_symlink() else None
    except OSError:
        return None
