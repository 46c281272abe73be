"""The order in which one micro-step reaches the modules that own parameters, as hooks of stage 3 see it.

Source: DeepSpeed 0.19.8, `runtime/zero/parameter_offload.py` (`_register_deepspeed_module`), and
transformers 5.24, `modeling_layers.py` (what is recomputed is a layer's `forward`, inside its hooks).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ziplan.plan import Checkpointing
from ziplan.runtimes.deepspeed.gaps import Gaps, around_layers, in_layer
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

    `others` counts modules without parameters that are reached before it (less than 0: it is not known),
    `fetched` is what the module around it gathers just before, and `lets_go` what is let go after it, where
    that is not its own.
    """

    parts: tuple[Part, ...]
    left: bool = True
    freed: tuple[Part, ...] = ()
    entered: tuple[tuple[Part, ...], ...] = ()
    others: int = 0
    fetched: tuple[Part, ...] = ()
    lets_go: tuple[Part, ...] | None = None

    @property
    def leaf(self) -> bool:
        """Whether it is several modules in one."""
        return len(self.parts) > 1

    @property
    def trained(self) -> tuple[Operator, ...]:
        """Its operators that training changes."""
        return tuple(operator for operator, _ in self.parts if operator.trainable)


class _Stretch(NamedTuple):
    """Modules one after the other, a layer or what lies between, and how far gradients flow to each.

    `forward` and `back` are what else each sweep reaches, `first` and `last` of these modules counted in
    the first and the last layer of a stack.
    """

    visits: list[Visit]
    flow: list[Reach]
    block: bool
    forward: Gaps
    back: Gaps
    first: int = 0
    last: int = 0


def visits(
    model: Model,
    repeats: Sequence[int],
    checkpointing: int,
    reentrant: bool,
    leaves: tuple[str, ...] = (),
    dropout: bool | None = None,
) -> list[Visit]:
    """Forward through the sections and back, each played as often as `repeats` says.

    `dropout` is what is said of it; None stands for what a family does unless it is told.
    """
    full, block = checkpointing == Checkpointing.FULL, leaf_block(model, leaves)
    stretches = _stretches(model, repeats, full, block, dropout)
    forward: list[Visit] = []
    backward: list[Visit] = []
    over = 0
    for stretch in stretches:
        sweep = _with_gaps(stretch, stretch.forward.order, stretch.forward, over + stretch.first)
        forward += _within_layer(_swept(sweep, stretch, block), stretch, block)
        over = stretch.forward.after
    over = 0
    for stretch in reversed(stretches):
        back = _backward(stretch, stretch.block and full, reentrant, block, over + stretch.last)
        backward += _within_layer(back, stretch, block)
        over = stretch.back.after if back else over
    if block is not None and backward:
        whole = tuple(part for stretch in stretches for visit in stretch.visits for part in visit.parts)
        backward[0] = _entering(backward[0], whole)
    return forward + backward


def _stretches(
    model: Model, repeats: Sequence[int], full: bool, block: Block | None, dropout: bool | None
) -> list[_Stretch]:
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
        reach = [_reach(flow, places) for places in groups]
        names = tuple([_named(visit, block) for visit in modules])
        through = in_layer(model.family, names, (True,) * len(names), False, dropout)
        back = in_layer(model.family, names, tuple([each.output for each in reach]), True, dropout)
        found.append(_Stretch(modules, reach, of_layer, through, back))
    return _around(model, found)


def _around(model: Model, stretches: list[_Stretch]) -> list[_Stretch]:
    """The same with what is reached outside of layers, each stack's with its first layer and its last."""
    outside = [stretch for stretch in stretches if not stretch.block]
    names = tuple(visit.parts[0][0].name for stretch in outside for visit in stretch.visits)
    reached = tuple(reach.output for stretch in outside for reach in stretch.flow)
    forward, first = around_layers(model.family, names, (True,) * len(names), False)
    back, last = around_layers(model.family, names, reached, True)
    found, begin, stack = list[_Stretch](), 0, -1
    for place, stretch in enumerate(stretches):
        if stretch.block:
            begins = place == 0 or not stretches[place - 1].block
            ends = place + 1 == len(stretches) or not stretches[place + 1].block
            stack += begins
            before = first[stack] if begins and stack < len(first) else 0
            behind = last[-1 - stack] if ends and stack < len(last) else 0
            found.append(stretch._replace(first=before, last=behind))
            continue
        end = begin + len(stretch.visits)
        through, again = (_part_of(each, begin, end) for each in (forward, back))
        found.append(stretch._replace(forward=through, back=again))
        begin = end
    return found


