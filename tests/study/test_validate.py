"""Predictions against measurements: the arithmetic, the shipped records, the generated files."""

import importlib.util
import json
from collections import Counter
from pathlib import Path

import jsonschema
import pytest
from cli.runs import ziplan

from ziplan.estimate import fidelity, residuals
from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Placement, Plan
from ziplan.report.schemas import DOCUMENTS
from ziplan.report.validate_json import validate_document
from ziplan.report.validate_page import fidelity_page
from ziplan.report.validation import Place, Run, Unpredicted, Validation
from ziplan.study.records import load_runs, shipped_files
from ziplan.study.residuals import residuals_module
from ziplan.study.validate import scores, validation

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shipped():
    return validation()


def run(number, predicted, measured, **changes):
    values = {
        "id": f"run-{number}",
        "source": "A test",
        "url": "https://example.org",
        "locator": "",
        "published": "",
        "runtime": "deepspeed",
        "kind": "nothing offloaded",
        "quality": "exact",
        "calibration": False,
        "predicted": predicted,
        "measured": measured,
        "terms": {"compute": 0.75 * predicted, "gather": 0.25 * predicted},
        "verdict": "fits",
        "outcome": "fits",
    }
    return Run(**(values | changes))


def test_every_shipped_record_is_predicted_or_says_why_not(shipped):
    answered = [each.id for each in (*shipped.runs, *shipped.unpredicted)]
    assert sorted(answered) == sorted(each.entry.id for each in load_runs(shipped_files()))
    assert all(each.reason for each in shipped.unpredicted)
    for each in shipped.runs:
        assert each.predicted is not None
        assert each.predicted > 0
        assert sum(each.terms.values()) == pytest.approx(each.predicted)


def test_the_set_is_as_broad_as_it_claims(shipped):
    counts = Counter[str]()
    for score in shipped.scores:
        counts[score.kind] += score.count
    assert set(counts) == {
        fidelity.ON_GPU, fidelity.OPTIMIZER_ON_HOST, fidelity.PARAMS_ON_HOST, fidelity.NVME
    }  # fmt: skip
    assert min(counts.values()) >= fidelity.FEWEST_RUNS
    assert sum(run.measured is None for run in shipped.runs) >= 4
    assert {run.outcome for run in shipped.runs} == {"fits", "oom"}


def test_calibration_is_shown_and_not_scored(shipped):
    calibration = {run.id for run in shipped.runs if run.calibration}
    assert calibration == {
        "llm-foundry-7b-8a100-80g-2048x6",
        "llm-foundry-7b-8a100-80g-65536x1",
        "qwen-7b-full-2xa100-256",
        "fms-fsdp-7b-96h100",
        "mlp-offload-base-40b-4h100",
        *(run.id for run in shipped.runs if run.id.startswith("smart-infinity-base-gpt2-")),
    }
    assert sum(score.count for score in shipped.scores) == sum(run.scored for run in shipped.runs)
    assert not scores([run(0, 1.0, 2.0, calibration=True)])
    # Rates of products and of attention are what is left of these two, so nothing is left over.
    for each in shipped.runs:
        if each.id.startswith("llm-foundry-7b-8a100-80g") and each.calibration:
            assert each.predicted == pytest.approx(each.measured, rel=1e-3)


def test_scores_are_what_the_errors_say():
    (score,) = scores([run(0, 1.1, 1.0), run(1, 0.8, 1.0), run(2, 1.5, 1.0), run(3, 1.0, None)])
    assert score.count == 3
    assert score.median_error == pytest.approx(0.2)
    assert score.p90_error == pytest.approx(0.2 + 0.8 * 0.3)
    assert score.bias == pytest.approx((0.1 - 0.2 + 0.5) / 3)
    assert (score.worst, score.worst_error) == ("run-2", pytest.approx(0.5))
    assert (score.low, score.high) == (pytest.approx(1 / 1.5), pytest.approx(1 / 0.8))


def test_many_runs_leave_out_the_tenths():
    many = [run(number, 1.0, 1.0 + number) for number in range(11)]
    (score,) = scores(many)
    assert (score.low, score.high) == (pytest.approx(2.0), pytest.approx(10.0))


def test_scored_runs_of_a_page_that_a_parameter_is_from_are_counted_apart():
    page = {"url": "https://example.org/rates"}
    mixed = [
        run(0, 1.0, 1.0, calibration=True, **page),
        run(1, 1.1, 1.0, **page),
        run(2, 1.5, 1.0),
        run(3, 1.3, 1.0),
    ]
    (score,) = scores(mixed)
    assert (score.count, score.own_source) == (3, 1)
    assert score.elsewhere == pytest.approx((0.4, 0.48, 0.4))
    (score,) = scores(mixed[:2])
    assert (score.own_source, score.elsewhere) == (1, None)
    page = fidelity_page(Validation(mixed, scores(mixed)))
    assert "| deepspeed | nothing offloaded | 1 | 2 | 40% | 48% | +40% |" in page
    assert "such pages" not in fidelity_page(Validation(mixed[1:], scores(mixed[1:])))


