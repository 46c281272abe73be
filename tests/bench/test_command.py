"""`ziplan bench` at the command line: options, files, JSON, and being ended."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import jsonschema
import pytest
from bench.drive import used
from bench.records import cpu_only, measured, with_gpus
from cli.runs import ziplan

from ziplan.bench import names
from ziplan.bench.measurement import Waived
from ziplan.bench.record import Record, dumps, load, with_results
from ziplan.errors import BadInput
from ziplan.hardware.profiles import load_node

MIB = 2**20


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "run.bench.json"
    path.write_text(dumps(with_results(cpu_only(drives=2), [Waived(name="gpu", reason="no driver")])))
    return path


def test_the_list_names_every_benchmark(capsys):
    done = ziplan(capsys, "bench", "--list")
    assert done.code == 0
    for name in ("dram", "optimizer", "storage", "storage.all", "gpu.chain"):
        assert re.search(rf"^{re.escape(name)} ", done.out, re.MULTILINE)


@pytest.fixture
def roomy(monkeypatch):
    """Whatever is free here, there is room for a file."""
    monkeypatch.setattr("ziplan.bench.storage.benchmarks.with_room", list)


@pytest.mark.usefixtures("roomy")
def test_a_dry_run_says_what_how_long_and_how_much_and_measures_nothing(capsys, tmp_path):
    done = ziplan(capsys, "bench", "--dry-run", "--quick", "--storage", tmp_path, "--max-write", "3 GiB")
    assert done.code == 0
    assert re.search(r"storage +18 s +3\.22 GB", done.out)
    assert "at most 3.22 GB written" in done.out
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_as_json_is_a_record_with_a_plan(capsys, tmp_path):
    done = ziplan(capsys, "bench", "--dry-run", "--json", "--storage", tmp_path, "--only", "storage")
    document = json.loads(done.out)
    assert [each["name"] for each in document["planned"]] == ["storage"]
    assert document["measured"] == []
    jsonschema.validate(document, Record.model_json_schema())


@pytest.mark.usefixtures("roomy")
def test_runs_share_the_cap_on_bytes(capsys, tmp_path):
    options = ("bench", "--dry-run", "--storage", tmp_path, "--max-write", "4 GB", "--only", "storage")
    done = ziplan(capsys, *options, "--repeat", "2", "--json")
    assert [each["written_bytes"] for each in json.loads(done.out)["planned"]] == [2e9, 2e9]


def test_a_replay_tells_what_was_found_and_writes_the_same_file_each_time(capsys, record, tmp_path):
    files = []
    for name in ("a.yaml", "b.yaml"):
        done = ziplan(capsys, "bench", "--replay", record, "-o", tmp_path / name, "--extends", "dgx-a100-80g")
        assert done.code == 0
        files.append((tmp_path / name).read_text())
    assert files[0] == files[1]
    assert re.search(r"dram.copy_bandwidth +200 GB/s", done.out)
    assert re.search(r"storage.nvme0n1.read_bandwidth +6 GB/s .* 7.45 GB/s +81% +as expected", done.out)
    assert "not measured gpu: no driver" in done.out
    assert load_node(str(tmp_path / "a.yaml"))[0].tiers["nvme"].read_bandwidth == pytest.approx(8e9)


def test_fit_takes_the_file_as_it_is_and_says_what_was_measured(capsys, record, tmp_path):
    node = tmp_path / "node.yaml"
    ziplan(capsys, "bench", "--replay", record, "-o", node, "--extends", "dgx-a100-80g")
    done = ziplan(capsys, "fit", "llama-3.1-8b", node, "--sequence-length", "4096", "--json")
    assert done.code == 0, done.err
    kinds = {each["name"]: each["kind"] for each in json.loads(done.out)["assumptions"]}
    assert kinds["tiers.nvme.read_bandwidth"] == "measured"
    assert kinds["cpu.adam_params_per_s"] == "measured"


def test_fit_of_a_file_without_a_gpu_asks_for_a_machine(capsys, record, tmp_path):
    node = tmp_path / "node.yaml"
    ziplan(capsys, "bench", "--replay", record, "-o", node)
    done = ziplan(capsys, "fit", "llama-3.1-8b", node, "--sequence-length", "4096")
    assert done.code == 2
    assert "extends" in done.err


def test_a_node_with_gpus_needs_no_other_machine(capsys, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(dumps(with_gpus()))
    node = tmp_path / "node.yaml"
    assert ziplan(capsys, "bench", "--replay", path, "-o", node).code == 0
    assert ziplan(capsys, "fit", "gpt2-xl", node, "--sequence-length", "1024").code == 0


def test_json_is_the_record_and_the_schema_holds(capsys, record):
    done = ziplan(capsys, "bench", "--replay", record, "--json")
    document = json.loads(done.out)
    assert document["schema"] == "ziplan.bench/1"
    assert document == json.loads(record.read_text())
    schema = json.loads(ziplan(capsys, "schema", "bench").out)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document | {"measured": [{"name": "x"}]}, schema)


def test_where_nothing_was_measured_the_answer_is_exit_2(capsys, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(dumps(with_results(Record(), [Waived(name="gpu", reason="no driver")])))
    done = ziplan(capsys, "bench", "--replay", path)
    assert done.code == 2
    assert "no driver" in done.out


def test_what_is_impossible_is_told_with_its_reason(capsys, tmp_path):
    path = tmp_path / "run.json"
    rate = measured(names.storage("nvme0n1", "read_bandwidth"), "B/s", 20e9)
    path.write_text(dumps(with_results(cpu_only(), [rate])))
    done = ziplan(capsys, "bench", "--replay", path)
    assert re.search(r"nvme0n1.read_bandwidth .* impossible", done.out)
    assert "more than can be (PCIe links of its drives)" in " ".join(done.out.split())


GARBAGE = {
    "unknown-option": ["--fast"],
    "unknown-benchmark": ["--only", "strage"],
    "unknown-skip": ["--skip", "*x"],
    "budget-empty": ["--budget", ""],
    "cap-empty": ["--max-write", ""],
    "replay-and-more": ["--replay", __file__, "--quick"],
    "budget-without-unit": ["--budget", "60"],
    "budget-of-bytes": ["--budget", "60 GB"],
    "budget-negative": ["--budget=-1 s"],
    "budget-nan": ["--budget", "nan s"],
    "cap-without-unit": ["--max-write", "100"],
    "cap-of-gb": ["--max-write", "100 gb"],
    "cap-endless": ["--max-write", "9" * 400 + " GB"],
    "no-folder": ["--storage", "/no/such/folder"],
    "empty-folder": ["--storage", ""],
    "a-file": ["--storage", __file__],
    "a-device": ["--storage", "/dev/null"],
    "no-text": ["--storage", "/tmp/\udcff"],
    "null-byte": ["--storage", "a\0b"],
    "repeat-zero": ["--repeat", "0"],
    "repeat-words": ["--repeat", "many"],
    "repeat-huge": ["--repeat", "1000000"],
    "replay-missing": ["--replay", "/no/such/file"],
    "replay-folder": ["--replay", "/"],
    "replay-empty-name": ["--replay", ""],
    "extends-unknown": ["--extends", "dgx-z9"],
    "extends-empty-file": ["--extends", "/dev/null"],
    "output-empty": ["-o", ""],
    "unknown-command": ["mrge"],
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_refused_before_anything_is_measured(capsys, monkeypatch, name):
    monkeypatch.setattr("ziplan.bench.runner.Run.go", lambda *_: pytest.fail("measured"))
    done = ziplan(capsys, "bench", *GARBAGE[name])
    assert done.code == 2
    assert done.out == ""
    assert done.err.strip()
    assert "Traceback" not in done.err
    assert "bug in ziplan" not in done.err


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}x", '{"schema": "ziplan.fit/1"}', '{"measured": 3}', "\0"]
)
def test_garbage_records_are_refused_at_their_place(capsys, tmp_path, text):
    path = tmp_path / "r.json"
    path.write_text(text)
    done = ziplan(capsys, "bench", "--replay", path)
    assert (done.code, done.out) == (2, "")
    assert "r.json" in done.err
    assert "Traceback" not in done.err


def start(folder, output):
    command = [sys.executable, "-m", "ziplan", "bench", "--quick", "--only", "dram", "--only", "storage"]
    command += ["--storage", str(folder), "-o", str(output), "--max-write", "2 GiB", "--budget", "250 s"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def empties(folder, before):
    """Whether the file system comes to hold no more than before."""
    deadline = time.monotonic() + 15
    while used(folder) - before > 16 * MIB and time.monotonic() < deadline:
        time.sleep(0.1)
    return used(folder) - before <= 16 * MIB


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("seed", [0, 1])
def test_ended_at_any_moment_it_leaves_no_file_and_a_record_that_is_read(direct, tmp_path, number, seed):
    output = tmp_path / "node.yaml"
    before, listed = used(direct), sorted(os.listdir(direct))
    process = start(direct, output)
    # Until it has said what it will do it has begun nothing.
    process.stderr.readline()
    time.sleep(random.Random(f"{number}{seed}").uniform(0.5, 12))
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert empties(direct, before)
    assert sorted(os.listdir(direct)) == listed
    record = load(tmp_path / "node.yaml.bench.json")
    if process.returncode == 0:
        assert record.complete
        return
    assert not record.complete
    if number != signal.SIGKILL:
        assert process.returncode == 130, err
        assert record.waived
        assert load_node_of(output)
        assert "ended before it was over" in " ".join(out.split()) or not record.measured


def load_node_of(path):
    text = path.read_text()
    path.write_text(text.replace("schema:", "extends: dgx-a100-80g\nschema:", 1))
    return load_node(str(path))[0]


@pytest.mark.slow
def test_a_whole_quick_run_of_this_machine(direct, tmp_path):
    output = tmp_path / "node.yaml"
    process = start(direct, output)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    record = load(tmp_path / "node.yaml.bench.json")
    assert record.complete
    found = record.by_name()
    (label,) = [each.label for each in record.topology.folders]
    for name in (names.DRAM_COPY, names.storage(label, "read_bandwidth")):
        assert name in found, record.waived
        assert found[name].n >= 7
    # A drive that writes the whole cap within a second is only read.
    wrote = found.get(names.storage(label, "write_bandwidth"))
    assert wrote.n >= 7 if wrote else "--max-write ended" in str(record.waived)
    assert load_node_of(output).tiers["nvme"].read_bandwidth == pytest.approx(
        found[names.storage(label, "read_bandwidth")].median, rel=1e-5
    )
    assert "dram.copy_bandwidth" in out
    assert "left)" in err


@pytest.mark.slow
def test_a_budget_ends_what_runs_over(direct, tmp_path):
    process = subprocess.run(
        [sys.executable, "-m", "ziplan", "bench", "--quick", "--only", "dram", "--budget", "2 s", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert process.returncode == 2
    assert "time budget" in json.loads(process.stdout)["waived"][0]["reason"]


def test_where_it_is_written_is_looked_at_before_anything_is_measured(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("ziplan.bench.runner.Run.go", lambda *_: pytest.fail("measured"))
    (tmp_path / "file").write_text("")
    (tmp_path / "n.yaml.bench.json").mkdir()
    for output in (tmp_path, tmp_path / "file" / "n.yaml", tmp_path / "n.yaml"):
        for more in ([], ["--dry-run"]):
            done = ziplan(capsys, "bench", "-o", output, *more)
            assert (done.code, done.out) == (2, "")
            assert "ZP001 is a f" in done.err


def test_a_device_has_no_record_beside_it(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("ziplan.cli.bench_files.save", lambda path, _: pytest.fail(f"{path} written"))
    assert ziplan(capsys, "bench", "--only", "gpu", "-o", "/dev/null").code == 2


@pytest.mark.parametrize("words", [["bench", "--replay"], ["bench", "merge"]])
def test_what_is_read_is_not_replaced(capsys, record, words):
    before = record.read_text()
    done = ziplan(capsys, *words, record, "-o", record)
    assert done.code == 2
    assert "it would be replaced" in done.err
    assert record.read_text() == before


@pytest.mark.parametrize("words", [["bench", "--replay"], ["bench", "merge"]])
def test_a_file_that_no_plan_takes_yet_is_told_as_such(capsys, record, tmp_path, words):
    node = tmp_path / "node.yaml"
    alone = " ".join(ziplan(capsys, *words, record, "-o", node).out.split())
    assert "that no plan takes yet: missing key `gpu`" in alone
    assert "add `extends: <machine>`" in alone
    assert "ziplan fit MODEL" not in alone
    extended = " ".join(ziplan(capsys, *words, record, "-o", node, "--extends", "dgx-a100-80g").out.split())
    assert f"ziplan fit MODEL {node}" in extended


def test_no_benchmark_at_all_is_refused(capsys):
    for words in (["--skip", "*"], ["--only", "gpu*", "--skip", "gpu*"]):
        done = ziplan(capsys, "bench", "--dry-run", *words)
        assert (done.code, done.out) == (2, "")
        assert "leaves no benchmark" in done.err


def test_one_benchmark_is_one(capsys):
    assert "1 benchmark, about" in ziplan(capsys, "bench", "--dry-run", "--only", "dram").out


def test_a_run_that_measures_nothing_leaves_what_an_earlier_one_has_measured(capsys, record, tmp_path):
    node, beside = tmp_path / "node.yaml", tmp_path / "node.yaml.bench.json"
    ziplan(capsys, "bench", "--replay", record, "-o", node, "--extends", "dgx-a100-80g")
    beside.write_text(record.read_text())
    before = node.read_text(), beside.read_text()
    done = ziplan(capsys, "bench", "--only", "dram", "--budget", "0 s", "-o", node)
    assert done.code == 2
    assert "is left as it was" in " ".join(done.out.split())
    assert (node.read_text(), beside.read_text()) == before
    ziplan(capsys, "bench", "--only", "dram", "--budget", "0 s", "-o", tmp_path / "new.yaml")
    assert load(tmp_path / "new.yaml.bench.json").waived


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_was_measured_is_told_where_the_file_cannot_be_written(capsys, record, form):
    done = ziplan(capsys, "bench", "--replay", record, "-o", "/dev/full", *form)
    assert done.code == 2
    assert "dram.copy_bandwidth" in done.out
    assert "/dev/full: ZP001 cannot be written" in done.err


def test_a_run_goes_on_where_its_record_cannot_be_written_any_more(capsys, tmp_path, monkeypatch):
    def full(*_):
        raise BadInput.of("cannot be written: No space left on device", file="x")

    monkeypatch.setattr("ziplan.cli.bench.save_record", full)
    done = ziplan(capsys, "bench", "--only", "dram", "--budget", "0 s", "-o", tmp_path / "new.yaml")
    assert done.code == 2
    assert "not measured dram" in done.out
    assert done.err.count("cannot be written") == 1
