"""Shipped shapes: one JSON file each, a Hugging Face config with its `source`, named for the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent


def list_shapes() -> list[str]:
    """Names of all shipped shapes, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def shape_config(name: str) -> Mapping[str, Any] | None:
    """The config of the shipped shape called `name`, or None where there is none."""
    # Looked up in the list, not as a path, so that no name can lead out of the folder.
    if name not in list_shapes():
        return None
    config: Mapping[str, Any] = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return config
