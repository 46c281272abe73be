"""What a record comes to: its verdict, where it dies, its peaks and rates, and what is said of a miss."""

import json

import pytest
from cli.runs import ziplan
from study.runs import write

from ziplan.report.validate_json import validate_document
from ziplan.report.validate_page import fidelity_page
from ziplan.report.validate_text import validate_text
from ziplan.report.validation import Place
from ziplan.study.validate import validation


def test_a_run_dies_in_the_first_phase_that_lacks_memory(tmp_path):
    end = {"measured": {"outcome": "oom"}, "plan.placement": {"params": "dram", "optimizer": "dram"}}
    host = {"cluster.with": {"tiers.dram.capacity": "64 GB"}}
    gpu = {"plan.micro_batch_size": 512, "plan.activation_checkpointing": "none"}
    by_host, by_gpu = validation([write(tmp_path, end | host, end | gpu)]).runs
    assert by_host.shortage.tier == "dram"
    assert by_host.shortage.phase in ("load", "init")
    assert by_gpu.shortage == Place("hbm", "forward")


UNMEASURED_DISK = """\
extends: lambda-8x-a100-40g
name: Mine
tiers:
  nvme:
    medium: nvme
    scope: node
    capacity: {value: 2948 GiB, kind: datasheet, source: "https://example.org"}
    via: [host]
"""


def test_whether_it_fits_needs_no_rates(tmp_path):
    """Nobody states how fast this machine's disk is; its capacities are known."""
    (tmp_path / "mine.yaml").write_text(UNMEASURED_DISK)
    there = {"cluster.machine": "mine.yaml", "plan.placement": {"optimizer": "nvme"}}
    answer = validation([write(tmp_path, there | {"measured": {"outcome": "fits"}}, there)])
    (judged,) = answer.runs
    assert (judged.predicted, judged.verdict, judged.hit) == (None, "fits", True)
    assert [each.id for each in answer.unpredicted] == ["run-1"]
    assert "tiers.nvme.read_bandwidth" in answer.unpredicted[0].reason
    json.dumps(validate_document(answer), allow_nan=False)
    assert "fits" in "".join(span.text for line in validate_text(answer, 100) for span in line)
    assert "run-0" in fidelity_page(answer)


def test_training_settings_reach_the_prediction(tmp_path):
    adapters = {"training.trainable": {"lora_rank": 8, "targets": ["q_proj", "v_proj"]}}
    loading = {"training.loading": {"dtype": "fp32", "copies": "every_rank"}, "plan.zero_stage": 2}
    peaks = {"measured": {"peak_bytes": {"hbm": 1e9, "dram": 1e9}}}
    below = {"plan.zero_stage": 2}
    full, lora, stated, open_ = (
        {peak.tier: (peak.low, peak.high) for peak in each.peaks}
        for each in validation(
            [write(tmp_path, peaks, peaks | adapters, peaks | loading, peaks | below)]
        ).runs
    )
    assert lora["hbm"][1] < full["hbm"][0]
    assert stated["dram"][0] > open_["dram"][0]


def test_measured_peaks_stand_beside_the_interval(tmp_path):
    peaks = [
        {"peak_bytes": {"hbm": 28e9}},
        {"peak_bytes": {"hbm": 70e9}},
        {"peak_bytes": {"dram": 1e9}, "phase": "load"},
    ]
    inside, above, below = (
        each.peaks[0] for each in validation([write(tmp_path, *({"measured": peak} for peak in peaks))]).runs
    )
    assert inside.inside
    assert not above.inside
    assert above.measured > above.high > above.low
    assert below.tier == "dram"
    assert not below.inside


def test_every_rate_means_the_same_step(tmp_path):
    (timed,) = validation([write(tmp_path, {"measured": {"step_time_s": 2.0}})]).runs
    tokens = 8 * 4096 / 2.0
    rates = [{"tokens_per_s": tokens}, {"tokens_per_s_per_gpu": tokens / 8}]
    same = validation([write(tmp_path, *({"measured": rate} for rate in rates))])
    assert [each.measured for each in same.runs] == pytest.approx([timed.measured] * 2)


def test_conventions_differ_by_what_is_recomputed(tmp_path):
    measured = [{"flops_per_s_per_gpu": 1e14, "convention": name} for name in ("hardware", "model")]
    hardware, model = validation([write(tmp_path, *({"measured": each} for each in measured))]).runs
    params = 8_030_261_248
    assert model.measured == pytest.approx(6 * params * 4096 / 1e14)
    assert hardware.measured / model.measured == pytest.approx(8 / 6, rel=0.1)


def test_an_injected_wrong_measurement_shows_as_a_miss(tmp_path, capsys):
    (right,) = validation([write(tmp_path, {})]).runs
    wrong = {"measured": {"step_time_s": 10 * right.predicted}}
    path = write(
        tmp_path, {"measured": {"step_time_s": right.predicted}}, wrong, {"measured": {"outcome": "oom"}}
    )
    document = json.loads(ziplan(capsys, "validate", path, "--json").out)
    errors = {each["id"]: each["error"] for each in document["records"]}
    assert errors == {"run-0": pytest.approx(0), "run-1": pytest.approx(-0.9), "run-2": None}
    assert document["scores"][0]["worst"]["id"] == "run-1"
    assert right.verdict == "fits"
    assert document["outcomes"]["missed"] == ["run-2"]
    said = ziplan(capsys, "validate", path).out
    assert "-90%" in said
    assert "wrong: run-2" in said


def test_what_a_runtime_refuses_is_listed_with_the_reason(tmp_path, capsys):
    said = ziplan(capsys, "validate", write(tmp_path, {"plan.tp_degree": 2})).out
    assert "run-0: tensor and pipeline parallelism" in said


def test_pytorch_alone_is_not_predicted_with_what_is_zeros(tmp_path, capsys):
    said = ziplan(capsys, "validate", write(tmp_path, {"runtime": {"version": "PyTorch"}})).out
    assert "run-0: PyTorch alone divides no states" in said


def test_validate_takes_a_machine_beside_the_file(tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: dgx-a100-80g\ngpus_per_node: 4\nname: Mine\n")
    (four,) = validation([write(tmp_path, {"cluster.machine": "mine.yaml"})]).runs
    (eight,) = validation([write(tmp_path, {})]).runs
    assert four.predicted != eight.predicted
