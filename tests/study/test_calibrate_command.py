"""`ziplan calibrate` and `--calibration`: from logs to a file, and what the commands make of it."""

import json
import re

import jsonschema
import pytest
import yaml
from cli.runs import ziplan
from study.calibrated import MODEL, SEQUENCE, config, log_of, subject
from study.runs import write

from ziplan.cli.schema import schema_text
from ziplan.errors import BadInput
from ziplan.hardware.calibration import calibrated, load_calibration
from ziplan.hardware.profiles import load_cluster
from ziplan.study.calibrate.predicted import predicted
from ziplan.study.calibrate.runs import run_of_record
from ziplan.study.records import load_records, shipped_files
from ziplan.study.validate import validation
from ziplan.units import show_duration

MACHINE = "dgx-a100-80g"
TRUTH = [("gpu.sustained_flops_per_s.bf16", "120 TFLOP/s"), ("cpu.adam_params_per_s", "1.1 Gparam/s")]
ASKED = (MODEL, MACHINE, "--sequence-length", str(SEQUENCE), "--checkpointing", "full")


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    offloads = {"hbm": {}, "cpu": {"offload_optimizer": {"device": "cpu"}, "sub_group_size": 100_000_000}}
    for name, sections in offloads.items():
        truth = subject(optimizer="hbm" if name == "hbm" else "dram", settings=TRUTH)
        (folder / f"{name}.log").write_text("\n".join(log_of(truth)))
        (folder / f"{name}.json").write_text(config(**sections))
    return folder


@pytest.fixture(scope="module")
def file(logs):
    """The calibration of both runs."""
    from ziplan.cli.main import run

    both = [str(logs / f"{name}.log") for name in ("hbm", "cpu")]
    configs = [word for name in ("hbm", "cpu") for word in ("--config", str(logs / f"{name}.json"))]
    path = logs / "calibration.yaml"
    assert run(["calibrate", *both, *ASKED, *configs, "-o", str(path), "--json"]) == 0
    return path


def test_the_file_has_what_the_runs_were_made_with(file):
    data = yaml.safe_load(file.read_text())
    values = {name: each["value"] for name, each in data["values"].items()}
    rate, updates = values["gpu.sustained_flops_per_s.bf16"], values["cpu.adam_params_per_s"]
    assert float(rate.removesuffix(" TFLOP/s")) == pytest.approx(120, rel=0.01)
    assert float(updates.removesuffix(" Gparam/s")) == pytest.approx(1.1, rel=0.01)
    assert set(data["not_identified"]) == {"swap limit", "overlap"}
    assert data["runs"]["cpu.log"]["steps"] == 6
    jsonschema.validate(data, json.loads(schema_text("calibration.yaml")))


def test_the_answer_names_runs_errors_and_what_is_missing(logs, capsys):
    answer = ziplan(capsys, "calibrate", str(logs / "cpu.log"), *ASKED, "--config", str(logs / "cpu.json"))
    assert answer.code == 0
    for words in (
        "cpu.adam_params_per_s",
        "optimizer step",
        "swap limit: not shown",
        "swaps nothing",
        "one run:",
    ):
        assert words in answer.out
    assert max(map(len, answer.out.splitlines())) <= 100


def test_commands_take_it_and_say_so(file, capsys):
    asked = ("fit", MODEL, MACHINE, "--sequence-length", "2048", "--json")
    plain, told = (
        json.loads(ziplan(capsys, *asked, *more).out) for more in ((), ("--calibration", str(file)))
    )
    assert told["estimate"]["step_time_s"] > 1.3 * plain["estimate"]["step_time_s"]
    (rate,) = [each for each in told["assumptions"] if each["name"] == "gpu.sustained_flops_per_s.bf16"]
    assert rate["kind"] == "calibrated"
    assert f"calibrated from {file}" in rate["source"]
    assert f"calibrated from {file}" in told["estimate"]["interval_source"]
    assert "calibrated" in ziplan(capsys, *asked[:-1], "--calibration", str(file)).out


