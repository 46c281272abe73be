"""What holds for every law; a new law is covered by being written."""

import ast
import math

import numpy as np
import pint
import pytest
from golden.laws import ROWS
from laws import oracle

from ziplan.laws.law import ARITHMETIC, LAWS, Derivation, Law
from ziplan.report.laws_page import every_law
from ziplan.units import Bytes, BytesPerSecond, Seconds

EVERY = every_law()
WITH_ROW = [law for law in EVERY if law.name in ROWS]
each_law = pytest.mark.parametrize("law", EVERY, ids=lambda law: law.name)
each_golden_law = pytest.mark.parametrize("law", WITH_ROW, ids=lambda law: law.name)


def test_every_law_has_a_golden_row_and_every_row_a_law():
    missing = [
        f"{law.module}: {law.name}({', '.join(list(law.units)[:-1])})"
        for law in EVERY
        if law.name not in ROWS
    ]
    assert not missing, "add golden rows to tests/golden/*_rows.py for:\n" + "\n".join(missing)
    assert set(ROWS) <= set(LAWS), f"golden rows without a law: {sorted(set(ROWS) - set(LAWS))}"


@each_golden_law
def test_gives_its_golden_values(law):
    for arguments, expected in ROWS[law.name]:
        assert law.function(**arguments) == pytest.approx(expected, rel=1e-12, abs=0)


@each_law
def test_is_one_return_of_arithmetic_on_its_arguments(law):
    statements = oracle.body(law)
    assert len(statements) == 1
    assert isinstance(statements[0], ast.Return)
    expression = ast.parse(law.expression, mode="eval")
    called = {node.func.id for node in ast.walk(expression) if isinstance(node, ast.Call)}
    assert called <= set(ARITHMETIC), f"a law calls no law: {called - set(ARITHMETIC)}"
    used = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)} - called
    assert used == set(law.units) - {"return"}, "a law uses its arguments, all of them, and nothing else"


@each_law
def test_states_its_units_and_source(law):
    assert law.source
    assert law.summary.endswith((".", ")"))
    assert f"Source: {law.source}" in law.function.__doc__
    assert law.function(**_arguments(law)) is not None


@each_law
def test_has_the_dimensions_that_it_declares(law):
    oracle.check(law, _arguments(law))


@each_golden_law
def test_no_swapped_operator_survives_dimensions_and_golden_rows(law):
    for mutant in oracle.mutants(law.expression):
        assert _caught(law, mutant), f"nothing would notice {law.name} = {mutant}"


@each_law
def test_an_array_gives_what_a_loop_gives(law):
    scalars = [{k: v * f for k, v in _arguments(law).items()} for f in (1.0, 1.5, 2.0)]
    arrays = {name: np.array([row[name] for row in scalars]) for name in scalars[0]}
    assert np.array_equal(law.function(**arrays), [law.function(**row) for row in scalars])


@each_law
def test_its_printed_text_evaluates_to_its_value(law):
    derivation = Derivation()
    for factor in (1, 1.3, 7):
        arguments = {name: value * factor for name, value in _arguments(law).items()}
        value = derivation.apply(law.function, "", **arguments)
        assert _evaluate(derivation.steps[-1].evaluable) == value


def swapped(bytes_moved: Bytes, link_bandwidth: BytesPerSecond) -> Seconds:
    return bytes_moved * link_bandwidth


def added(bytes_moved: Bytes, layer_time: Seconds) -> Bytes:
    return bytes_moved + layer_time


def bare(bytes_moved: Bytes) -> Bytes:
    return bytes_moved + 4


@pytest.mark.parametrize("bad", [swapped, added, bare], ids=lambda bad: bad.__name__)
def test_the_oracle_catches_a_planted_bad_law(bad):
    hints = {"Bytes": "Bytes", "BytesPerSecond": "BytesPerSecond", "Seconds": "Seconds"}
    names = {Bytes: "Bytes", BytesPerSecond: "BytesPerSecond", Seconds: "Seconds"}
    bad.__annotations__ = {k: hints[names.get(v, v)] for k, v in bad.__annotations__.items()}
    law = Law(bad, "planted")
    with pytest.raises(pint.DimensionalityError):
        oracle.check(law, dict.fromkeys(law.units, 2.0))


def test_a_step_prints_negative_and_unlimited_numbers_so_that_they_evaluate():
    law = LAWS["layer_params"]
    derivation = Derivation()
    for width in (-3.0, math.inf, np.float64(7)):
        value = derivation.apply(law.function, "", d_model=width, params_per_squared_width=12.0)
        assert _evaluate(derivation.steps[-1].evaluable) == value


def test_a_derivation_that_does_not_record_keeps_nothing():
    derivation = Derivation(record=False)
    assert derivation.apply(LAWS["layer_time"].function, step_compute_time=8.0, layer_count=4.0) == 2
    assert derivation.steps == []
    assert derivation.latest(1.0) is None


def test_two_laws_cannot_share_a_name():
    from ziplan.laws.law import law

    with pytest.raises(TypeError, match="two laws are called layer_time"):
        law("twice")(LAWS["layer_time"].function)


def _arguments(law):
    """Arguments of the law's first golden row, or small distinct numbers."""
    rows = ROWS.get(law.name)
    names = [name for name in law.units if name != "return"]
    return rows[0][0] if rows else {name: 2.0 + i for i, name in enumerate(names)}


def _caught(law, mutant):
    try:
        oracle.check(law, _arguments(law), mutant)
    except pint.DimensionalityError:
        return True
    return any(_differs(mutant, arguments, expected) for arguments, expected in ROWS[law.name])


def _differs(mutant, arguments, expected):
    try:
        with np.errstate(all="ignore"):
            value = _evaluate(mutant, arguments)
    except ZeroDivisionError:
        return True
    return value != pytest.approx(expected, rel=1e-9, abs=0)


def _evaluate(text, names=None):
    return eval(text, {"__builtins__": {}, **ARITHMETIC}, names or {})
