"""From a machine's raw tree to a Node: changes applied, parts looked up, what follows filled in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ziplan.errors import BadInput, Problem
from ziplan.files import dotted, known_keys, nearest, suggested, validate
from ziplan.hardware.checks import contradictions, suspicions
from ziplan.hardware.cluster import Provenance
from ziplan.hardware.node import Node
from ziplan.hardware.parts import MOST
from ziplan.hardware.shipped import list_profiles, shipped
from ziplan.hardware.tree import Held, Origin, Tree, hold, merged
from ziplan.units import UnitError, parse

Steps = tuple[str, ...]

_FROM_DRIVES = (("capacity", "B"), ("read_bandwidth", "B/s"), ("write_bandwidth", "B/s"))
_FROM_GPU = (("capacity", "capacity"), ("read_bandwidth", "bandwidth"), ("write_bandwidth", "bandwidth"))
_NOT_OF_THE_NODE = ("schema", "extends", "environment", "not_measured", "contention")
_EXTEND = "add `extends: <machine>` to take what this file does not say from a shipped machine"


class Change(NamedTuple):
    """A value that replaces the one at `path` of a machine, and where it was written."""

    path: Steps
    value: Any
    origin: Origin


class Resolved(NamedTuple):
    """A machine ready for use, where its values came from, and what about them looks odd."""

    node: Node
    provenance: dict[str, Provenance]
    warnings: tuple[str, ...]


def resolve(machine: Held, changes: Sequence[Change] = ()) -> Resolved:
    """The machine that held data and changes to it describe; BadInput with everything wrong."""
    parts = [change for change in changes if _kind_of_part(change.path)]
    details = [change for change in changes if not _kind_of_part(change.path)]
    problems = list(_apply(machine, parts))
    if machine.get("gpu") is None:
        problems.append(
            Tree(machine).problem((), "ZP013", "missing key `gpu`: this machine has no GPU", _EXTEND)
        )
        raise BadInput(*problems)
    look_up(machine, problems)
    _scale_drives(machine, details)
    problems += _apply(machine, details)
    look_up(machine, problems)
    _fill_gpu_memory(machine)
    problems += _fill_drives(machine)
    _limit_memory(machine)
    for key in _NOT_OF_THE_NODE:
        machine.named().pop(key, None)
    tree = Tree(machine)
    node = _validated(tree, [*problems, *tree.leaf_problems()])
    provenance = tree.provenance()
    return Resolved(node, provenance, tuple(suspicions(node, provenance)))


def _validated(tree: Tree, problems: Sequence[Problem]) -> Node:
    """The tree as a Node; its problems are raised together with those already known."""
    try:
        node = validate(tree, Node)
    except BadInput as error:
        # A value that another one follows from is complained of once.
        places = {
            (p.file, p.line, p.column, p.message if p.code == "ZP013" else p.code): p
            for p in sorted(error.problems, key=lambda p: p.message, reverse=True)
        }
        raise BadInput(*problems, *places.values()) from None
    found = [tree.problem(c.path, "ZP010", c.message, "", c.hint) for c in contradictions(node)]
    if found or problems:
        raise BadInput(*problems, *found)
    # A machine may be used with fewer of its GPUs: the absent ones share no link.
    links = {
        name: link.model_copy(update={"shared_by": min(link.shared_by, node.gpus_per_node)})
        for name, link in node.links.items()
    }
    return node.model_copy(update={"links": links})


def _apply(machine: Held, changes: Iterable[Change]) -> Iterator[Problem]:
    """Lay each change over the machine; one that leads nowhere is a problem."""
    for change in changes:
        place = machine
        for index, step in enumerate(change.path[:-1]):
            parts = place.parts
            if parts is None:
                above = dotted(change.path[:index])
                yield change.origin.problem("ZP012", f"{dotted(change.path)}: {above} has no parts", key=True)
                break
            if step not in parts and not _may_begin(change, index):
                yield _no_such(change, index, parts)
                break
            place = parts.setdefault(step, Held(change.origin, parts={}))
        else:
            yield from _put(place, change)


def _put(place: Held, change: Change) -> Iterator[Problem]:
    name = change.path[-1]
    if place.parts is None:
        above = dotted(change.path[:-1])
        yield change.origin.problem("ZP012", f"{dotted(change.path)}: {above} has no parts", key=True)
        return
    top = hold(change.value, change.origin)
    known = known_keys(Node, change.path[:-1])
    # A new tier or link must be whole; a new rate of a GPU is a single value.
    halves = top.parts is None and bool(known_keys(Node, change.path))
    if name not in place.parts and name not in known and (known or halves):
        yield _no_such(change, len(change.path) - 1, place.parts)
        return
    place.parts[name] = merged(place.parts[name], top) if name in place.parts else top


def _may_begin(change: Change, index: int) -> bool:
    """Whether a step that the machine lacks is one that it could have (a field, not a tier's name)."""
    return change.path[index] in known_keys(Node, change.path[:index])


def _no_such(change: Change, index: int, parts: Iterable[str]) -> Problem:
    name, above = change.path[index], change.path[:index]
    beside = () if above else ("nodes",)  # what a change may name that is the cluster's and not the machine's
    every = dict.fromkeys([*parts, *known_keys(Node, above), *beside])
    known = [key for key in every if key not in _NOT_OF_THE_NODE]
    message = f"unknown key `{name}`{f' in {dotted(above)}' if above else ''}"
    hint = nearest(name, known) or f"known here: {', '.join(known)}"
    whole = _NEW.get(dotted(above))
    remedy = f"a new one is stated whole: `{dotted((*above, name))}: {whole}`" if whole else ""
    return change.origin.problem("ZP012", message, remedy, hint, key=True)


_NEW = {"links": "{bandwidth: 100 Gbit/s}", "tiers": "{medium: nvme, scope: node, ...}"}
"""What a link or tier that a machine lacks is stated as."""


def _scale_drives(machine: Held, changes: Sequence[Change]) -> None:
    """What is stated of a tier with one number of drives grows and shrinks with that number."""
    for change in changes:
        if len(change.path) != 3 or change.path[2] != "drive_count":
            continue
        tier, before = machine.named(*change.path[:2]), machine.get(*change.path)
        if before is None or not _is_count(before.value) or not _is_count(change.value):
            continue
        for field, unit in _FROM_DRIVES:
            if field in tier and before.value != change.value:
                tier[field] = _scaled(tier[field], unit, change.value, before.value)


def _scaled(stated: Held, unit: str, count: int, before: int) -> Held:
    amount = _quantity(stated, unit)
    if amount is None:
        return stated
    source = f"{count} / {before} of what is stated for {before} drives"
    if stated.leaf is not None:
        source += f" ({stated.leaf.get('kind')}: {stated.leaf.get('source')})"
    return Held(
        stated.origin, f"{amount * count / before!r} {unit}", provenance=Provenance("derived", source)
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST


def _quantity(held: Held | None, unit: str) -> float | None:
    """A value as a number, None when it is no quantity (validation says so)."""
    try:
        return parse(held.value, unit) if held is not None and isinstance(held.value, str) else None
    except UnitError:
        return None


def _kind_of_part(path: Steps) -> str:
    """Which kind of part stands at a path of a machine; empty when none does."""
    if path == ("gpu",):
        return "gpus"
    if len(path) == 3 and path[0] == "tiers" and path[2] == "drive":
        return "drives"
    return "links" if len(path) == 2 and path[0] == "links" else ""


def _part_places(machine: Held) -> Iterator[Steps]:
    yield ("gpu",)
    yield from (("tiers", name, "drive") for name in machine.named("tiers"))
    yield from (("links", name) for name in machine.named("links"))


def look_up(machine: Held, problems: Sequence[Problem] = ()) -> None:
    """Put shipped parts in the place of their names; what the machine says of a part itself wins.

    A part that nobody knows is raised with the problems known so far.
    """
    if unknown := list(_looked_up(machine)):
        raise BadInput(*problems, *unknown)


def _looked_up(machine: Held) -> Iterator[Problem]:
    for path in _part_places(machine):
        held = machine.get(*path)
        named = held if held is None or held.parts is None else held.parts.pop("part", None)
        if held is None or named is None or (named is held and not isinstance(held.value, str)):
            continue
        kind = _kind_of_part(path)
        document = shipped(kind, named.value) if isinstance(named.value, str) else None
        if document is None:
            yield _no_part(path, kind, named)
            continue
        part = hold(document.data, Origin(document, ()))
        machine.named(*path[:-1])[path[-1]] = part if named is held else merged(part, held)


def _no_part(path: Steps, kind: str, named: Held) -> Problem:
    name, known = str(named.value)[:60], list_profiles(kind)
    message = f"{dotted(path)}: ziplan knows no such part, {name!r}"
    remedy = f"`ziplan profiles` lists the {kind} that are known; or write its values out"
    return named.origin.problem("ZP010", message, remedy, suggested(name, known))


def _tiers(machine: Held) -> Iterator[tuple[str, dict[str, Held]]]:
    for name, tier in machine.named("tiers").items():
        if tier.parts is not None:
            yield name, tier.parts


def _fill_gpu_memory(machine: Held) -> None:
    """A tier of GPU memory takes from the GPU what it does not say itself."""
    memory = machine.named("gpu", "memory")
    for _, tier in _tiers(machine):
        medium = tier.get("medium")
        if medium is None or medium.value != "hbm":
            continue
        for field, source in _FROM_GPU:
            if field not in tier and source in memory:
                tier[field] = memory[source]


def _fill_drives(machine: Held) -> Iterator[Problem]:
    """A tier of drives takes from drive and count what it does not say itself."""
    for name, tier in _tiers(machine):
        drive, count = tier.get("drive"), tier.get("drive_count")
        if drive is None or drive.parts is None:
            continue
        if count is None:
            message = f"tiers.{name}: missing key `drive_count`"
            yield drive.origin.problem("ZP013", message, "add `drive_count: 1`", key=True)
            continue
        if isinstance(count.value, int) and count.value < 1:
            message = f"tiers.{name}.drive_count: must be at least 1, not {count.value}"
            remedy = "to plan without these drives, take a machine whose file has no such tier"
            yield count.origin.problem("ZP010", message, remedy)
            tier["drive_count"] = Held(count.origin, 1)
        # A count that is none is complained of alone: what follows from it is filled in as for one drive.
        _multiply(tier, drive, count.value if _is_count(count.value) else 1)


def _limit_memory(machine: Held) -> None:
    """Host memory is what a container or a batch system leaves of it."""
    limit = machine.get("memory_limit")
    left = _quantity(limit, "B")
    for _, tier in _tiers(machine):
        medium, capacity = tier.get("medium"), tier.get("capacity")
        whole = _quantity(capacity, "B")
        if medium is None or medium.value != "dram" or limit is None or capacity is None:
            continue
        if left is not None and whole is not None and left < whole:
            source = f"memory_limit ({capacity.value} in the machine)"
            tier["capacity"] = Held(limit.origin, limit.value, provenance=Provenance("given", source))


def _multiply(tier: dict[str, Held], drive: Held, count: int) -> None:
    for field, unit in _FROM_DRIVES:
        one = drive.get(field)
        amount = _quantity(one, unit)
        if one is None or amount is None or field in tier:
            continue
        name = drive.get("name")
        source = f"{count} x {name.value if name else 'the drive'}"
        if one.leaf is not None:
            source += f" ({one.leaf.get('kind')}: {one.leaf.get('source')})"
        provenance = Provenance("derived", source)
        tier[field] = Held(one.origin, f"{count * amount!r} {unit}", provenance=provenance)