@pytest.mark.parametrize(
    "command",
    [
        ("limits", MODEL, MACHINE),
        ("simulate", MODEL, MACHINE),
        ("compare", MODEL, MACHINE, MACHINE),
        ("sweep", MODEL, MACHINE, "--vary", "nodes=1,2"),
    ],
)
def test_every_planning_command_is_slower_with_a_slow_machine(file, capsys, command):
    asked = (*command, "--sequence-length", "2048", "--json")
    plain, told = (ziplan(capsys, *asked, *more) for more in ((), ("--calibration", str(file))))
    assert plain.code == told.code == 0
    assert plain.out != told.out


def test_check_takes_it(logs, file, capsys):
    asked = ("check", str(logs / "cpu.json"), *ASKED, "--json")
    plain, told = (
        json.loads(ziplan(capsys, *asked, *more).out) for more in ((), ("--calibration", str(file)))
    )
    measured = yaml.safe_load(file.read_text())["runs"]["cpu.log"]["phases"]["whole step"]["measured_s"]
    assert told["estimate"]["step_time_s"] == pytest.approx(measured, rel=0.01)
    assert plain["estimate"]["step_time_s"] < 0.6 * measured


def test_a_set_on_the_command_line_is_the_last_word(file):
    cluster = load_cluster(MACHINE, [("cpu.adam_params_per_s", "7 Gparam/s")])
    assert calibrated(cluster, load_calibration(file)).node.cpu.adam_params_per_s == 7e9
    assert calibrated(load_cluster(MACHINE), load_calibration(file)).node.cpu.adam_params_per_s < 2e9


def test_another_machine_is_left_as_it_is_and_said(file):
    other = load_cluster("dgx-h100")
    taken = calibrated(other, load_calibration(file))
    assert taken.node == other.node
    assert taken.calibrated is None
    assert "DGX A100 80GB" in taken.warnings[-1]


def test_residuals_of_another_runtime_are_left_out_and_that_is_said(file, capsys):
    asked = ("fit", MODEL, MACHINE, "--sequence-length", str(SEQUENCE), "--calibration", str(file))
    other = ziplan(capsys, *asked, "--runtime", "fsdp")
    assert "is of runs under deepspeed: its overlap and residuals are not taken for fsdp" in other.err
    assert "under deepspeed" not in ziplan(capsys, *asked).err


@pytest.mark.parametrize(
    ("key", "nodes", "said"),
    [
        ("overlap", 2, "has the overlap of runs on one node: it is not taken for ranks on several"),
        ("overlap_between_nodes", 1, "has the overlap of runs on several nodes: it is not taken for one"),
        ("overlap", 1, ""),
        ("overlap_between_nodes", 2, ""),
    ],
)
def test_an_overlap_is_taken_where_it_was_measured_alone(tmp_path, capsys, key, nodes, said):
    names = load_cluster(MACHINE).node
    made = {"machine": names.name, "gpu": names.gpu.name, key: {"value": 0.2, "low": 0.2, "high": 0.2}}
    made[key]["runs"] = ["a"]
    (tmp_path / "calibration.yaml").write_text(json.dumps(GOOD | made))
    asked = ("fit", MODEL, f"{nodes}x {MACHINE}", "--sequence-length", str(SEQUENCE), "--json")
    plain = json.loads(ziplan(capsys, *asked).out)
    ran = ziplan(capsys, *asked, "--calibration", str(tmp_path / "calibration.yaml"))
    answer = json.loads(ran.out)
    taken = [each for each in answer["assumptions"] if each["name"] == "overlap"]
    if said:
        assert said in ran.err
        assert any(said in note for note in answer["notes"])
        assert not taken
        assert answer["estimate"]["terms_s"] == plain["estimate"]["terms_s"]
    else:
        assert "has the overlap of runs" not in ran.err
        where = "one node" if nodes == 1 else "several nodes"
        assert taken[0]["source"].endswith(f"runs on {where}")


