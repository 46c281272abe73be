"""Shipped shapes: one JSON file each, a Hugging Face config with its `source`, named for the model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,79}")


def list_shapes() -> list[str]:
    """Names of all shipped shapes, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def shape_config(name: str) -> Mapping[str, Any] | None:
    """The config of the shipped shape called `name`, or None where there is none."""
    # A name has no separators, so none can lead out of the folder.
    if not _NAME.fullmatch(name):
        return None
    try:
        text = (_FOLDER / f"{name}.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    config: Mapping[str, Any] = json.loads(text)
    return config
