"""A sweep's points are single fits, its front is what nothing dominates, and it survives what goes wrong."""

import csv
import io
import json
import types
import warnings
from dataclasses import replace
from functools import partial

import jsonschema
import pytest
from cli.runs import ziplan
from hypothesis import given
from hypothesis import strategies as st
from report.strictness import strict

from ziplan.cli.inputs import Request, answer_to
from ziplan.cli.varied import posed
from ziplan.errors import BadInput
from ziplan.report.deciding_schemas import SWEEP
from ziplan.report.json import plan_object
from ziplan.report.lines import plain
from ziplan.report.sweep_json import sweep_csv, sweep_document
from ziplan.report.sweep_text import sweep_text
from ziplan.study.axes import axes_of
from ziplan.study.pareto import front, front_of
from ziplan.study.sweep import swept

REQUEST = Request("llama-3.1-8b", "dgx-a100-80g", training={"sequence_length": 4096, "global_batch_size": 64})
VARIED = ("nodes=1,2,3", "training.micro_batch_size=1..4", "tiers.nvme.drive_count=1,8")
COMMAND = ("sweep", "llama-3.1-8b", "dgx-a100-80g", "--sequence-length", "4096", "--global-batch-size", "64")


def flags(*axes):
    return [word for axis in axes for word in ("--vary", axis)]


@pytest.fixture(scope="module")
def sweep():
    return swept(partial(posed, REQUEST), axes_of(VARIED), jobs=1)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("nodes=1,2,4", ("1", "2", "4")),
        ("n=1..64", ("1", "2", "4", "8", "16", "32", "64")),
        ("n=1..8:3", ("1", "4", "7")),
        ("n=3..10", ("3", "6")),
        ("n=1,2..8,8", ("1", "2", "4", "8")),
        ("n=0.1..0.3:0.1", ("0.1", "0.2", "0.3")),
        ("c=256 GiB..1 TiB", ("256 GiB", "512 GiB", "1024 GiB")),
        ("b=100..400 GB/s", ("100 GB/s", "200 GB/s", "400 GB/s")),
        ("c=1 TB..2 TB:500 GB", ("1 TB", "1.5 TB", "2 TB")),
        ("training.optimizer.kind=adamw,lion", ("adamw", "lion")),
    ],
)
def test_values_of_an_axis(text, values):
    (axis,) = axes_of([text])
    assert axis.values == values


@pytest.mark.parametrize(
    "texts",
    [
        ["nodes"],
        ["nodes="],
        ["=1"],
        ["nodes=1,,2"],
        ["nodes=4..1"],
        ["nodes=1..1e999"],
        ["nodes=1e999..1e999"],
        ["nodes=0..8"],
        ["nodes=1..8:0"],
        ["nodes=a..b"],
        ["c=1 GB..1 GB/s"],
        ["c=1..2:500 GB"],
        ["nodes=1..9e9:1"],
        ["nodes=1", "nodes=2"],
        ["a=1..400:1", "b=1..400:1"],
    ],
)
def test_an_axis_that_says_nothing_is_refused_with_the_way_out(texts):
    with pytest.raises(BadInput) as caught:
        axes_of(texts)
    assert all(problem.help for problem in caught.value.problems)


def test_every_point_is_what_a_single_fit_answers(sweep):
    assert len(sweep.rows) == sweep.asked == 18
    for row in sweep.rows:
        nodes, micro, drives = row.values
        training = {**REQUEST.training, "micro_batch_size": int(micro)}
        settings = (f"nodes={nodes}", f"tiers.nvme.drive_count={drives}")
        single = REQUEST._replace(training=training, settings=settings)
        if row.outcome is None:
            with pytest.raises(BadInput) as caught:
                answer_to(single)
            assert set(row.refused) == {problem.message for problem in caught.value.problems}
            continue
        best = answer_to(single).best
        assert row.outcome.plan == plan_object(best.plan)
        assert row.outcome.step_time == best.step_time
        assert row.outcome.time_per_token == best.time_per_token
        assert (row.verdict, row.outcome.gpus) == (best.verdict, best.cluster.gpu_count)
        assert row.outcome.flash_writes_per_token == pytest.approx(
            best.flash_writes * best.gpus / best.tokens_per_step
        )