def _part_of(gaps: Gaps, begin: int, end: int) -> Gaps:
    order = tuple(place - begin for place in gaps.order if begin <= place < end)
    return Gaps(gaps.before[begin:end], order=order)


def _named(visit: Visit, block: Block | None) -> str:
    return block.name if block is not None and visit.leaf else visit.parts[0][0].name


def _next(operator: Operator, copies: Counter[str]) -> Part:
    copies[operator.name] += 1
    return operator, copies[operator.name] - 1


def _reach(flow: Sequence[Reach], places: Sequence[int]) -> Reach:
    if len(places) == 1:
        return flow[places[0]]
    return Reach(any(flow[place].output for place in places), any(flow[place].input for place in places))


def _with_gaps(stretch: _Stretch, places: Sequence[int], gaps: Gaps, over: int = 0) -> list[Visit]:
    """Modules at these places as a sweep reaches them, with what it reaches besides."""
    found, held = [], {place for ends in gaps.let_go for place in ends}
    for place in places:
        visit = stretch.visits[place]._replace(others=gaps.before[place] + over)
        over = 0
        if gaps.fetched and gaps.fetched[place]:
            visit = visit._replace(fetched=_parts(stretch, gaps.fetched[place]))
        if gaps.let_go and gaps.let_go[place]:
            visit = visit._replace(lets_go=visit.parts + _parts(stretch, gaps.let_go[place]))
        elif place in held:
            visit = visit._replace(lets_go=())
        found.append(visit)
    return found


def _parts(stretch: _Stretch, places: Sequence[int]) -> tuple[Part, ...]:
    return tuple(part for place in places for part in stretch.visits[place].parts)


def _backward(
    stretch: _Stretch, recomputed: bool, reentrant: bool, block: Block | None, over: int
) -> list[Visit]:
    """Backward through one layer: only modules whose output has a gradient are reached.

    One whose input has none is never left: it is let go when all of backward has ended
    (`release_backward_leftovers`).
    """
    modules, order = stretch.visits, stretch.back.order
    back = [
        visit if stretch.flow[place].input else visit._replace(lets_go=())
        for place, visit in zip(order, _with_gaps(stretch, order, stretch.back, over), strict=True)
    ]
    if not back or not recomputed:
        return _swept(back, stretch, block)
    again = _with_gaps(stretch, stretch.forward.order, stretch.forward)
    # Hooks of the layer itself are not inside of what is recomputed.
    inside, kept, behind = max(0, again[0].others - 1), stretch.back.kept, stretch.forward.after_kept
    if reentrant or kept is not None:
        behind = stretch.forward.after if reentrant else behind
        met = min(back[0].others, over + (1 if kept is None or reentrant else kept))
        if met >= 0:
            again[0] = again[0]._replace(others=met + inside)
            back[0] = back[0]._replace(others=back[0].others - met + behind)
        again[-1] = again[-1] if reentrant else again[-1]._replace(freed=_frozen(modules))
        return _swept(again, stretch, block) + _swept(back, stretch, block)
    again[0] = again[0]._replace(others=inside)
    # Backward reaches the last module first and stays in it while the layer is recomputed; what is
    # frozen and was gathered for that is let go with it (`release_sub_module`: ds_recompute_parameters).
    last = modules[-1]._replace(others=back[0].others, fetched=back[0].fetched)
    others = [back[1]._replace(others=back[1].others + behind), *back[2:]] if back[1:] else []
    first = _swept([last, *others], stretch, block)
    again[-1] = again[-1]._replace(freed=_frozen(modules))
    return [first[0]._replace(left=False), *_swept(again, stretch, block), *first[1:]]


def _frozen(modules: Sequence[Visit]) -> tuple[Part, ...]:
    return tuple(part for visit in modules for part in visit.parts if not part[0].trainable)


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
