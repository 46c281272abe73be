"""The record of a run, `ziplan.bench/1`: what was found, measured and waived, as it came.

A run, an importer and a merge write it; a replay, a merge and the profile read it. It is JSON, and
YAML is read as well. A record that a run left half way is a record too, with `complete: false`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from os import PathLike
from typing import Any, Literal

from pydantic import Field

from ziplan.bench.measurement import Measured, Noted, Result, Waived
from ziplan.bench.topology import Amount, Topology
from ziplan.files import read, validate
from ziplan.hardware.parts import Part

SCHEMA = "ziplan.bench/1"


class Environment(Part):
    """What the machine was like while it was measured."""

    kernel: str = ""
    container: str = ""
    governor: str = ""
    load: Amount | None = None
    rank: int | None = Field(default=None, ge=0)
    world_size: int | None = Field(default=None, ge=0)
    launcher: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class Contention(Part):
    """Things that share a way for bytes, and what says so: the topology, or a measurement."""

    shared: str
    members: tuple[str, ...]
    evidence: Literal["topology", "measured"]
    note: str = ""


class PlannedEntry(Part):
    """A benchmark of a run: what it does, how long it takes and what it writes at the most."""

    name: str
    what: str
    duration_s: Amount
    written_bytes: Amount


class Record(Part):
    """A run on one node. `source` names the program whose numbers they are, where it was not this one."""

    schema_: Literal["ziplan.bench/1"] = Field(default="ziplan.bench/1", alias="schema")
    ziplan: str = ""
    source: str = ""
    started: str = ""
    complete: bool = False
    quick: bool = False
    topology: Topology = Topology()
    environment: Environment = Environment()
    planned: tuple[PlannedEntry, ...] = ()
    measured: tuple[Measured, ...] = ()
    waived: tuple[Waived, ...] = ()
    noted: tuple[Noted, ...] = ()
    contention: tuple[Contention, ...] = ()

    def by_name(self) -> dict[str, Measured]:
        """What was measured, by name; the last of a name counts."""
        return {measured.name: measured for measured in self.measured}

    def text(self, name: str) -> str:
        """The fact of a name; empty where nobody noted it."""
        return next((noted.text for noted in reversed(self.noted) if noted.name == name), "")


def with_results(record: Record, results: Iterable[Result]) -> Record:
    """The record with more results; a value measured after all is no longer waived."""
    found = list(results)
    measured = (*record.measured, *(one for one in found if isinstance(one, Measured)))
    known = {one.name for one in measured}
    return record.model_copy(
        update={
            "measured": measured,
            "waived": tuple(
                one
                for one in (*record.waived, *(one for one in found if isinstance(one, Waived)))
                if one.name not in known
            ),
            "noted": (*record.noted, *(one for one in found if isinstance(one, Noted))),
        }
    )


def document(record: Record) -> dict[str, Any]:
    """The record as a JSON document."""
    plain: dict[str, Any] = record.model_dump(mode="json", by_alias=True)
    return plain


def dumps(record: Record) -> str:
    """The record as text."""
    return json.dumps(document(record), indent=2, ensure_ascii=False) + "\n"


def load(path: str | PathLike[str]) -> Record:
    """The record in a file; BadInput with everything that is wrong with it."""
    return validate(read(path), Record)