def test_pages_that_no_rate_of_fsdp_is_from_are_scored_too(shipped):
    """Most runs are of pages with such a rate, which is said wherever their interval is."""
    (score,) = (each for each in shipped.scores if (each.runtime, each.kind) == ("fsdp", fidelity.ON_GPU))
    assert 0 < score.own_source < score.count
    assert score.elsewhere is not None
    _, _, said, _ = fidelity.residuals("fsdp", load_cluster("dgx-a100-80g"), _plan())
    assert f", {score.own_source} of pages that a rate or a time was taken from too" in said


def test_an_engine_that_no_release_is_makes_no_interval(shipped):
    engine = [run(0, 1.0, 3.0, released=False), run(1, 1.0, 1.0), run(2, 1.0, 2.0)]
    (score,) = scores(engine)
    assert (score.count, score.high) == (3, 3.0)
    assert score.interval == (2, 1.0, 2.0)
    (score,) = scores(engine[:1])
    assert score.interval is None
    assert '"nothing offloaded"' not in residuals_module([score])
    assert "-67%, run-0 | none |" in fidelity_page(Validation(engine[:1], [score]))
    of_papers = {each.id for each in shipped.runs if not each.released}
    assert of_papers
    assert all(name.startswith("zero-infinity-") for name in of_papers)
    (score,) = (each for each in shipped.scores if (each.runtime, each.kind) == ("deepspeed", fidelity.NVME))
    assert score.interval is not None
    assert score.interval == pytest.approx(residuals.RESIDUALS["deepspeed"][fidelity.NVME], abs=0.01)
    assert 0 < score.interval[0] < score.count


def test_a_kind_that_no_run_is_of_is_not_known_better_than_a_factor_of_two(monkeypatch):
    monkeypatch.setattr(fidelity, "RESIDUALS", {"fsdp": {fidelity.ON_GPU: (75, 0.9, 1.1)}})
    low, high, said, _ = fidelity.residuals("fsdp", load_cluster("dgx-2"), _plan(params="dram"))
    assert (low, high) == fidelity.UNCHECKED
    assert "so a factor of two at the least" in said


def test_kinds_and_runtimes_are_scored_apart():
    mixed = [run(0, 1.0, 1.0), run(1, 1.0, 1.0, kind="NVMe"), run(2, 1.0, 1.0, runtime="ideal")]
    assert [(score.runtime, score.kind) for score in scores(mixed)] == [
        ("deepspeed", "nothing offloaded"), ("deepspeed", "NVMe"), ("ideal", "nothing offloaded")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("verdict", "outcome", "hit"),
    [
        ("fits", "fits", True),
        ("fits", "oom", False),
        ("does_not_fit", "oom", True),
        ("does_not_fit", "fits", False),
        ("tight", "fits", None),
        ("unknown", "oom", None),
    ],
)
def test_verdicts_are_judged(verdict, outcome, hit):
    assert run(0, 1.0, 1.0, verdict=verdict, outcome=outcome).hit is hit


def ended(verdict, shortage, tier=None, phases=(), outcome="oom", number=0):
    places = {"tier": tier, "phases": phases, "shortage": Place(*shortage) if shortage else None}
    return run(number, 1.0, None, verdict=verdict, outcome=outcome, **places)


@pytest.mark.parametrize(
    ("each", "same"),
    [
        (ended("does_not_fit", ("hbm", "init"), "hbm", ("init",)), (True, True)),
        (ended("does_not_fit", ("hbm", "init"), "hbm", ("forward", "backward")), (True, False)),
        (ended("does_not_fit", ("hbm", "backward"), "dram", ("forward", "backward")), (False, True)),
        (ended("does_not_fit", ("hbm", "init")), (None, None)),
        (ended("tight", ("hbm", "init"), "hbm", ("init",)), (None, None)),
        (ended("fits", None, "hbm", ("init",)), (None, None)),
        (ended("does_not_fit", ("hbm", "init"), outcome="fits"), (None, None)),
    ],
)
def test_places_are_judged_of_hits_alone(each, same):
    assert (each.same_tier, each.same_phase) == same


