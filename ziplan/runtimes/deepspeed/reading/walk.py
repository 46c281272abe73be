"""Reads the mapping of a DeepSpeed config as `DeepSpeedConfig` does, key by key against the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ziplan.files import nearest
from ziplan.files.document import Path
from ziplan.runtimes.deepspeed.reading.kinds import AUTO, WrongValueError, unexpected, written
from ziplan.runtimes.deepspeed.reading.loose_tables import LOOSE_SECTIONS, REMOVED
from ziplan.runtimes.deepspeed.reading.remarks import Notes
from ziplan.runtimes.deepspeed.reading.strict_tables import STRICT_SECTIONS
from ziplan.runtimes.deepspeed.reading.table import Key, Section
from ziplan.runtimes.deepspeed.reading.zero_table import ZERO, ZERO_SECTIONS

SECTIONS: Mapping[str, Section] = {s.path: s for s in (*ZERO_SECTIONS, *STRICT_SECTIONS, *LOOSE_SECTIONS)}
"""Every section by its path; the outermost has none."""

MONITORS = ("tensorboard", "wandb", "csv_monitor", "comet")
_OF_MODEL = "strict"
"""An argument of DeepSpeed's base class for sections: as a key it is taken by that, and sets nothing."""

Values = dict[str, Any]
"""A section's values under its keys' own names, defaults included, sections inside it likewise."""


