"""Find and load machines: by name, by file, or as a cluster file asks for them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ziplan.errors import BadInput, Problem
from ziplan.files import Document, dotted, read, read_text, suggested, validate
from ziplan.hardware.cluster import Cluster, Price, Provenance
from ziplan.hardware.node import Node
from ziplan.hardware.parts import MOST
from ziplan.hardware.resolve import Change, Resolved, look_up, resolve
from ziplan.hardware.shipped import list_profiles, shipped
from ziplan.hardware.tree import Held, Origin, hold, merged

__all__ = ["Change", "list_profiles", "load_cluster", "load_node"]

MACHINE_SCHEMA = "ziplan.machine/1"
_LONGEST_CHAIN = 8
_SUFFIXES = (".yaml", ".yml", ".json")
_COUNTED = re.compile(r"\s*([-+]?[0-9][0-9.,_]*)\s*[xX\u00d7]\s*(\S.*?)\s*")


def load_node(
    name_or_path: str | os.PathLike[str], changes: Sequence[Change] = ()
) -> tuple[Node, Mapping[str, Provenance]]:
    """A shipped machine or a machine file, with changes, and where each of its values came from."""
    resolved = resolve(_machine(os.fspath(name_or_path)), changes)
    return resolved.node, resolved.provenance


def load_cluster(argument: str, settings: Sequence[tuple[str, str]] = ()) -> Cluster:
    """The cluster that a cluster file, a machine file or a name ("4x dgx-h100") stands for.

    `settings` are (path, text) pairs with the paths of a cluster file's `with:`, and "nodes".
    """
    changes, nodes = _from_settings(settings)
    counted = None if os.path.isfile(argument) else _COUNTED.fullmatch(argument)
    if counted:
        argument, stated = counted[2], _multiplier(counted[1], counted[2])
        nodes = stated if nodes is None else nodes
    if not _is_file(argument):
        return _cluster(resolve(_machine(argument), changes), 1 if nodes is None else nodes)
    document = read(argument)
    if not isinstance(document.data, dict) or "machine" not in document.data:
        return _cluster(resolve(_held_machine(document, ()), changes), 1 if nodes is None else nodes)
    return _from_cluster_file(document, changes, nodes)


def _multiplier(text: str, machine: str) -> int:
    """The number of nodes in front of a machine's name."""
    # Its length is looked at first: a number of thousands of digits is not worth reading.
    if len(text) <= len(str(MOST)) and text.isdigit() and 1 <= int(text) <= MOST:
        return int(text)
    message = f"{text[:40]} x {machine[:60]}: expected a whole number of nodes from 1 to {MOST:,}"
    raise BadInput(_placeless(message, f"for example '4x {machine[:60]}'"))


def _from_cluster_file(document: Document, changes: Sequence[Change], nodes: int | None) -> Cluster:
    """What a cluster file describes; its own problems and its machine's are raised together."""
    from ziplan.hardware.cluster_file import ClusterFile  # only where there is one

    file, resolved, own_nodes = None, None, None
    problems: list[Problem] = []
    try:
        file = validate(document, ClusterFile)
    except BadInput as error:
        problems += error.problems
    try:
        own, own_nodes = _from_with(document)
        # Settings come last, so that the command line wins over the file.
        machine = _asked_machine(document)
        resolved = resolve(machine, [*own, *changes]) if machine else None
    except BadInput as error:
        problems += error.problems
    if problems or file is None or resolved is None:
        raise BadInput(*problems)
    price = Price(file.price.per_node_hour, file.price.source, file.price.date) if file.price else None
    stated = file.nodes if own_nodes is None else own_nodes
    return _cluster(resolved, stated if nodes is None else nodes, price)


def _asked_machine(document: Document) -> Held | None:
    """The machine that a cluster file names or holds; None when it does neither."""
    machine = document.data["machine"]
    if isinstance(machine, str):
        return _machine(machine, os.path.dirname(document.name), Origin(document, ("machine",)))
    return _held_machine(document, ("machine",)) if isinstance(machine, dict) else None


def _cluster(resolved: Resolved, nodes: int, price: Price | None = None) -> Cluster:
    if nodes < 1:
        raise BadInput.of("a cluster has at least 1 node", code="ZP010")
    return Cluster(resolved.node, nodes, price, resolved.provenance, resolved.warnings)


def _from_with(document: Document) -> tuple[list[Change], int | None]:
    """The changes under `with:`, and the number of nodes if it is among them."""
    changes = document.data.get("with")
    if not isinstance(changes, dict):
        return [], None
    found = [
        Change(tuple(key.split(".")), value, Origin(document, ("with", key)))
        for key, value in changes.items()
    ]
    if twice := list(_given_twice(found)):
        raise BadInput(*twice)
    return _without_nodes(found)


