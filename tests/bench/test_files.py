"""docs/files.md and docs/bench.md name what a measured machine file and `ziplan bench` have."""

import re
from pathlib import Path

from bench.records import with_gpus

from ziplan.bench.benchmark import benchmarks
from ziplan.bench.measurement import Waived
from ziplan.bench.profile import Profile
from ziplan.bench.record import Contention, with_results
from ziplan.hardware.tree import _LEAF_KEYS

DOCS = Path(__file__).parents[2] / "docs"
FILES, BENCH = (DOCS / "files.md").read_text(), (DOCS / "bench.md").read_text()


def test_every_key_of_a_measured_value_is_documented():
    section = FILES.partition("A machine file has the keys")[2].partition("## plan.yaml")[0]
    assert set(_LEAF_KEYS) <= set(re.findall(r"`([a-z_]+)`", section))


def test_keys_beside_the_machine_are_those_that_are_written():
    table = FILES.partition("Three keys stand beside the machine")[2].partition("## plan.yaml")[0]
    documented = set(re.findall(r"^- `([a-z_]+)`:", table, re.MULTILINE))
    record = with_results(with_gpus(), [Waived(name="x", reason="y")])
    shared = Contention(shared="a", members=("b", "c"), evidence="topology")
    tree = Profile(record.model_copy(update={"contention": (shared,)})).tree()
    assert documented == set(tree) & {"environment", "not_measured", "contention"}
    assert len(documented) == 3
    for key in Contention.model_fields:
        assert f"`{key}`" in table


def test_every_benchmark_is_documented():
    table = BENCH.partition("## What is measured")[2].partition("What cannot be measured")[0]
    documented = set(re.findall(r"`([a-z.*]+)`", table))
    for benchmark in benchmarks():
        assert benchmark.name in documented or f"{benchmark.name.partition('.')[0]}.*" in documented
