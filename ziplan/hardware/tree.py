"""A machine's raw data on its way from files to a model, each part knowing where it was written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ziplan.errors import Problem
from ziplan.files import Document, Path, dotted, nearest
from ziplan.hardware.cluster import Provenance

KINDS = ("measured", "datasheet", "derived", "assumed")
_TEXTS = ("name", "medium", "scope", "via", "fabric", "network")
_LEAF_KEYS = ("value", "kind", "source", "note", "iqr", "n", "min", "max", "unstable", "method", "date")


class Origin(NamedTuple):
    """A place of a document."""

    document: Document
    at: Path

    def below(self, step: str | int) -> Origin:
        """The place of a part of what stands here."""
        return Origin(self.document, (*self.at, step))

    def problem(self, code: str, message: str, help: str = "", hint: str = "", key: bool = False) -> Problem:
        """A problem at this place."""
        return self.document.problem(self.at, code, message, help, hint, key)


@dataclass
class Held:
    """A value and where it was written: a mapping has `parts`, anything else a `value`.

    `leaf` is the mapping that a value stood in together with its kind and source;
    `provenance` is set where the value follows from others.
    """

    origin: Origin
    value: Any = None
    parts: dict[str, Held] | None = None
    leaf: dict[str, Any] | None = None
    provenance: Provenance | None = None

    def get(self, *path: str) -> Held | None:
        """The part at a path, None when there is none."""
        found: Held | None = self
        for step in path:
            found = found.parts.get(step) if found is not None and found.parts is not None else None
        return found

    def named(self, *path: str) -> dict[str, Held]:
        """The parts of the part at a path; empty when it has none."""
        found = self.get(*path)
        return found.parts if found is not None and found.parts is not None else {}

    def plain(self) -> Any:
        """The data without places."""
        if self.parts is None:
            return self.value
        return {key: part.plain() for key, part in self.parts.items()}

    def leaves(self, path: Path = ()) -> Iterator[tuple[Path, Held]]:
        """Every value that is not a mapping, with its path."""
        if self.parts is None:
            yield path, self
        for key, part in (self.parts or {}).items():
            yield from part.leaves((*path, key))


def hold(value: Any, origin: Origin) -> Held:
    """Data read from a place of a document (the reader has bounded its depth)."""
    if not isinstance(value, dict):
        return Held(origin, value)
    if "value" in value:
        return Held(origin, value["value"], leaf=value)
    return Held(origin, parts={key: hold(part, origin.below(key)) for key, part in value.items()})


def merged(base: Held, top: Held) -> Held:
    """`top` laid over `base`: mappings merge, anything else of `top` wins, and so does another part."""
    if base.parts is None or top.parts is None or "part" in top.parts:
        return top
    parts = dict(base.parts)
    for key, part in top.parts.items():
        parts[key] = merged(parts[key], part) if key in parts else part
    return Held(top.origin, parts=parts)


class Tree:
    """A held machine as data that a model validates over (`files.Located`)."""

    def __init__(self, root: Held) -> None:
        self._root = root
        self.data = root.plain()

    def problem(
        self, path: Path, code: str, message: str, help: str = "", hint: str = "", key: bool = False
    ) -> Problem:
        """A problem at the place where the value at `path` was written, or what is around it."""
        held, origin = self._root, self._root.origin
        for index, step in enumerate(path):
            part = (held.parts or {}).get(str(step))
            if part is None:
                if isinstance(step, str):
                    return origin.problem(code, message, help, hint, key=bool(path[:index]))
                return origin.below(step).problem(code, message, help, hint)
            held, origin = part, part.origin
        if held.leaf is not None and not key:
            origin = origin.below("value")
        return origin.problem(code, message, help, hint, key)

    def provenance(self) -> dict[str, Provenance]:
        """Where each value came from, by dotted path; names and the like come from nowhere."""
        return {
            dotted(path): _provenance(held) for path, held in self._root.leaves() if path[-1] not in _TEXTS
        }

    def leaf_problems(self) -> Iterator[Problem]:
        """What is wrong with the kinds and sources of values."""
        for path, held in self._root.leaves():
            if held.leaf is not None:
                yield from _leaf_problems(dotted(path), held.leaf, held.origin)


def _provenance(held: Held) -> Provenance:
    if held.provenance is not None:
        return held.provenance
    if held.leaf is not None:
        return Provenance(str(held.leaf.get("kind")), str(held.leaf.get("source")))
    name = held.origin.document.name
    line = held.origin.document.locate(held.origin.at).line
    return Provenance("given", name if name.startswith("--") else f"{name}:{line}")


def _leaf_problems(name: str, leaf: dict[str, Any], origin: Origin) -> Iterator[Problem]:
    for key in leaf:
        if key not in _LEAF_KEYS:
            hint = nearest(key, _LEAF_KEYS)
            yield origin.below(key).problem("ZP012", f"unknown key `{key}` in {name}", "", hint, key=True)
    for key in ("kind", "source"):
        if key not in leaf:
            yield origin.problem("ZP013", f"{name}: missing key `{key}`", key=True)
    kind, source = leaf.get("kind", KINDS[0]), leaf.get("source", "-")
    if kind not in KINDS:
        message = f"{name}.kind: expected one of {', '.join(KINDS)}, not {str(kind)[:60]!r}"
        yield origin.below("kind").problem("ZP010", message, "", nearest(str(kind)[:60], KINDS))
    if not isinstance(source, str) or not source.strip():
        message = f"{name}.source: expected text that names the source"
        yield origin.below("source").problem("ZP010", message)