def test_a_contradictory_point_is_a_row_with_its_reason(sweep):
    refused = [row for row in sweep.rows if row.values[0] == "3"]
    assert {row.verdict for row in refused} == {"refused"}
    assert all("cannot be split over 24 ranks" in row.refused[0] for row in refused)
    assert all(row.outcome for row in sweep.rows if row not in refused)


def test_processes_change_nothing(sweep):
    assert swept(partial(posed, REQUEST), axes_of(VARIED), jobs=2) == sweep


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 4), min_size=1, max_size=40))
def test_the_front_is_what_nothing_dominates(costs):
    def dominates(one, other):
        return all(a <= b for a, b in zip(one, other, strict=True)) and one != other

    kept = front(costs)
    undominated = {cost for cost in costs if not any(dominates(other, cost) for other in costs)}
    assert {costs[place] for place in kept} == undominated
    assert len(kept) == len(undominated)
    assert all(costs.index(costs[place]) == place for place in kept)


def test_marked_points_fit_and_none_of_the_sweep_beats_them(sweep):
    def paid(outcome):
        return (
            outcome.time_per_token,
            outcome.gpu_time_per_token,
            outcome.gpus,
            outcome.flash_writes_per_token,
        )

    assert sweep.front
    for place in sweep.front:
        here = paid(sweep.rows[place].outcome)
        assert sweep.rows[place].verdict == "fits"
        for row in sweep.rows:
            if row.verdict == "fits":
                there = paid(row.outcome)
                assert there == here or any(a > b for a, b in zip(there, here, strict=True))


def test_a_point_that_more_likely_does_not_fit_is_marked_and_yields_to_one_that_likely_does():
    request = Request(
        "llama-3.1-8b", "rtx-4090-desktop", training={"sequence_length": 2048, "global_batch_size": 256}
    )
    found = swept(partial(posed, request), axes_of(["tiers.dram.capacity=40 GB,44 GB"]), jobs=1)
    doubtful, likely = (row.outcome for row in found.rows)
    assert (doubtful.verdict, doubtful.likely_fits) == ("tight", False)
    assert (likely.verdict, likely.likely_fits) == ("tight", True)
    assert doubtful.time_per_token < likely.time_per_token
    assert found.front == (1,)
    text = plain(sweep_text(found, 100))
    assert "tight?" in text
    assert "tight?: may fit, and more likely does not." in " ".join(text.split())
    rows = list(csv.DictReader(io.StringIO(sweep_csv(found))))
    assert [row["likely_fits"] for row in rows] == ["0", "1"]


def test_a_price_on_every_point_makes_the_front_count_dollars(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "machine: dgx-a100-80g\nprice: {per_node_hour: 32 USD, source: a bill, date: 2026-01-01}\n"
    )
    request = REQUEST._replace(cluster=str(file))
    priced = swept(partial(posed, request), axes_of(["nodes=1,2"]), jobs=1)
    assert priced.priced
    for row in priced.rows:
        nodes = int(row.values[0])
        assert row.outcome.dollars_per_token == pytest.approx(32 * nodes / 3600 * row.outcome.time_per_token)
    mixed = swept(partial(posed, request), axes_of([f"cluster={file},dgx-h100"]), jobs=1)
    assert not mixed.priced


def test_an_interrupt_gives_the_points_that_there_are():
    def interrupting(done, points):
        if done == 5:
            raise KeyboardInterrupt

    found = swept(partial(posed, REQUEST), axes_of(VARIED), 1, interrupting)
    assert (len(found.rows), found.asked, found.complete) == (5, 18, False)