def _given_twice(changes: Sequence[Change]) -> Iterator[Problem]:
    """A value that two entries of `with:` state, one by its dotted path and one inside another."""
    known: set[str] = set()
    for change in changes:
        leaves = {dotted((*change.path, *path)) for path, _ in hold(change.value, change.origin).leaves()}
        for path in sorted(leaves & known):
            message = f"{path}: is stated twice under `with`"
            yield change.origin.problem("ZP010", message, "keep one of the two", key=True)
        known |= leaves


def _from_settings(settings: Sequence[tuple[str, str]]) -> tuple[list[Change], int | None]:
    """The changes that --set asks for, and the number of nodes if it is among them."""
    problems: list[Problem] = []
    found: list[Change] = []
    for key, text in settings:
        try:
            document = read_text(text, f"--set {key}")
        except BadInput as error:
            problems += error.problems
            continue
        found.append(Change(tuple(key.split(".")), document.data, Origin(document, ())))
    if problems:
        raise BadInput(*problems)
    return _without_nodes(found)


def _without_nodes(changes: Sequence[Change]) -> tuple[list[Change], int | None]:
    nodes = None
    for change in changes:
        if change.path == ("nodes",):
            nodes = change.value
            if not isinstance(nodes, int) or isinstance(nodes, bool) or not 1 <= nodes <= MOST:
                message = f"nodes: expected a whole number of at least 1, not {nodes!r:.60}"
                raise BadInput(change.origin.problem("ZP010", message))
    return [change for change in changes if change.path != ("nodes",)], nodes


def _is_file(argument: str) -> bool:
    return argument.endswith(_SUFFIXES) or "/" in argument or os.sep in argument or os.path.isfile(argument)


def _machine(name_or_path: str, folder: str = "", asked: Origin | None = None, depth: int = 0) -> Held:
    """A machine's raw data, everything it extends merged in. `asked` is where a file names it."""
    if depth > _LONGEST_CHAIN:
        message = f"machines extend each other more than {_LONGEST_CHAIN} deep, or in a circle"
        raise BadInput(asked.problem("ZP010", message) if asked else _placeless(message))
    path = os.path.join(folder, name_or_path)
    if not name_or_path.strip():
        raise BadInput(_no_machine(name_or_path, asked))
    if _is_file(name_or_path) or os.path.isfile(path):
        try:
            document = read(path)
        except BadInput as error:
            if asked is None or any(problem.line for problem in error.problems):
                raise
            message = f"{path}: {error.problems[0].message}"
            raise BadInput(asked.problem("ZP001", message)) from None
        return _held_machine(document, (), depth)
    document_or_none = shipped("nodes", name_or_path.strip().lower())
    if document_or_none is None:
        raise BadInput(_no_machine(name_or_path, asked))
    return _held_machine(document_or_none, (), depth)


def _placeless(message: str, help: str = "", hint: str = "") -> Problem:
    return Problem(file="", line=0, column=0, code="ZP010", message=message, help=help, hint=hint)


def _no_machine(name: str, asked: Origin | None) -> Problem:
    hint = suggested(name.strip().lower()[:60], list_profiles("nodes"))
    message = f"no machine is called {name[:60]!r}"
    remedy = "`ziplan profiles` lists the shipped machines; the path of a machine file works too"
    if asked is not None:
        return asked.problem("ZP010", message, remedy, hint)
    return _placeless(f"{message}; {hint}" if hint else message, remedy, hint)


def _held_machine(document: Document, at: tuple[str, ...], depth: int = 0) -> Held:
    """The machine that stands at a place of a document, over the one it extends."""
    data = document.data
    for step in at:
        data = data[step]
    origin = Origin(document, at)
    if not isinstance(data, dict) or "value" in data:
        raise BadInput(origin.problem("ZP010", "expected a machine: a mapping with `gpu`, `tiers` and so on"))
    _check_schema(data, origin)
    own = hold(data, origin)
    extends = data.get("extends")
    if extends is None:
        return own
    if not isinstance(extends, str):
        message = f"extends: expected the name or path of a machine, not {extends!r:.60}"
        raise BadInput(origin.below("extends").problem("ZP010", message))
    folder = "" if document.name.startswith("hardware_profiles/") else os.path.dirname(document.name)
    base = _machine(extends, folder, origin.below("extends"), depth + 1)
    # The base's parts are looked up first, so that `gpu: {memory: ...}` changes its GPU.
    look_up(base)
    return merged(base, own)


def _check_schema(data: Mapping[str, Any], origin: Origin) -> None:
    schema = data.get("schema", MACHINE_SCHEMA)
    if schema != MACHINE_SCHEMA:
        message = f"schema: expected '{MACHINE_SCHEMA}', not {schema!r:.60}"
        raise BadInput(origin.below("schema").problem("ZP010", message))
    if not data.keys() & {"gpu", "extends", "tiers", "gpus_per_node", "schema"}:
        message = "neither a cluster file (`machine:`) nor a machine (`gpu:`, `tiers:`)"
        raise BadInput(origin.problem("ZP013", message, "for example `machine: dgx-a100-80g`"))