class Walk:
    """One reading of one config: `values` by section, `stated` the paths that the file has."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.stated: set[Path] = set()

    def top(self, data: Mapping[str, Any]) -> Values:
        """The whole config."""
        section = SECTIONS[""]
        values: Values = {key.name: key.default for key in section.keys}
        for name, value in data.items():
            key = section.names.get(name)
            if key is None:
                self._unknown_top(name)
                continue
            if name == "bfloat16" and data.get("bf16") is not None:
                continue
            self.stated.add((name,))
            values[name] = (
                self.inner(key, (name,), value) if key.section in SECTIONS and key.section else value
            )
        self._removed(data)
        for name in ("fp16", "bf16", "compile", "zero_optimization", "hybrid_engine"):
            values[name] = values[name] or self.empty(name)
        return values

    def empty(self, path: str) -> Values:
        """A section that the file does not have: its defaults."""
        return {key.name: key.default for key in SECTIONS[path].keys}

    def inner(self, key: Key, path: Path, value: Any) -> Any:
        """The section that is a key's value."""
        section = SECTIONS[key.section]
        if path == ("zero_optimization",) and isinstance(value, bool):
            return self._old_zero(value)
        if value == AUTO and key.name in MONITORS:
            self.notes.add("defaulted", path, f"{key.section}: nothing replaces auto, so nothing is logged")
            return self.empty(section.path)
        if value is None and section.nullable:
            return self.empty(section.path) if key.name == "leaf_module" else None
        if not isinstance(value, dict):
            if section.strict:
                self.notes.refuse(path, unexpected("a mapping", value))
            return self.empty(section.path)
        return self.strict(section, path, value) if section.strict else self.loose(section, path, value)

    def loose(self, section: Section, path: Path, data: Mapping[str, Any]) -> Values:
        """A section that is looked up key by key; values are kept as they are."""
        values: Values = {key.name: key.default for key in section.keys}
        for name, value in data.items():
            key = section.names.get(name)
            at = (*path, name)
            if key is None:
                if section.path not in ("optimizer.params", "pipeline"):
                    self._unseen(section, at)
                continue
            self.stated.add(at)
            values[name] = self.inner(key, at, value) if key.section in SECTIONS and key.section else value
        return values

    def strict(self, section: Section, path: Path, data: Mapping[str, Any]) -> Values:
        """A section with a pydantic model."""
        values: Values = {key.name: key.default for key in section.keys}
        keeps_auto = bool(data.get(_OF_MODEL)) or section.path.endswith("leaf_module")
        given: dict[str, str] = {}
        for name, value in data.items():
            at, key = (*path, name), section.names.get(name)
            if name == _OF_MODEL:
                self.notes.add("ignored", at, f"{name}: is taken by DeepSpeed's base class and sets nothing")
            elif isinstance(value, str) and value == AUTO and not keeps_auto:
                self._auto(section, key, at)
            elif key is None:
                self._unknown(section, at)
            elif key.name in given:
                self.notes.add(
                    "rejected",
                    at,
                    f"{name}: the same key as `{given[key.name]}`, and both are given",
                    "keep one",
                )
            else:
                given[key.name] = name
                self.stated.add(at)
                values[key.name] = self.taken(key, at, value)
        self._deprecated(section, path, data, values, given)
        return values

    def taken(self, key: Key, at: Path, value: Any) -> Any:
        """What becomes of a value, or the default and a remark where it is refused."""
        try:
            taken = key.kind.take(value) if not key.section or value is None else value
        except WrongValueError as error:
            self.notes.add("rejected", at, f"{at[-1]}: {error}", _unit_hint(key) or error.fix)
            return key.default
        if problem := key.within(taken):
            self.notes.add(
                "rejected",
                at,
                f"{at[-1]}: must be {problem}, not {written(value)}",
                f"write a number that is {problem}",
            )
            return key.default
        return self.inner(key, at, value) if key.section else taken

    def _deprecated(
        self, section: Section, path: Path, data: Mapping[str, Any], values: Values, given: Mapping[str, str]
    ) -> None:
        """`config_utils.py:_process_deprecated_field`: an old key sets a new one, unless both are given."""
        for key in section.keys:
            if not key.effect.startswith("deprecated") or key.name not in given:
                continue
            at = (*path, key.name)
            if not key.instead:
                self.notes.add("deprecated", at, f"{key.name}: deprecated, and sets nothing", "leave it out")
                continue
            self.notes.add(
                "deprecated", at, f"{key.name}: deprecated, sets `{key.instead}`", f"write `{key.instead}`"
            )
            if key.instead in given:
                message = f"{key.name}: DeepSpeed refuses it beside `{given[key.instead]}`"
                self.notes.add("rejected", at, message, f"leave `{key.name}` out")
            else:
                values[key.instead] = self._renewed(key, values[key.name])

    def _renewed(self, key: Key, value: Any) -> Any:
        """The value that a deprecated key's replacement gets."""
        if not key.instead.startswith("offload"):
            return value
        return {**self.empty(f"{ZERO.path}.{key.instead}"), "device": "cpu"} if value else None

    def _old_zero(self, enabled: bool) -> Values:
        """`zero/config.py:read_zero_config_deprecated`: `zero_optimization: true` is stage 1."""
        self.notes.add(
            "deprecated",
            (ZERO.path,),
            f"zero_optimization: {written(enabled)} is an old form of stage {int(enabled)}",
            f'write {{"stage": {int(enabled)}}}',
        )
        return {**self.empty(ZERO.path), "stage": int(enabled)}

    def _auto(self, section: Section, key: Key | None, at: Path) -> None:
        """DeepSpeed drops "auto" from its sections, known key or not."""
        if key is None:
            self.notes.add(
                "ignored", at, f"{at[-1]}: DeepSpeed knows no such key here, and drops auto", "leave it out"
            )
            return
        default = (
            "DeepSpeed's default" if key.default is None else f"DeepSpeed's default, {written(key.default)}"
        )
        message = f"{at[-1]}: nothing replaces auto without a trainer, so it is {default}"
        self.notes.add("defaulted", at, message, "write the value that is meant")

    def _unknown(self, section: Section, at: Path) -> None:
        name = str(at[-1])
        if f"{section.path}.{name}" in REMOVED:
            return
        message = f"{name}: DeepSpeed knows no such key in {section.path}"
        self.notes.add("rejected", at, message, _meant(name, section))

    def _unseen(self, section: Section, at: Path) -> None:
        name = str(at[-1])
        message = f"{name}: DeepSpeed looks for no such key in {section.path}, so it does nothing"
        self.notes.add("ignored", at, message, _meant(name, section))

    def _unknown_top(self, name: str) -> None:
        if name in REMOVED:
            return
        message = f"{name}: DeepSpeed looks for no such key at the top, so it does nothing"
        self.notes.add("ignored", (name,), message, _meant(name, SECTIONS[""]))

    def _removed(self, data: Mapping[str, Any]) -> None:
        for path, why in REMOVED.items():
            section, _, name = path.rpartition(".")
            inside = data.get(section) if section else data
            if isinstance(inside, dict) and name in inside:
                at = (section, name) if section else (name,)
                self.notes.add(
                    "rejected", at, f"{name}: {why}; DeepSpeed refuses the key itself", "leave it out"
                )


def _meant(name: str, section: Section) -> str:
    """The key of this section that is close, or the section that has the key; else nothing is."""
    homes = [other.path or "the top" for other in _homes(name)]
    if homes and len(homes) <= MOST_HOMES:
        return f"it belongs in {' or '.join(homes)}"
    return nearest(name, section.names) or "leave it out"


MOST_HOMES = 3
"""Sections that have a key; one that more have, as `enabled`, says nothing of what was meant."""


def _homes(name: str) -> Iterator[Section]:
    return (section for section in SECTIONS.values() if name in section.names)


def _unit_hint(key: Key) -> str:
    return f"a number of {key.unit}" if key.unit else ""