def test_the_document_is_as_its_schema_says_and_the_table_says_the_same(capsys):
    told = json.loads(ziplan(capsys, *COMMAND, *flags(*VARIED), "--json").out)
    jsonschema.validate(told, strict(SWEEP))
    ran = ziplan(capsys, *COMMAND, *flags(*VARIED), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [row["verdict"] for row in rows] == [point["verdict"] for point in told["points"]]
    assert [row["on_front"] == "1" for row in rows] == [point["on_front"] for point in told["points"]]
    for row, point in zip(rows, told["points"], strict=True):
        assert {path: row[path] for path in point["values"]} == point["values"]
        assert row["step_time_s"] == ("" if point["step_time_s"] is None else repr(point["step_time_s"]))


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_text_keeps_its_width(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    ran = ziplan(capsys, *COMMAND, *flags(*VARIED))
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= width
    assert "cannot be split over 24 ranks" in " ".join(ran.out.split())
    marked = [text for text in ran.out.splitlines() if text.startswith("* ") and "on the front" not in text]
    shorter = ziplan(capsys, *COMMAND, *flags(*VARIED), "--front").out
    assert all(text.split()[:4] in [s.split()[:4] for s in shorter.splitlines()] for text in marked)


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        ("tiers.drm.capacity=1 TB", "unknown key `drm`"),
        ("training.sequence_lenth=1,2", "unknown key"),
        ("nodes=0", "whole number of at least 1"),
        ("model=no-such", "no-such"),
    ],
)
def test_a_question_that_no_point_answers_exits_2(axis, said, capsys):
    ran = ziplan(capsys, *COMMAND, "--vary", axis)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_of_a_thousand_reasons_the_first_few_are_told(capsys, tmp_path):
    out = tmp_path / "a.csv"
    asked = ("--vary", "training.micro_batch_size=65..1064:1")
    ran = ziplan(capsys, *COMMAND, *asked, "--format", "csv", "-o", out)
    assert (ran.code, ran.out, out.exists()) == (2, "", False)
    assert "and 994 more problems: every point is refused" in ran.err
    assert ran.err.count("ZP020") == 6


