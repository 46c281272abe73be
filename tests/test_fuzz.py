"""Garbage in, BadInput out: no bytes, names or settings raise anything else."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ziplan.errors import BadInput, ZiplanError
from ziplan.files import read, read_text
from ziplan.hardware.profiles import list_profiles, load_cluster
from ziplan.hardware.shipped import shipped

bounded = settings(derandomize=True, deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))
MACHINES = [shipped("nodes", name).data for name in list_profiles("nodes")]
CLUSTER = {
    "machine": "dgx-2",
    "nodes": 2,
    "with": {"tiers.dram.capacity": "2 TiB", "gpus_per_node": 4},
    "price": {"per_node_hour": "3 USD", "source": "x", "date": "2026"},
}

odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(10**25, 10**150),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(
        [
            "32 GB",
            "32 Gb/s",
            "-1 B",
            "1e400 B",
            "0 B/s",
            "9 EB",
            "NaN B",
            "a\0b",
            "\ud800",
            "article",
            "dgx-2",
            "f.yaml",
            ".",
        ]
    ),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(
        st.sampled_from(["value", "kind", "source", "part", "name", "capacity", "x"]),
        st.sampled_from(["2 GB", "measured", "pcie4-x16", 3, None, [], {"value": 1}]),
        max_size=4,
    ),
)
odd_keys = st.one_of(
    st.text(max_size=6),
    st.sampled_from(
        [
            "extends",
            "gpu",
            "tiers",
            "value",
            "part",
            "with",
            "machine",
            "drive",
            "drive_count",
            "hbm",
            "nodes",
        ]
    ),
)


@st.composite
def mutated(draw, roots):
    """A document in which some value or key was replaced, added or taken away."""
    data = copy.deepcopy(draw(st.sampled_from(roots)))
    for _ in range(draw(st.integers(1, 4))):
        place = data
        while True:
            inner = [key for key, value in place.items() if isinstance(value, dict) and value]
            if not inner or draw(st.integers(0, 3)) == 0:
                break
            place = place[draw(st.sampled_from(inner))]
        action = draw(st.sampled_from(["replace", "add", "remove", "rename"]))
        key = draw(st.sampled_from(sorted(place, key=str))) if place else None
        if action == "add" or key is None:
            place[draw(odd_keys)] = copy.deepcopy(draw(odd_values))
        elif action == "replace":
            place[key] = copy.deepcopy(draw(odd_values))
        else:
            value = place.pop(key)
            if action == "rename":
                place[draw(odd_keys)] = value
    return data


def complaints(attempt, *arguments):
    """The problems that an attempt is refused for, None when it succeeds; anything else raised is a bug."""
    try:
        attempt(*arguments)
    except BadInput as error:
        return error.problems
    return None


def loads_or_complains(path, changes=()):
    """Load; what is refused is refused with sentences and carets that can be printed."""
    problems = complaints(load_cluster, str(path), changes)
    assert problems is None or problems
    for problem in problems or ():
        str(problem).encode(errors="surrogatepass")
        assert problem.message
        assert problem.length >= 1
        assert problem.column <= len(problem.text) + 1 or not problem.text


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "f.yaml"


@bounded
@given(content=st.binary(max_size=200))
def test_any_bytes(file, content):
    file.write_bytes(content)
    loads_or_complains(file)


@bounded
@given(
    text=st.text(
        st.sampled_from("ab:-?[]{},#&*!|>'\"%@`~<= \t\n\r\\\u2028\x85é0123.eE+_\ufeff\U0001f600"), max_size=60
    )
)
def test_any_punctuation(text):
    for name in ("x.yaml", "x.json"):
        assert complaints(read_text, text, name) != ()


@bounded
@given(data=mutated([*MACHINES, CLUSTER, {"machine": MACHINES[0], "nodes": 3}]))
def test_any_mutated_profile(file, data):
    file.write_bytes(json.dumps(data, indent=1).encode())
    loads_or_complains(file)


@bounded
@given(data=st.sampled_from([json.dumps(data, indent=1) for data in [*MACHINES, CLUSTER]]), cut=st.data())
def test_any_damaged_text(file, data, cut):
    start = cut.draw(st.integers(0, len(data)))
    length = cut.draw(st.integers(0, 30))
    junk = cut.draw(st.text("{}[]:,\"'\n\t \0x1", max_size=8))
    file.write_text(data[:start] + junk + data[start + length :])
    loads_or_complains(file)


PATHS = [
    "tiers.dram.capacity",
    "tiers.nvme.drive",
    "gpu",
    "gpu.memory",
    "links.host",
    "nodes",
    "with",
    "tiers.x.y",
    "",
    ".",
]


@bounded
@given(
    argument=st.one_of(
        st.text(max_size=10), st.sampled_from(["dgx-2", "4x dgx-2", "99999999x dgx-2", ".", "/", "x\0.yaml"])
    ),
    changes=st.lists(
        st.tuples(st.one_of(st.text("a.gputiers", max_size=8), st.sampled_from(PATHS)), st.text(max_size=12)),
        max_size=3,
    ),
)
def test_any_argument(argument, changes):
    loads_or_complains(argument, changes)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"[" * 10_000,
        b'{"a":' * 10_000,
        b"- " * 10_000,
        b"? " * 10_000,
        b"a: " + b"9" * 100_000,
        b"a: 1e400",
        b"gpu: 1e400\ntiers: -1e400\n",
        b"machine: dgx-2\nnodes: " + b"9" * 150,
        b'{"machine": "\\ud800"}',
        b'machine: "\\0"',
        b"machine: &a dgx-2\nx: *a",
        b"machine: dgx-2\nmachine: dgx-2",
        b"machine: {extends: {value: dgx-2}}",
        b"machine: dgx-2\nwith: {tiers: {nvme: {drive: {part: {part: x}}}}}",
        b"machine: dgx-2\nwith: {tiers: 3, links: [], gpu: {value: rtx-4090}}",
        b"%YAML 9.9\n---\na: 1",
        b"!!python/object/apply:os.system [ls]",
        b"a" * 3_000_000,
        b"a:\n" * 5_000,
        b"'" + b"\n" * 5_000,
        "\u2028a: \u2029b".encode(),
    ],
    ids=range(23),
)
def test_known_troublemakers(file, content):
    file.write_bytes(content)
    loads_or_complains(file)
    file.with_suffix(".json").write_bytes(content)
    loads_or_complains(file.with_suffix(".json"))


def test_a_directory_and_a_missing_file(tmp_path):
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(ZiplanError):
            read(path)
        loads_or_complains(path)
