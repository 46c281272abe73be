"""A model as it is trained: parts of it frozen, low-rank adapters beside its linears."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from ziplan.workload.gradients import LORA_A, LORA_B
from ziplan.workload.model import Layer, Model, Operator
from ziplan.workload.training import ALL_LINEAR, Adapters, Frozen, Trainable


def adapted(model: Model, trainable: Trainable) -> Model:
    """The model with what training leaves alone marked, and with the adapters' own modules.

    Raises ValueError with the names that the model has where one is not among them.
    """
    if isinstance(trainable, Adapters):
        return _with_adapters(model, trainable)
    return model if trainable == "all" else _frozen(model, trainable)


def _frozen(model: Model, parts: Frozen) -> Model:
    for part in parts.frozen:
        if not any(_named(operator.name, part) for operator in model.operators):
            raise ValueError(_unknown("nothing", part, (operator.name for operator in model.operators)))
    kept = {o.name for o in model.operators if any(_named(o.name, part) for part in parts.frozen)}

    def change(operator: Operator) -> Layer:
        return (replace(operator, trainable=(operator.shared_with or operator.name) not in kept),)

    rest = changed(model, change)
    if not rest.trainable_params:
        raise ValueError("nothing is left to train: every parameter is frozen")
    return rest


def _named(name: str, part: str) -> bool:
    """Whether `part` is a module's name, the end of it from a dot on, or a module that it is part of."""
    return f".{part}." in f".{name}."


def _with_adapters(model: Model, adapters: Adapters) -> Model:
    """Each target followed by its adapter: A (rank x in), then B (out x rank), neither with a bias."""
    rank = adapters.lora_rank
    linears = [o for o in model.operators if o.kind == "linear" and not o.router]
    for target in adapters.named_targets:
        if not any(_ends(operator.name, target) for operator in linears):
            raise ValueError(_unknown("no linear", target, (operator.name for operator in linears)))
    targeted = [operator for operator in linears if adapters.targeted(operator)]
    for operator in targeted:
        _within(operator, rank)
    targets = {operator.name for operator in targeted}

    def change(operator: Operator) -> Layer:
        base = replace(operator, trainable=False)
        if operator.name not in targets:
            return (base,)
        new = replace(operator, bias=False, shared_with=None, trainable=True)
        return (
            base,
            replace(new, name=operator.name + LORA_A, out_features=rank),
            replace(new, name=operator.name + LORA_B, in_features=rank),
        )

    return changed(model, change)


def _within(operator: Operator, rank: int) -> None:
    """Refuse a rank above both sides of a target; PEFT takes one above the narrower side alone."""
    width = max(operator.in_features, operator.out_features)
    if rank > width:
        sizes = f"{operator.in_features:,} x {operator.out_features:,}"
        raise ValueError(f"lora_rank {rank:,} is above {width:,}, the width of {operator.name} ({sizes})")


def notes_on(model: Model, trainable: Trainable) -> Iterator[str]:
    """What adapters beside "every linear" leave out, as PEFT's `all-linear` does."""
    if not isinstance(trainable, Adapters) or ALL_LINEAR not in trainable.targets:
        return
    left = [o.name for o in model.operators if o.block and (o.kind == "experts" or o.router)]
    if left:
        yield (
            f"all-linear: no adapters beside {', '.join(left)}: stacked experts and routers of transformers "
            "are no linears"
        )


def changed(model: Model, change: Callable[[Operator], Layer]) -> Model:
    """The model with each operator replaced by what `change` makes of it, wherever it stands."""

    def of(operators: Layer) -> Layer:
        return tuple(part for operator in operators for part in change(operator))

    structure = tuple(
        replace(section, layers=tuple(of(layer) for layer in section.layers)) for section in model.structure
    )
    return replace(model, operators=of(model.operators), structure=structure)


def _ends(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    return f"{what} in this model is called {name!r:.60}; it has {', '.join(known)}"
