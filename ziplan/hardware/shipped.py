"""The machines and parts that come with ziplan: one YAML file each under `hardware_profiles/`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from ziplan.files import Document, read

_FOLDER = "hardware_profiles"


@cache
def _root() -> Path:
    """The folder of profiles: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / _FOLDER
    return inside if inside.is_dir() else package.parent / _FOLDER


def list_profiles(kind: str) -> list[str]:
    """Names of the shipped "gpus", "links", "drives" or "nodes"."""
    return sorted(path.stem for path in (_root() / kind).glob("*.yaml"))


@cache
def shipped(kind: str, name: str) -> Document | None:
    """The shipped profile of a kind called `name`, None when there is none."""
    path = _root() / kind / f"{name}.yaml"
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name) or not path.is_file():
        return None
    return read(path, f"{_FOLDER}/{kind}/{name}.yaml")