def test_records_of_measured_runs_serve_as_they_are(tmp_path, capsys):
    path = write(tmp_path, {}, {"measured.step_time_s": 3.1})
    answer = ziplan(capsys, "calibrate", str(path), "--json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert set(found["runs"]) == {"run-0", "run-1"}
    assert all(run["from_others_s"] for run in found["runs"].values())
    assert ziplan(capsys, "calibrate", str(path), "--config", "x.json").code == 2


def test_records_that_tell_no_time_are_left_out_and_told(tmp_path, capsys):
    untimed = {"measured.step_time_s": None, "measured.outcome": "fits"}
    answer = ziplan(capsys, "calibrate", str(write(tmp_path, {}, untimed)), "--json")
    assert answer.code == 0
    assert set(json.loads(answer.out)["runs"]) == {"run-0"}
    assert "left out: run-1: measured: no time" in answer.err
    alone = ziplan(capsys, "calibrate", str(write(tmp_path, untimed, name="none.yaml")))
    assert alone.code == 2
    assert "none.yaml" in alone.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{log}",), "runs, a model and a cluster are needed"),
        (("{log}", *ASKED), "--config is missing"),
        (("{folder}/none.log", *ASKED, "--config", "{config}"), "no such file"),
        (("{config}", *ASKED, "--config", "{config}"), "trainer_state"),
        (("{log}", *ASKED[:4], "--config", "{config}"), "recomputed activations is not stated"),
        (("{log}", *ASKED, "--config", "{config}", "--config", "{config}"), "2 of --config for 1 logs"),
        (("{log}", "{log}", *ASKED, "--config", "{config}"), "given twice"),
        (("{log}", MODEL, "nowhere", "--config", "{config}"), "no machine is called"),
        (("",), "empty"),
    ],
)
def test_what_cannot_be_calibrated_is_told(logs, capsys, words, said):
    places = {"log": logs / "cpu.log", "config": logs / "cpu.json", "folder": logs}
    answer = ziplan(capsys, "calibrate", *(word.format(**places) for word in words))
    assert answer.code == 2
    assert said in answer.err
    assert "Traceback" not in answer.err


GOOD = {"schema": "ziplan.calibration/1", "machine": "m", "gpu": "g", "runtime": "deepspeed"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema": "ziplan.calibration/2"}, "schema"),
        ({"machine": None}, "machine"),
        ({"speed": 3}, "unknown key `speed`"),
        (
            {"values": {"cpu.adam": {"value": "1 Gparam/s", "runs": ["a"]}}},
            "unknown key `cpu.adam` in values",
        ),
        ({"values": {"swap_limit": {"value": "5 GB", "runs": ["a"]}}}, "expected 'B/s'"),
        ({"values": {"swap_limit": {"value": "0 GB/s", "runs": ["a"]}}}, "greater than 0"),
        ({"values": {"swap_limit": {"value": "5 GB/s", "runs": []}}}, "runs"),
        ({"overlap": {"value": 1.5, "low": 0, "high": 1, "runs": ["a"]}}, "at most 1"),
        ({"residuals": {"NVMe": {"runs": 0, "low": 1, "high": 1}}}, "at least 1"),
        ({"residuals": {"NVMe": {"runs": 2, "low": 1.5, "high": 0.5}}}, "low is more than high"),
        ({"residuals": {"NVMe": {"runs": 2, "low": 1, "high": 1e30}}}, "at most 100"),
        ({"overlap": {"value": 0.2, "low": 0.5, "high": 1, "runs": ["a"]}}, "not between low and high"),
    ],
)
def test_a_file_that_is_wrong_is_told_by_line(tmp_path, changes, said):
    path = tmp_path / "calibration.yaml"
    path.write_text(json.dumps(GOOD | changes, indent=1))
    with pytest.raises(BadInput) as raised:
        load_calibration(path)
    assert said in str(raised.value)
    assert all(problem.line for problem in raised.value.problems)


