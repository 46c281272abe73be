"""Replacing `auto` in a config's mapping, as trainers do before DeepSpeed reads it.

`accelerate/utils/deepspeed.py:HfDeepSpeedConfig.find_config_node` and the two `fill_match`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from ziplan.files.document import Path
from ziplan.runtimes.deepspeed.reading.kinds import AUTO, written
from ziplan.runtimes.deepspeed.reading.remarks import Notes


class Filler:
    """A config's mapping of which `auto` is being replaced; the file's own mapping stays as it is."""

    def __init__(self, data: Mapping[str, Any], notes: Notes, trainer: str) -> None:
        self.data: dict[str, Any] = copy.deepcopy(dict(data))
        self.notes = notes
        self.trainer = trainer
        self.open: set[Path] = set()
        """Paths whose value follows from what is not known here; they stay `auto`."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value at a dotted key."""
        section, name = self._section(key)
        return default if section is None else section.get(name, default)

    def set(self, key: str, value: Any) -> None:
        """Give a key at the top a value that the file does not state."""
        self.data[key] = value

    def is_auto(self, key: str) -> bool:
        """Whether the value at a dotted key is `auto`."""
        return isinstance(self.get(key), str) and self.get(key) == AUTO

    def fill(self, key: str, value: Any, source: str) -> bool:
        """Replace `auto` at a dotted key; whether it was there."""
        section, name = self._section(key)
        if section is None or not self.is_auto(key):
            return False
        section[name] = value
        message = f"{_short(key)}: auto becomes {written(value)}, from {source}"
        self.notes.add("derived", tuple(key.split(".")), message)
        return True

    def match(self, key: str, value: Any, source: str) -> None:
        """Replace `auto`, and note a value that the trainer's own differs from, which it refuses."""
        if self.fill(key, value, source):
            return
        stated = self.get(key)
        if stated is not None and stated != value:
            both = f"{written(stated)} here, and {source} is {written(value)}"
            message = f"{_short(key)}: {both}: {self.trainer} refuses that"
            self.notes.add(
                "rejected", tuple(key.split(".")), message, f'write "auto" here, or make {source} equal'
            )

    def leave(self, key: str, reason: str) -> None:
        """Note an `auto` whose value is not known here."""
        if self.is_auto(key):
            path: Path = tuple(key.split("."))
            self.open.add(path)
            self.notes.add("derived", path, f"{_short(key)}: {reason}")

    def unknown(self, key: str, source: str, decides: bool = True) -> None:
        """Note an `auto` that becomes what no file here states; told where it `decides` memory or time."""
        if self.is_auto(key):
            path: Path = tuple(key.split("."))
            self.open.add(path)
            if decides:
                message = f"{_short(key)}: auto becomes {source}, which no file here states"
                self.notes.add("unknown", path, message, "say it in the training settings")

    def settled(self) -> dict[str, Any]:
        """The mapping without what stayed `auto` for being unknown."""
        data = copy.deepcopy(self.data)
        for *nodes, name in self.open:
            section: Any = data
            for node in nodes:
                section = section[node]
            del section[name]
        return data

    def leftover(self) -> Iterator[Path]:
        """Paths that are `auto` still."""
        for path in _autos(self.data):
            if path not in self.open:
                yield path

    def _section(self, key: str) -> tuple[dict[str, Any] | None, str]:
        *nodes, name = key.split(".")
        section: Any = self.data
        for node in nodes:
            section = section.get(node) if isinstance(section, dict) else None
        return (section if isinstance(section, dict) else None), name


def _short(key: str) -> str:
    return key.removeprefix("zero_optimization.")


def _autos(data: Mapping[str, Any], path: Path = ()) -> Iterator[Path]:
    for name, value in data.items():
        if isinstance(value, dict):
            yield from _autos(value, (*path, name))
        elif isinstance(value, str) and value == AUTO:
            yield (*path, name)
