"""Hjson as the Python package hjson reads it, with places."""

import pytest

from ziplan.errors import BadInput
from ziplan.files.compose import read_json
from ziplan.files.hjson import read_hjson

READ = {
    '{"a": 1, "b": [true, null]}': {"a": 1, "b": [True, None]},
    "a: 1\nb: two words # not a comment\n": {"a": 1, "b": "two words # not a comment"},
    "{ # c\n // d\n /* e\n f */ device: cpu\n}": {"device": "cpu"},
    "{device: cpu, pin: true\n}": {"device": "cpu, pin: true"},
    "{stage: 3, pin: true}": {"stage": 3, "pin": True},
    "{a: 5e8, b: 1e10, c: 1.5, d: -2e-1}": {"a": 500000000, "b": 1e10, "c": 1.5, "d": -0.2},
    "{a: [1\n2\n3,], b: {},}": {"a": [1, 2, 3], "b": {}},
    '{\'it\': \'say "so"\', "u": "\\u0041\\n"}': {"it": 'say "so"', "u": "A\n"},
    "{\n  a: '''\n     x\n       y\n     '''\n}": {"a": "x\n  y"},
    "{a: 1 2 3\n}": {"a": "1 2 3"},
    "": {},
    "# nothing\n": {},
}
REFUSED = ("{a: 1", "{a 1}", "{: 1}", "{a b: 1}", "[1,,2]", "{,a: 1}", "}", "{} x", '{"a', "/* a", "{a: }")


@pytest.mark.parametrize("text", READ)
def test_text_reads_as_hjson_reads_it(text):
    data = read_hjson(text, "x.json").data
    assert data == READ[text]
    assert repr(data) == repr(READ[text])


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_hjson_is_refused_with_its_place(text):
    with pytest.raises(BadInput) as refused:
        read_hjson(text, "x.json")
    (problem,) = refused.value.problems
    assert problem.code == "ZP002"
    assert problem.line == 1
    assert "Hjson" in problem.message


@pytest.mark.engine
@pytest.mark.parametrize("text", [*READ, *REFUSED])
def test_the_package_agrees(text):
    hjson = pytest.importorskip("hjson")
    try:
        wanted = hjson.loads(text, object_pairs_hook=dict)
    except (ValueError, IndexError):
        wanted = None
    assert wanted == READ.get(text)


def test_keys_and_values_have_places():
    document = read_hjson("{\n  zero: {stage: 3\n    device: cpu\n  }\n}", "x.json")
    key, value = document.locate(("zero", "device"), key=True), document.locate(("zero", "device"))
    assert (key.line, key.column) == (3, 5)
    assert (value.line, value.column, value.length) == (3, 13, 3)


@pytest.mark.parametrize("parse", [read_hjson, read_json])
def test_a_repeated_key_is_noted_and_its_last_value_kept(parse):
    document = parse('{"a": 1,\n "b": {"c": 2,\n  "c": 3}}', "x.json")
    assert document.data == {"a": 1, "b": {"c": 3}}
    ((key, first, again),) = document.repeated
    assert (key, first.line, again.line, again.column) == ("c", 2, 3, 3)


def test_a_number_beyond_floats_is_refused():
    with pytest.raises(BadInput, match="is not a number"):
        read_hjson("{a: 1e999}", "x.json")


def test_deep_nesting_ends():
    with pytest.raises(BadInput, match="nested deeper"):
        read_hjson("[" * 10_000, "x.json")