def test_a_rate_above_the_peak_is_refused_where_it_is_taken(tmp_path):
    path = tmp_path / "calibration.yaml"
    cluster = load_cluster(MACHINE)
    values = {"gpu.sustained_flops_per_s.bf16": {"value": "400 TFLOP/s", "runs": ["a"]}}
    names = {"machine": cluster.node.name, "gpu": cluster.node.gpu.name}
    path.write_text(json.dumps(GOOD | names | {"values": values}, indent=1))
    with pytest.raises(BadInput, match="more than the peak") as raised:
        calibrated(cluster, load_calibration(path))
    assert raised.value.problems[0].file == str(path)


def test_a_run_that_is_still_far_off_is_asked_about(logs, capsys):
    asked = (MODEL, MACHINE, "--sequence-length", "64", "--checkpointing", "none")
    answer = ziplan(capsys, "calibrate", str(logs / "cpu.log"), *asked, "--config", str(logs / "cpu.json"))
    assert answer.code == 0
    assert "is it a run of this model" in answer.out


@pytest.mark.parametrize("times", [1e6, 1e-6])
def test_a_log_of_another_unit_is_refused(logs, tmp_path, capsys, times):
    lines = re.sub(
        r"(fwd|bwd\w*|step): ([0-9.]+)",
        lambda found: f"{found[1]}: {float(found[2]) * times:.6f}",
        (logs / "cpu.log").read_text(),
    )
    (tmp_path / "us.log").write_text(lines)
    asked = (MODEL, MACHINE, "--sequence-length", "2048", "--checkpointing", "full")
    config = ("--config", str(logs / "cpu.json"), "-o", str(tmp_path / "out.yaml"))
    answer = ziplan(capsys, "calibrate", str(tmp_path / "us.log"), *asked, *config)
    assert answer.code == 2
    assert "us.log" in answer.err
    assert not (tmp_path / "out.yaml").exists()


def test_the_gates_of_check_take_a_step_that_hides_less(tmp_path, capsys):
    (tmp_path / "ds.json").write_text(
        config(offload_param={"device": "cpu"}, offload_optimizer={"device": "cpu"})
    )
    names = load_cluster(MACHINE)
    told = {
        "machine": names.node.name,
        "gpu": names.node.gpu.name,
        "overlap": {"value": 0.0, "low": 0, "high": 0},
    }
    told["overlap"]["runs"] = ["a"]
    (tmp_path / "calibration.yaml").write_text(json.dumps(GOOD | told))
    asked = ("check", str(tmp_path / "ds.json"), *ASKED, "--json")
    plain = json.loads(ziplan(capsys, *asked).out)
    less = json.loads(ziplan(capsys, *asked, "--calibration", str(tmp_path / "calibration.yaml")).out)
    assert less["estimate"]["step_time_s"] > plain["estimate"]["step_time_s"]
    assert less["simulation"]["makespan_s"] == plain["simulation"]["makespan_s"]
    (tmp_path / "gates.yaml").write_text("max_step_time: 1 ms\n")
    gated = ziplan(
        capsys,
        *asked,
        "--calibration",
        str(tmp_path / "calibration.yaml"),
        "--gates",
        tmp_path / "gates.yaml",
    )
    broken = [each["message"] for each in json.loads(gated.out)["findings"] if "step" in each["message"]]
    assert any(show_duration(less["estimate"]["step_time_s"], 3) in message for message in broken)


def test_a_record_is_predicted_as_the_release_that_ran_it(tmp_path):
    files = [path for path in shipped_files() if path.name in ("jean-zay.yaml", "smart-infinity.yaml")]
    told = {run.id: run.predicted for run in validation(files).runs if run.measured is not None}
    records = [record for record in load_records(files) if record.entry.id in told]
    assert len({record.entry.runtime.version for record in records}) > 1
    for record in records:
        assert predicted(run_of_record(record).subject).step_time == pytest.approx(told[record.entry.id])