def test_endings_are_counted_apart():
    runs = [
        ended("does_not_fit", ("hbm", "init"), "hbm", ("init",)),
        ended("does_not_fit", ("dram", "init"), "hbm", ("step",)),
        ended("tight", ("hbm", "init"), "hbm"),
        ended("fits", None, "dram"),
        ended("fits", None, outcome="fits"),
        run(1, 1.0, 1.0),
    ]
    omitted = [
        Unpredicted("a", "", "", "", "4-bit weights", "oom", "hbm"),
        Unpredicted("b", "", "", "", "hung", "hang"),
    ]
    tallies = {tally.ending: tally for tally in Validation(runs, (), omitted).tallies()}
    ran, gpu, host = (tallies[name] for name in ("ran", "out of GPU memory", "out of host memory"))
    assert [len(each.runs) for each in (ran, gpu, host)] == [2, 3, 1]
    assert [gpu.judged(hit) for hit in (True, False, None)] == [2, 0, 1]
    assert [ran.judged(True), host.judged(False)] == [2, 1]
    assert (gpu.tiers, gpu.phases, gpu.unpredicted) == ((1, 2), (1, 2), 1)
    assert tallies["hung"].unpredicted == 1
    assert len(tallies) == 4


def test_reasons_are_counted():
    omitted = [Unpredicted(name, "", "", "", why, "fits") for name, why in zip("abcd", "xxyz", strict=True)]
    rows = fidelity_page(Validation([], (), omitted)).split("## Not predicted")[1].splitlines()
    assert [row for row in rows if row.endswith(("| 1 |", "| 2 |"))] == [
        "| x | 2 |",
        "| a reason of its own | 2 |",
    ]


@pytest.mark.slow
def test_the_command_answers_within_a_hundred_columns(capsys):
    ran = ziplan(capsys, "validate")
    assert ran.code == 0
    assert max(len(text) for text in ran.out.splitlines()) <= 100
    document = json.loads(ziplan(capsys, "validate", "--json").out)
    jsonschema.validate(document, DOCUMENTS["validate"])
    assert ziplan(capsys, "validate", "missing.yaml").code == 2


def test_the_document_is_plain_json(shipped):
    text = json.dumps(validate_document(shipped), allow_nan=False)
    jsonschema.validate(json.loads(text), DOCUMENTS["validate"])


def _pages():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PAGES


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fidelity.md", "../ziplan/estimate/residuals.py"])
def test_generated_files_are_fresh(name):
    stale = f"docs/{name} is stale: run `make docs`"
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == _pages()[name](), stale


def _plan(**homes):
    places = {"params": "hbm", "grads": "hbm", "optimizer": "hbm", "checkpoints": "hbm"} | homes
    return Plan(dp_degree=16.0, placement=Placement(**{kind: {tier: 1.0} for kind, tier in places.items()}))


@pytest.mark.parametrize(
    ("homes", "kind"),
    [
        ({}, fidelity.ON_GPU),
        ({"checkpoints": "dram"}, fidelity.ON_GPU),
        ({"optimizer": "dram", "grads": "dram"}, fidelity.OPTIMIZER_ON_HOST),
        ({"params": "dram", "optimizer": "dram"}, fidelity.PARAMS_ON_HOST),
        ({"params": "dram", "optimizer": "nvme"}, fidelity.NVME),
        ({"grads": "nvme"}, fidelity.NVME),
    ],
)
def test_kinds_of_runs(homes, kind):
    assert fidelity.kind_of(load_cluster("dgx-2"), _plan(**homes)) == kind


def test_residuals_are_those_of_the_kind(monkeypatch):
    cluster = load_cluster("dgx-2")
    known = {"deepspeed": {fidelity.ON_GPU: (12, 0.9, 2.0), fidelity.NVME: (3, 0.95, 1.05)}}
    monkeypatch.setattr(fidelity, "RESIDUALS", known)
    low, high, said, _ = fidelity.residuals("deepspeed", cluster, _plan())
    assert (low, high) == (1 / fidelity.NARROWEST, 2.0)
    assert said.startswith(
        "8 of 10 among 12 published runs of this kind (nothing offloaded) took 0.90 to 2.00"
    )
    low, high, said, _ = fidelity.residuals("deepspeed", cluster, _plan(params="nvme"))
    assert (low, high) == (1 / fidelity.NARROWEST, fidelity.NARROWEST)
    assert said.startswith("3 published runs")


def test_a_kind_with_too_few_runs_takes_those_of_the_runtime(monkeypatch):
    cluster = load_cluster("dgx-2")
    known = {"deepspeed": {fidelity.ON_GPU: (12, 0.9, 2.0), fidelity.NVME: (1, 0.5, 0.5)}}
    monkeypatch.setattr(fidelity, "RESIDUALS", known)
    low, high, said, _ = fidelity.residuals("deepspeed", cluster, _plan(params="nvme"))
    assert (low, high) == (0.5, 2.0)
    assert "13 published runs of deepspeed" in said
    assert "too few of this kind (NVMe)" in said
    assert fidelity.residuals("ideal", cluster, _plan())[:2] == fidelity.UNCHECKED


def test_stored_residuals_are_intervals():
    for kinds in residuals.RESIDUALS.values():
        for count, low, high in kinds.values():
            assert count > 0
            assert 0 < low <= high
