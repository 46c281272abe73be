"""What a sweep through a model reaches between modules with parameters, from the tables of `hooked`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from ziplan.runtimes.deepspeed.hooked import Node, layer_tree, whole_tree
from ziplan.workload.gradients import LORA_A, LORA_B

STACK = "*"
UNKNOWN = -1
"""What is reached before a module that the tables do not have."""

_NONE: tuple[int, ...] = ()


class Gaps(NamedTuple):
    """Modules that a sweep reaches besides those with parameters, by the places of these in forward's order.

    `before` counts those between one and the one before, `after` those at the end. `fetched` are places of
    modules whose weight the module around one gathers just before it, `let_go` of those that it lets go when
    one has been left (and not when they are left themselves). `kept` counts those until something needs
    what forward kept of it, None where a module with parameters does first. `order` are the places as the
    sweep reaches them. `after_kept` are of those at the end what comes until all is there that backward
    needs, where a checkpoint that is not reentrant stops.
    """

    before: tuple[int, ...]
    after: int = 0
    fetched: tuple[tuple[int, ...], ...] = ()
    let_go: tuple[tuple[int, ...], ...] = ()
    kept: int | None = None
    order: tuple[int, ...] = ()
    after_kept: int = 0


class _Event(NamedTuple):
    """A module is reached ("own" or "other") or left ("left"), or something needs what forward kept.

    `place` is of whose weight; what needs something is "!", "?" or "&" as in the tables.
    """

    kind: str
    place: int = -1


@lru_cache(maxsize=1024)
def in_layer(
    family: str, names: tuple[str, ...], reached: tuple[bool, ...], back: bool, dropout: bool | None
) -> Gaps:
    """Of a sweep through a layer whose modules with parameters are called so, a leaf by its block's name."""
    tree = layer_tree(family, names[0].partition(".")[0] if names else "")
    places = _found(tree, names)
    if places is None:
        return _without(reached, back)
    return _gaps(list(_Sweep(tree, places, reached, back).through(tree)), len(names), dropout)


@lru_cache(maxsize=1024)
def around_layers(
    family: str, names: tuple[str, ...], reached: tuple[bool, ...], back: bool
) -> tuple[Gaps, tuple[int, ...]]:
    """The same of what is outside of layers, and how many are reached before each stack of them."""
    tree = whole_tree(family)
    places = _found(tree, names)
    if places is None:
        return _without(reached, back), ()
    before, stacks, order, passed = [0] * len(names), list[int](), list[int](), 0
    for event in _Sweep(tree, places, reached, back).through(tree):
        if event.kind == "own":
            before[event.place], passed = passed, 0
            order.append(event.place)
        elif event.kind == STACK:
            stacks.append(passed)
            passed = 0
        else:
            passed += event.kind == "other"
    return Gaps(tuple(before), passed, order=tuple(order)), tuple(stacks)


def _without(reached: Sequence[bool], back: bool) -> Gaps:
    """Of modules that the tables do not know."""
    order = [place for place, each in enumerate(reached) if each]
    return Gaps((UNKNOWN,) * len(reached), order=tuple(order[::-1] if back else order))


def _found(tree: Node, names: tuple[str, ...]) -> dict[int, tuple[int, ...]] | None:
    """Places of names by the tree's nodes, an adapter's with the weight's; None where one is missing."""
    found, at = dict[int, tuple[int, ...]](), 0

    def walk(node: Node) -> None:
        nonlocal at
        whole = at < len(names) and bool(node.inside) and not node.own and names[at] == node.path
        if whole or (node.own and at < len(names) and _alike(names[at], node.path)):
            more = at + 1
            while more < len(names) and names[more].endswith((LORA_A, LORA_B)):
                more += 1
            found[id(node)] = tuple(range(at, more))
            at = more
        for inside in () if whole else node.inside:
            walk(inside)

    walk(tree)
    return found if at == len(names) else None


def _alike(name: str, path: str) -> bool:
    return f".{name}".endswith(f".{path}") or f".{path}".endswith(f".{name}")


class _Sweep:
    """A sweep through a tree: every module around others is reached before them, in both directions."""

    def __init__(
        self, top: Node, places: dict[int, tuple[int, ...]], reached: Sequence[bool], back: bool
    ) -> None:
        self.top, self.places, self.reached, self.back = top, places, reached, back

    def through(self, node: Node) -> Iterator[_Event]:
        """What happens at a module and inside it, in order."""
        if node.name == STACK:
            yield _Event(STACK)
        if node.name == STACK or not self._comes(node):
            return
        own = [place for place in self.places.get(id(node), ()) if self.reached[place]]
        reads = self._read(node)
        if own:
            yield from self._with_adapters(own)
        elif node is not self.top:
            yield _Event("other", reads)
        yield from self._inside(node)
        if reads >= 0:
            yield _Event("left", reads)

    def _inside(self, node: Node) -> Iterator[_Event]:
        pieces = list[tuple[_Event, ...]]()
        before = None
        for inside in node.inside:
            if inside.own or inside.inside or inside.name == STACK:
                pieces.append(tuple(self.through(inside)))
                before = inside
            elif self._comes(before or node) and not (inside.silent and self.back):
                pieces.append(_quiet(inside))
        for piece in reversed(pieces) if self.back else pieces:
            yield from piece

    def _with_adapters(self, own: Sequence[int]) -> Iterator[_Event]:
        """An adapter is around its weight, and has a dropout, or nothing, in front of its first linear."""
        if len(own) == 1:
            yield _Event("own", own[0])
            return
        yield _Event("other")
        first, *adapter = own
        for place in (*reversed(adapter), None, first) if self.back else (first, None, *adapter):
            yield _Event("other") if place is None else _Event("own", place)

    def _comes(self, node: Node) -> bool:
        """Whether the sweep reaches it, for a module with parameters that it is or has inside."""
        own = any(self.reached[place] for place in self.places.get(id(node), ()))
        return own or node.name == STACK or any(self._comes(inside) for inside in node.inside)

    def _read(self, node: Node) -> int:
        found = (self.places.get(id(each), ()) for each in node.inside if each.name == node.reads)
        return next((places[0] for places in found if places and node.reads), -1)


def _quiet(node: Node) -> tuple[_Event, ...]:
    reached = (_Event("other"),) if node.name else ()
    return (*reached, _Event(node.drops or "&"))


def _gaps(events: Sequence[_Event], count: int, dropout: bool | None) -> Gaps:
    before, fetched, let_go = [0] * count, [_NONE] * count, [_NONE] * count
    passed, others, kept, reading, order, needed = 0, 0, None, _NONE, list[int](), 0
    needing = {"&": True, "!": dropout is not False, "?": dropout is True}
    for event in events:
        if event.kind == "own":
            before[event.place], fetched[event.place] = passed, reading
            passed, reading, needed = 0, _NONE, 0
            order.append(event.place)
        elif event.kind == "left":
            let_go[order[-1]] += (event.place,) if order[-1] != event.place else ()
        elif event.kind == "other":
            passed += event.place < 0
            reading += (event.place,) if event.place >= 0 else ()
            others += 1
        elif needing[event.kind]:
            needed = passed
            kept = others if kept is None and not order else kept
    return Gaps(tuple(before), passed, tuple(fetched), tuple(let_go), kept, tuple(order), needed)