def test_what_is_interrupted_is_told_and_exits_130(capsys, monkeypatch):
    import ziplan.study.sweep as module

    solve_point, calls = module.solve_point, []

    def stopped(*point):
        calls.append(point)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return solve_point(*point)

    monkeypatch.setattr(module, "solve_point", stopped)
    ran = ziplan(capsys, *COMMAND, *flags(*VARIED), "--jobs", "1", "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["complete"], len(told["points"])) == (130, False, 2)
    assert "interrupted: 2 of 18 points were solved" in ran.err
    calls.clear()
    ran = ziplan(capsys, *COMMAND, *flags(*VARIED), "--jobs", "1", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert ran.code == 130
    assert [row["verdict"] == "unsolved" for row in rows] == [False] * 2 + [True] * 16
    points = [(row["nodes"], row["training.micro_batch_size"], row["tiers.nvme.drive_count"]) for row in rows]
    assert len(set(points)) == 18
    assert {row["step_time_s"] for row in rows[2:]} == {""}


def test_a_point_whose_time_nobody_can_tell_has_no_number_and_is_on_no_front(sweep):
    row = sweep.rows[0]
    nan = float("nan")
    untold = row.outcome._replace(
        verdict="unknown",
        step_time=nan,
        step_low=nan,
        step_high=nan,
        time_per_token=nan,
        gpu_time_per_token=nan,
    )
    assert front_of([untold], priced=False) == ()
    alone = replace(sweep, rows=(row._replace(outcome=untold),), front=(), asked=1)
    document = sweep_document(alone)
    jsonschema.validate(document, strict(SWEEP))
    (point,) = document["points"]
    assert (point["step_time_s"], point["tokens_per_s"]) == (None, None)
    assert "NaN" not in json.dumps(document)
    (told,) = csv.DictReader(io.StringIO(sweep_csv(alone)))
    assert (told["verdict"], told["step_time_s"]) == ("unknown", "")
    assert "nan" not in plain(sweep_text(alone, 100))


def test_a_ray_cluster_changes_nothing(sweep):
    pytest.importorskip("ray", reason="needs the extra ray")
    # Ray's own threads and sockets are still closing when it is shut down.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert swept(partial(posed, REQUEST), axes_of(VARIED), jobs=2, on_ray=True) == sweep


def test_without_ray_the_way_to_it_is_told(capsys, monkeypatch):
    monkeypatch.setattr("ziplan.study.sweep_ray.find_spec", lambda name: None)
    ran = ziplan(capsys, *COMMAND, *flags(*VARIED), "--on", "ray")
    assert (ran.code, ran.out) == (2, "")
    assert "pip install 'ziplan[ray]'" in ran.err


def test_a_cluster_that_is_not_there_is_no_traceback(capsys, monkeypatch):
    pytest.importorskip("ray", reason="needs the extra ray")
    monkeypatch.setenv("RAY_ADDRESS", "no-such-scheme://nowhere")
    ran = ziplan(capsys, *COMMAND, *flags(*VARIED), "--on", "ray")
    assert (ran.code, ran.out) == (2, "")
    assert "Ray cannot be reached" in ran.err
    assert "Traceback" not in ran.err


def test_workers_of_another_version_are_refused(monkeypatch):
    from ziplan.study import sweep_ray

    class Ray:
        exceptions = types.SimpleNamespace(RayTaskError=KeyError, RayError=OSError)

        def remote(self, **_):
            return lambda work: types.SimpleNamespace(remote=lambda *_: ("0.0.1", []))

        def get(self, pending):
            return pending

        def shutdown(self):
            pass

    monkeypatch.setattr(sweep_ray, "_begun", lambda workers: Ray())
    with pytest.raises(BadInput, match=r"worker has ziplan 0\.0\.1"):
        swept(partial(posed, REQUEST), axes_of(VARIED), on_ray=True)


def test_where_the_answer_goes_is_looked_at_before_the_points_are_solved(capsys, monkeypatch, tmp_path):
    def unasked(*_):
        raise AssertionError("solved before the output was looked at")

    monkeypatch.setattr("ziplan.study.sweep.solve_point", unasked)
    file = tmp_path / "a file"
    file.write_text("")
    for output in ("/proc/x", tmp_path, file / "below"):
        ran = ziplan(capsys, *COMMAND, *flags(*VARIED), "--jobs", "1", "-o", output)
        assert (ran.code, ran.out) == (2, "")
        assert "folder" in ran.err or "cannot be written" in ran.err
    assert [each.name for each in tmp_path.iterdir()] == ["a file"]


def test_an_early_interrupt_claims_nothing(capsys, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ziplan.study.sweep.solve_point", stopped)
    ran = ziplan(capsys, *COMMAND, *flags(*VARIED), "--jobs", "1")
    assert ran.code == 130
    assert "no point was solved" in ran.out
    assert "no point fits" not in ran.out


@pytest.mark.parametrize(
    ("command", "options", "blamed"),
    [
        (
            "sweep",
            ("--vary", "nodes=1", "--set", "tiers.dram.capacity=0 B"),
            "--set tiers.dram.capacity: ZP011",
        ),
        ("sweep", ("--vary", "nodes=0"), "--vary nodes: ZP010"),
        ("sweep", ("--vary", "training.bogus=1"), "--vary training.bogus: ZP012 unknown key `bogus`"),
        (
            "sweep",
            ("--vary", "training.optimizer.kind=foo"),
            "--vary training.optimizer.kind: ZP010 expected",
        ),
        ("sweep", ("--vary", "training.sequence_length=[1"), "--vary training.sequence_length: ZP002"),
        ("sweep", ("--vary", "nodes=1", "--lora-rank", "8", "--lora-targets", "foo"), "--lora-targets"),
        ("compare", ("--set", "tiers.dram.capacity=0 B"), "--set tiers.dram.capacity: ZP011"),
        ("compare", ("--with", "nodes=0"), "--with nodes: ZP010"),
        ("compare", ("--with", "training.precision=fp8"), "--with training.precision: ZP010 expected"),
    ],
)
def test_what_is_wrong_is_said_of_the_option_that_it_was_given_with(capsys, command, options, blamed):
    ran = ziplan(capsys, command, "llama-2-7b", "dgx-a100-80g", "--sequence-length", "1024", *options)
    assert ran.code == 2
    assert blamed in ran.err
    assert {line.split()[0] for line in ran.err.splitlines() if line.startswith("--")} <= {blamed.split()[0]}
