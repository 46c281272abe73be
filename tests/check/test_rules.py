"""Every rule: it fires where it should, and not next to it; its page and the table are whole."""

import pytest
from check.fixtures import FIXTURES

from ziplan.check.rules import RULES


def questions(which):
    return [
        pytest.param(code, ask, id=f"{code}-{number}")
        for code, both in FIXTURES.items()
        for number, ask in enumerate(both[which])
    ]


@pytest.mark.parametrize("code", RULES)
def test_a_rule_has_a_failing_and_a_passing_fixture(code):
    failing, passing = FIXTURES[code]
    assert failing
    assert passing


@pytest.mark.parametrize(("code", "ask"), questions(0))
def test_fires(tmp_path, code, ask):
    found = ask.found(tmp_path, RULES[code])
    assert found
    assert {each.code for each in found} == {code}
    assert {each.severity for each in found} == {RULES[code].severity}


@pytest.mark.parametrize(("code", "ask"), questions(1))
def test_does_not_fire(tmp_path, code, ask):
    assert not ask.found(tmp_path, RULES[code])
