"""Targets: what is beyond one is said, by how much, and why."""

import pytest

from ziplan.estimate import fidelity
from ziplan.report.validation import Peak, Run, Score, Validation
from ziplan.study.targets import BIAS, MEDIAN, P90, UNKNOWN, WHY, targets_section
from ziplan.study.validate import validation


def score(**figures):
    values = {"median_error": 0.05, "p90_error": 0.2, "bias": 0.01} | figures
    return Score(
        "deepspeed", fidelity.ON_GPU, 20, **values, worst="run", worst_error=0.5, low=0.9, high=1.1
    )  # fmt: skip


def row(one):
    (line,) = [line for line in targets_section(Validation([], [one])).splitlines() if one.kind in line]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_what_is_within_its_targets_needs_no_reason():
    assert row(score())[3:] == ["5.0%", "20.0%", "1.0%", ""]


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"median_error": MEDIAN + 0.02}, "12.0% (by 2.0%)"),
        ({"p90_error": P90 + 0.25}, "50.0% (by 25.0%)"),
        ({"bias": -BIAS - 0.04}, "-7.0% (by 4.0%)"),
    ],
)
def test_what_is_beyond_is_told_with_the_reason(figures, said):
    cells = row(score(**figures))
    assert said in cells
    assert cells[-1] == WHY["deepspeed", fidelity.ON_GPU]


def test_every_kind_that_misses_a_target_has_a_reason():
    assert UNKNOWN not in targets_section(validation())


def test_verdicts_and_peaks_are_counted():
    def run(number, verdict, outcome):
        peaks = [Peak("hbm", 10.0, 8.0, 16.0)]
        return Run(
            f"run-{number}", "", "", "", "", "deepspeed", fidelity.ON_GPU, "exact", False, None, None, {},
            verdict, outcome, peaks=peaks,
        )  # fmt: skip

    runs = [run(0, "fits", "fits"), run(1, "fits", "oom"), run(2, "tight", "fits")]
    told = targets_section(Validation(runs, []))
    assert "50.0% (by 45.0%) of 2 verdicts right" in told
    assert "1 more abstained" in told
    assert "20.0% (by 10.0%) off at the median of 3 peaks" in told
