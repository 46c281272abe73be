"""The order in which one micro-step reaches the modules that own parameters, as hooks of stage 3 see it.

Source: DeepSpeed 0.19.8, `runtime/zero/parameter_offload.py` (`_register_deepspeed_module`), and
transformers 5.24, `modeling_layers.py` (what is recomputed is a layer's `forward`, inside its hooks).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ziplan.plan import Checkpointing
from ziplan.runtimes.deepspeed.leaves import Block, in_modules, leaf_block
from ziplan.workload.gradients import Reach, reaches
from ziplan.workload.model import Model, Operator

Part = tuple[Operator, int]
"""An operator, and which copy of it."""


class Visit(NamedTuple):
    """A module reached by forward or backward: its operators, of which a leaf alone has several.

    Not `left`: backward goes on to others while it is in it. With it go the frozen `freed`, which were
    recomputed meanwhile. `entered` are the modules around it that are reached just before it, by all that
    is in each: stated where there are leaves, the only ones that DeepSpeed asks this for.
    """

    parts: tuple[Part, ...]
    left: bool = True
    freed: tuple[Part, ...] = ()
    entered: tuple[tuple[Part, ...], ...] = ()

    @property
    def leaf(self) -> bool:
        """Whether it is several modules in one."""
        return len(self.parts) > 1

    @property
    def trained(self) -> tuple[Operator, ...]:
        """Its operators that training changes."""
        return tuple(operator for operator, _ in self.parts if operator.trainable)


class _Stretch(NamedTuple):
    """Modules one after the other, a layer or what lies between, and how far gradients flow to each."""

    visits: list[Visit]
    flow: list[Reach]
    block: bool


def visits(
    model: Model, repeats: Sequence[int], checkpointing: int, reentrant: bool, leaves: tuple[str, ...] = ()
) -> list[Visit]:
    """Forward through the sections and back, each played as often as `repeats` says."""
    full, block = checkpointing == Checkpointing.FULL, leaf_block(model, leaves)
    stretches = _stretches(model, repeats, full, block)
    forward: list[Visit] = []
    backward: list[Visit] = []
    for stretch in stretches:
        forward += _within_layer(_swept(stretch.visits, stretch, block), stretch, block)
    for stretch in reversed(stretches):
        back = _backward(stretch, stretch.block and full, reentrant, block)
        backward += _within_layer(back, stretch, block)
    if block is not None and backward:
        whole = tuple(part for stretch in stretches for visit in stretch.visits for part in visit.parts)
        backward[0] = _entering(backward[0], whole)
    return forward + backward


def _stretches(model: Model, repeats: Sequence[int], full: bool, block: Block | None) -> list[_Stretch]:
    copies: Counter[str] = Counter()
    layers = [
        (section.block, layer, groups)
        for section, times in zip(model.sections, repeats, strict=True)
        for layer, groups in [(layer, in_modules(layer, block)) for layer in section.layers] * times
    ]
    # transformers gives the embedding's output a gradient where it recomputes layers.
    flows = reaches([layer for _, layer, _ in layers], full)
    found = []
    for (of_layer, layer, groups), flow in zip(layers, flows, strict=True):
        parts = [_next(operator, copies) for operator in layer]
        modules = [Visit(tuple([parts[place] for place in places])) for places in groups]
        found.append(_Stretch(modules, [_reach(flow, places) for places in groups], of_layer))
    return found


def _next(operator: Operator, copies: Counter[str]) -> Part:
    copies[operator.name] += 1
    return operator, copies[operator.name] - 1


def _reach(flow: Sequence[Reach], places: Sequence[int]) -> Reach:
    if len(places) == 1:
        return flow[places[0]]
    return Reach(any(flow[place].output for place in places), any(flow[place].input for place in places))


def _backward(stretch: _Stretch, recomputed: bool, reentrant: bool, block: Block | None) -> list[Visit]:
    """Backward through one layer: only modules whose output has a gradient are reached."""
    modules = stretch.visits
    reached = [visit for visit, reach in zip(modules, stretch.flow, strict=True) if reach.output]
    back = _swept(reached[::-1], stretch, block)
    if not reached or not recomputed:
        return back
    again = _swept(modules, stretch, block)
    if reentrant:
        return again + back
    # Backward reaches the last module first and stays in it while the layer is recomputed; what is
    # frozen and was gathered for that is let go with it (`release_sub_module`: ds_recompute_parameters).
    frozen = tuple(part for visit in modules for part in visit.parts if not part[0].trainable)
    first = _swept([modules[-1], *reached[-2::-1]], stretch, block)
    return [first[0]._replace(left=False), *again[:-1], again[-1]._replace(freed=frozen), *first[1:]]


def _swept(sweep: list[Visit], stretch: _Stretch, block: Block | None) -> list[Visit]:
    """Modules of a layer in the order in which a sweep reaches them, with those around them."""
    if block is None:
        return sweep
    names = [_name(visit, block) for visit in stretch.visits]
    around = {prefix for name in names for prefix in _prefixes(name)}
    inside: dict[str, list[Part]] = defaultdict(list)
    for name, visit in zip(names, stretch.visits, strict=True):
        for prefix in _path(name, around):
            inside[prefix] += visit.parts
    found, before = [], list[str]()
    for visit in sweep:
        path = _path(_name(visit, block), around)
        entered = tuple(tuple(inside[prefix]) for prefix in path if prefix not in before)
        found.append(visit._replace(entered=entered))
        before = path
    return found


def _name(visit: Visit, block: Block) -> str:
    return block.name if visit.leaf else visit.parts[0][0].name


def _path(name: str, around: set[str]) -> list[str]:
    """Names of the modules around one, from the outermost in; an adapter's linear is around its weight."""
    return [*_prefixes(name), *([name] if name in around else ())]


def _prefixes(name: str) -> list[str]:
    """Of "a.b.c" they are "a" and "a.b"."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _within_layer(sweep: list[Visit], stretch: _Stretch, block: Block | None) -> list[Visit]:
    """A sweep through a layer, which is a module itself and is reached first."""
    if block is None or not stretch.block or not sweep:
        return sweep
    layer = tuple(part for visit in stretch.visits for part in visit.parts)
    return [_entering(sweep[0], layer), *sweep[1:]]


def _entering(visit: Visit, around: tuple[Part, ...]) -> Visit:
    return visit._replace(entered=(around, *visit.entered))
