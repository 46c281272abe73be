"""What a law is, and the record of laws applied.

A law is a pure function of one expression over floats or numpy arrays (statically `float`),
with its unit in every annotation and its source in the decorator. A law calls no law. The
arithmetic helpers below work on scalars and arrays alike and are all that a law may call.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np

from ziplan.units import ALIASES, Unit

P = ParamSpec("P")
R = TypeVar("R")


def _plain(value: Any) -> float:
    """A number as Python's own float, an array as it is: numpy's scalars end here."""
    return float(value) if np.ndim(value) == 0 else cast(float, value)


def minimum(*values: float) -> float:
    """The least of its arguments, element by element."""
    least: Any = values[0]
    for value in values[1:]:
        least = np.minimum(least, value)
    return _plain(least)


def maximum(*values: float) -> float:
    """The greatest of its arguments, element by element."""
    greatest: Any = values[0]
    for value in values[1:]:
        greatest = np.maximum(greatest, value)
    return _plain(greatest)


def ceil(value: float) -> float:
    """The least whole number not below `value`."""
    return _plain(np.ceil(value))


def floor(value: float) -> float:
    """The greatest whole number not above `value`."""
    return _plain(np.floor(value))


def sqrt(value: float) -> float:
    """The square root, element by element."""
    return _plain(np.sqrt(value))


def power_of_two(value: float) -> float:
    """The least power of two that is no less than `value`; 0 stays 0."""
    positive = np.where(np.asarray(value) > 0, value, 1.0)
    # frexp is exact where a logarithm would round: value = mantissa x 2**exponent, 0.5 <= mantissa < 1.
    mantissa, exponent = np.frexp(positive)
    least = np.ldexp(1.0, np.where(mantissa == 0.5, exponent - 1, exponent))
    return _plain(np.where(np.asarray(value) > 0, least, 0.0))


def where(condition: bool | float, chosen: float, otherwise: float) -> float:
    """`chosen` where `condition` holds, else `otherwise`, element by element."""
    if np.ndim(condition) == 0:
        return chosen if condition else otherwise
    return cast(float, np.where(cast(Any, condition), chosen, otherwise))


ARITHMETIC: dict[str, Callable[..., float]] = {
    function.__name__: function for function in (minimum, maximum, ceil, floor, sqrt, power_of_two, where)
}
"""The names that the text of a law may call."""


class Law(NamedTuple):
    """A law's entry in the registry: the function, where it comes from, what its numbers mean."""

    function: Callable[..., Any]
    source: str

    @property
    def name(self) -> str:
        """The law's name, which is also the name of what it computes."""
        return self.function.__name__

    @property
    def module(self) -> str:
        """The module that the law is written in."""
        return self.function.__module__

    @property
    def units(self) -> dict[str, Unit]:
        """Unit of each argument, in order, and of the value under "return"."""
        return {name: ALIASES[alias] for name, alias in self.function.__annotations__.items()}

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (self.function.__doc__ or "").strip().splitlines()[0]

    @property
    def expression(self) -> str:
        """The text of the law's only expression, taken from its own source."""
        return ast.unparse(self._body())

    def with_numbers(self, arguments: dict[str, str]) -> str:
        """The expression with each name replaced by the text given for it."""

        class Substitute(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.Name:
                return ast.Name(id=arguments.get(node.id, node.id))

        return ast.unparse(Substitute().visit(self._body()))

    def _body(self) -> ast.expr:
        tree = ast.parse(textwrap.dedent(inspect.getsource(self.function)))
        function = cast(ast.FunctionDef, tree.body[0])
        returned = cast(ast.Return, function.body[-1]).value
        assert returned is not None, f"law {self.name} returns nothing"
        return returned


LAWS: dict[str, Law] = {}
"""Every law by name; a law enters by being written."""


def law(source: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Enter a function in LAWS under its name, with its source; the function stays itself."""

    def enter(function: Callable[P, R]) -> Callable[P, R]:
        entry = Law(function, source)
        if entry.name in LAWS:
            raise TypeError(f"two laws are called {entry.name}")
        LAWS[entry.name] = entry
        units = ", ".join(f"{name} [{unit.symbol}]" for name, unit in entry.units.items())
        function.__doc__ = f"{function.__doc__}\n\nUnits: {units}. Source: {source}."
        return function

    return enter


class Step(NamedTuple):
    """One law applied: which, to what, with what result, and what the result is here."""

    law: Law
    arguments: dict[str, Any]
    value: Any
    label: str = ""

    @property
    def evaluable(self) -> str:
        """The expression with exact numbers: evaluating it gives `value` again."""
        return self.law.with_numbers({name: _literal(value) for name, value in self.arguments.items()})


def _literal(value: Any) -> str:
    """A number as exact Python text that keeps its meaning wherever it is put."""
    text = ast.unparse(ast.Constant(value.item() if isinstance(value, np.generic) else value))
    return f"({text})" if text.startswith("-") else text


RECENT = 8
"""Steps that are looked back on for the law behind a value."""


class Derivation:
    """The laws applied on the way to an answer, in order.

    With `record` off (a whole grid of plans at once) nothing is kept and `apply` is the law.
    """

    def __init__(self, record: bool = True) -> None:
        self.record = record
        self.steps: list[Step] = []

    def apply(self, law_function: Callable[..., float], label: str = "", /, **arguments: float) -> float:
        """`law_function(**arguments)`, remembered with what it stands for here (`label`)."""
        value = law_function(**arguments)
        if self.record:
            self.steps.append(Step(LAWS[law_function.__name__], arguments, value, label))
        return value

    def latest(self, value: float) -> Step | None:
        """The latest step that gave `value`; None where no recent one did (a stated constant, a grid)."""
        if not self.record:
            return None
        return next((step for step in self.steps[: -RECENT - 1 : -1] if step.value == value), None)
