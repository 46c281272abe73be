"""The located reader: what a file means, where each part of it stands, and every way to be wrong."""

import json
import os

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from ziplan.errors import BadInput
from ziplan.files import LARGEST_FILE, dotted, read, read_text, suggested, validate
from ziplan.units import Bytes, BytesPerSecond


@pytest.fixture(params=["compiled parser", "pure parser"], autouse=True)
def parser(request, monkeypatch):
    """Every test here runs with both of PyYAML's parsers."""
    if request.param == "pure parser":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    return request.param


def problems_of(text, name="x.yaml"):
    with pytest.raises(BadInput) as refused:
        read_text(text, name)
    return refused.value.problems


def test_yaml_means_its_core_schema():
    document = read_text(
        "a: 1e9\nb: yes\nc: 2020-01-01\nd: 1:30\ne: 010\nf: 0o17\ng: ~\nh: 1_000\ni: 0x1F\nj: True\n"
        "k: -.5\nl: 'true'\nm: [on, off, null]\nn:\n",
        "x.yaml",
    )
    assert document.data == {
        "a": 1e9,
        "b": "yes",
        "c": "2020-01-01",
        "d": "1:30",
        "e": 10,
        "f": 15,
        "g": None,
        "h": "1_000",
        "i": 31,
        "j": True,
        "k": -0.5,
        "l": "true",
        "m": ["on", "off", None],
        "n": None,
    }


def test_keys_are_text():
    assert read_text("1: a\non: b\nnull: c\n", "x.yaml").data == {"1": "a", "on": "b", "null": "c"}


def test_json_with_tabs_and_escapes():
    text = '{\n\t"a":1,\n\t"b": ["\\ud83d\\ude00\\/", true, null, -1.5e3]\n}\n'
    for name in ("x.json", "x.yaml"):
        document = read_text(text, name)
        assert document.data == {"a": 1, "b": ["\U0001f600/", True, None, -1500.0]}
        assert document.locate(("b",), key=True).line == 3
        assert document.locate(("b",), key=True).column == 2


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(
        st.characters(exclude_categories=("Cs", "Cc", "Cn", "Co"), exclude_characters="\ufffe\uffff\ufeff")
    ),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc ", max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json_values, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_json_is_read_as_python_reads_it(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert read_text(text, "x.json").data == value


TEXT = """\
machine: dgx-2
with:
  tiers.dram.capacity: 2 TiB   # more
  "links": {host: {bandwidth: 32 GB}}
list:
  - one
  - {two: 'zwei'}
"""


@pytest.mark.parametrize(
    ("path", "key", "line", "under"),
    [
        (("machine",), False, 1, "dgx-2"),
        (("machine",), True, 1, "machine"),
        (("with", "tiers.dram.capacity"), False, 3, "2 TiB"),
        (("with", "tiers.dram.capacity"), True, 3, "tiers.dram.capacity"),
        (("with", "links", "host", "bandwidth"), False, 4, "32 GB"),
        (("with", "links"), True, 4, '"links"'),
        (("list", 0), False, 6, "one"),
        (("list", 1, "two"), False, 7, "'zwei'"),
        (("with", "nothing", "here"), False, 2, "with"),
        (("nothing",), False, 1, "m"),
    ],
)
def test_every_part_has_its_place(path, key, line, under):
    place = read_text(TEXT, "x.yaml").locate(path, key)
    assert place.line == line
    assert place.text == TEXT.splitlines()[line - 1]
    assert place.text[place.column - 1 : place.column - 1 + place.length] == under


def test_places_count_characters_and_all_line_ends():
    document = read_text("ä: ö\r\nb: [ü, c]\r\n", "x.yaml")
    place = document.locate(("b", 1))
    assert (place.line, place.column, place.length, place.text) == (2, 8, 1, "b: [ü, c]")


