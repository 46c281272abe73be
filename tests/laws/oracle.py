"""What a law means to pint: its expression evaluated on quantities that carry their units.

The registry is our own: pint's stock byte is dimensionless, and so are its tokens.
"""

import ast
import inspect

import pint

REGISTRY = pint.UnitRegistry(None)
for base in ("B", "s", "FLOP", "token", "param", "USD"):
    REGISTRY.define(f"{base} = [{base}]")


def quantity(value, symbol):
    return REGISTRY.Quantity(float(value), "" if symbol == "1" else symbol)


def _dimensions(value):
    return REGISTRY.Quantity(value).dimensionality


def _is_zero(value):
    return not isinstance(value, REGISTRY.Quantity) and value == 0


def _alike(*values):
    """All values, which must have one dimension; a bare 0 has any."""
    kinds = {str(_dimensions(value)) for value in values if not _is_zero(value)}
    if len(kinds) > 1:
        raise pint.DimensionalityError(*sorted(kinds)[:2])
    return values


def _pick(choose):
    def picked(*values):
        largest_first = sorted(_alike(*values), key=lambda v: getattr(v, "magnitude", v))
        return choose(largest_first)

    return picked


def _whole(value):
    if not REGISTRY.Quantity(value).dimensionless:
        raise pint.DimensionalityError(str(value), "a pure number")
    return value


ARITHMETIC = {
    "minimum": _pick(lambda ordered: ordered[0]),
    "maximum": _pick(lambda ordered: ordered[-1]),
    "ceil": _whole,
    "floor": _whole,
    "power_of_two": _whole,
    "sqrt": lambda value: value**0.5,
    "where": lambda condition, chosen, otherwise: next(
        value for value in _alike(chosen, otherwise) if not _is_zero(value)
    ),
}


def check(law, arguments, expression=None):
    """Raise where the law's expression does not have the dimensions that the law declares."""
    units = {name: unit.symbol for name, unit in law.units.items()}
    declared = units.pop("return")
    names = {name: quantity(arguments[name], symbol) for name, symbol in units.items()}
    code = compile(expression or law.expression, law.name, "eval")
    value = eval(code, {"__builtins__": {}, **ARITHMETIC}, names)
    expected = quantity(1, declared).dimensionality
    if not _is_zero(value) and _dimensions(value) != expected:
        raise pint.DimensionalityError(str(_dimensions(value)), declared)


def body(law):
    """The statements of the law below its docstring."""
    tree = ast.parse(inspect.cleandoc(inspect.getsource(law.function)))
    return [node for node in tree.body[0].body if not _is_docstring(node)]


def _is_docstring(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


SWAPS = {ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Add: ast.Sub, ast.Sub: ast.Add}


def mutants(expression):
    """The expression once for each of its operators, with that one swapped."""
    count = sum(type(getattr(node, "op", None)) in SWAPS for node in ast.walk(ast.parse(expression)))
    for index in range(count):
        tree = ast.parse(expression, mode="eval")
        swappable = [node for node in ast.walk(tree) if type(getattr(node, "op", None)) in SWAPS]
        node = swappable[index]
        node.op = SWAPS[type(node.op)]()
        yield ast.unparse(tree)