def test_all_problems_of_a_file_at_once():
    found = problems_of("a: 1\na: 2\nb: &x 3\nc: *x\nd: !!int 3\n<<: {}\n? [a]\n: b\ne: .inf\nf: 1e400\n")
    assert [(p.line, p.code) for p in found] == [
        (2, "ZP003"),
        (3, "ZP004"),
        (4, "ZP004"),
        (5, "ZP004"),
        (6, "ZP004"),
        (7, "ZP004"),
        (9, "ZP010"),
        (10, "ZP010"),
    ]
    assert "already given in line 1" in found[0].message


@pytest.mark.parametrize(
    ("text", "code", "place", "words"),
    [
        ("", "ZP001", (0, 0), "is empty"),
        ("# nothing\n", "ZP001", (0, 0), "is empty"),
        ("a: [1, 2\n", "ZP002", (2, 1), "not valid YAML"),
        ("a: b: c\n", "ZP002", (1, 5), "not valid YAML"),
        ("a: 1\n---\nb: 2\n", "ZP004", (2, 1), "more than one document"),
        ("[" * 10_000, "ZP004", (1, 65), "nested deeper"),
        ('{"a":' * 10_000, "ZP004", (1, 321), "nested deeper"),
        ("- " * 10_000, "ZP004", (1, 129), "nested deeper"),
        ("a: \x00\n", "ZP001", (1, 4), "has the character"),
        ("a: \udc80\n", "ZP001", (1, 4), "has the character"),
        ('{"a": "\\ud83d"}', "ZP001", (1, 7), "no character"),
        ("a: " + "9" * 5000, "ZP010", (1, 4), "not a number that can be computed with"),
    ],
)
def test_what_cannot_be_read_is_told(text, code, place, words):
    problem = problems_of(text)[-1]
    assert (problem.code, (problem.line, problem.column)) == (code, place)
    assert words in problem.message
    assert len(problem.message) < 200


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ('{"a": 1,}', 9, "expected a key in double quotes"),
        ("[1, 2,]", 7, "expected a value"),
        ('{"a" 1}', 6, "expected ':'"),
        ("[1, 2] 3", 8, "expected the end"),
        ('{"a": NaN}', 7, "expected a value"),
        ('{"a": 01}', 7, "expected a value"),
        ("{'a': 1}", 2, "expected a key in double quotes"),
        ('{"a": [1}', 9, "expected ',' or ']'"),
        ('{"a": 1', 7, "ends before"),
        ("a: 1", 1, "expected a value"),
    ],
)
def test_a_json_file_is_json(text, column, expected):
    (problem,) = problems_of(text, "x.json")
    assert (problem.code, problem.line, problem.column) == ("ZP002", 1, column)
    assert expected in problem.message


@pytest.mark.parametrize(
    ("content", "words", "place"),
    [
        (b"\xef\xbb\xbfa: 1", "byte order mark", (0, 0)),
        ("a: 1".encode("utf-16"), "UTF-16", (0, 0)),
        (b"a: 1\nb: \xff\xfe", "not UTF-8 text (byte 0xff)", (2, 4)),
        (b"\x7fELF\x02\x01", "has the character", (1, 1)),
        (b"a" * (LARGEST_FILE + 1), "larger than 2 MB", (0, 0)),
    ],
)
def test_bytes_that_are_no_text(tmp_path, content, words, place):
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(BadInput) as refused:
        read(path)
    (problem,) = refused.value.problems
    assert words in problem.message
    assert (problem.line, problem.column) == place
    assert problem.file == str(path)


def test_files_that_cannot_be_opened(tmp_path, monkeypatch):
    for path, words in [(tmp_path, "is a directory"), (tmp_path / "no", "no such file"), ("a\0b", "null")]:
        with pytest.raises(BadInput, match=words):
            read(path)
    monkeypatch.setattr(
        "builtins.open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    with pytest.raises(BadInput, match="permission denied"):
        read(tmp_path / "x.yaml")


@pytest.mark.parametrize("name", ["x.yaml", "x.json"])
def test_too_many_values(name, monkeypatch):
    monkeypatch.setattr("ziplan.files.compose.MOST_VALUES", 50)
    (problem,) = problems_of("[" + "1," * 60 + "1]", name)
    assert (problem.code, problem.column) == ("ZP004", 102)


def test_a_hundred_problems_are_enough():
    assert len(problems_of("a: 1\n" * 500)) == 100


def test_the_remedy_for_tabs():
    problem = problems_of("a:\n\tb: 1\n")[0]
    assert problem.line == 2
    assert problem.code == "ZP002"


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    read_bandwidth: BytesPerSecond | None = None
    capacity: Bytes
    kind: str = Field(default="a", pattern="^[ab]$")


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    tiers: dict[str, Inner]
    count: int = Field(default=1, ge=1)
    both: str | Inner = "x"
    many: list[Inner] = []


def told(text, model=Outer):
    with pytest.raises(BadInput) as refused:
        validate(read_text(text, "cluster.yaml"), model)
    return refused.value.problems


def test_each_wrong_value_becomes_a_problem_at_its_place():
    problems = told(
        "tiers:\n"
        "  dram:\n"
        "    read_bandwidth: 32 GB\n"
        "    capasity: 64 GiB\n"
        "  nvme: {capacity: 5, kind: [1]}\n"
        "count: 0\n"
        "many: [{capacity: 1 B}, 7]\n"
    )
    assert [str(problem) for problem in problems] == [
        "cluster.yaml:2:3: ZP013 tiers.dram: missing key `capacity`",
        "cluster.yaml:3:21: ZP011 tiers.dram.read_bandwidth: '32 GB' has unit 'GB', expected 'B/s'"
        " (for example '32 GB/s')",
        "cluster.yaml:4:5: ZP012 unknown key `capasity` in tiers.dram",
        "cluster.yaml:5:20: ZP011 tiers.nvme.capacity: 5 has no unit, expected 'B' (for example '64 GiB')",
        "cluster.yaml:5:29: ZP010 tiers.nvme.kind: expected text, not [1]",
        "cluster.yaml:6:8: ZP010 count: must be at least 1, not 0",
        "cluster.yaml:7:25: ZP010 many[1]: expected a mapping of keys to values, not 7",
    ]
    unknown = problems[2]
    assert unknown.hint == "did you mean `capacity`?"
    assert unknown.help == "write it with its unit, for example `capacity: 64 GiB`"
    assert (unknown.text, unknown.length) == ("    capasity: 64 GiB", len("capasity"))
    assert problems[0].help == "add `capacity: 64 GiB`"


def test_of_a_union_the_branch_that_was_meant_is_told():
    (problem,) = told("tiers: {}\nboth: {capacity: 1 B, read_bandwith: 1 B/s}\n")
    assert (problem.code, problem.hint) == ("ZP012", "did you mean `read_bandwidth`?")


def test_validation_of_a_part_of_a_document():
    document = read_text("a: {b: {capacity: 64 GiB}}\n", "x.yaml")
    assert validate(document, Inner, ("a", "b")).capacity == 64 * 2**30
    with pytest.raises(BadInput, match=r"x.yaml:1:5: ZP012 unknown key `b` in a"):
        validate(document, Inner, ("a",))


def test_paths_are_dotted():
    assert dotted(("tiers", "dram", 0, "x")) == "tiers.dram[0].x"
    assert os.fspath(dotted(())) == ""


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("dgx-h10", "did you mean `dgx-h100`?"),
        ("a100", "did you mean `a100-sxm4`, `a100-pcie` or `a10`?"),
        ("aa100", "did you mean `a10` or `a10g`?"),
        ("h", ""),
        ("", ""),
    ],
)
def test_the_names_that_may_be_meant_are_few(name, hint):
    assert suggested(name, ["a10", "a10g", "a100-pcie", "a100-sxm4", "dgx-h100"]) == hint
