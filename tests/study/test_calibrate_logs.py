"""What runs print, read: DeepSpeed's lines of all ages and ranks, the Trainer's, and lines of neither."""

import gzip
import json
import os
import random

import pytest
from study.calibrated import log, subject

from ziplan.errors import BadInput
from ziplan.study.calibrate import trainer
from ziplan.study.calibrate.logs import GIB, printed
from ziplan.study.calibrate.runs import FORWARD_BACKWARD, OPTIMIZER, OPTIMIZER_READ, WHOLE, run_of_file

STEP = {"fwd": 100.0, "bwd": 250.5, "step": 40.25}


@pytest.fixture(scope="module")
def ran():
    return subject()


def read(tmp_path, lines, ran, name="run.log"):
    path = tmp_path / name
    path.write_text("\n".join(lines))
    return run_of_file(path, ran)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(
    "prefix", ["", "[default0]:", "[2024-05-01 10:00:00,123] [INFO] [logging.py:96:log_dist] ", "3: "]
)
def test_seconds_per_step_are_those_printed(tmp_path, ran, prefix, old):
    run = read(tmp_path, log([STEP] * 5, prefix=prefix, old=old), ran)
    assert run.steps == 3
    assert run.phases == {
        FORWARD_BACKWARD: pytest.approx(0.3505),
        OPTIMIZER: pytest.approx(0.04025),
    }
    assert run.step_time == pytest.approx(0.39075)


def test_the_first_two_steps_are_left_out_and_the_median_taken(tmp_path, ran):
    steps = [{"fwd": ms, "bwd": ms, "step": ms} for ms in (9000.0, 8000.0, 100.0, 104.0, 5000.0)]
    run = read(tmp_path, log(steps), ran)
    assert run.phases[FORWARD_BACKWARD] == pytest.approx(0.208)
    assert run.phases[OPTIMIZER] == pytest.approx(0.104)
    assert any("unsteady" in remark for remark in run.remarks)


def test_too_few_steps_are_refused(tmp_path, ran):
    with pytest.raises(BadInput, match="2 steps in it, of which the first 2 are warm-up"):
        read(tmp_path, log([STEP] * 2), ran)


@pytest.mark.parametrize("written", ["gzip", "utf-16", "utf-16-be"])
def test_logs_that_were_compressed_or_piped_by_powershell(tmp_path, ran, written):
    plain, other = read(tmp_path, log([STEP] * 5), ran), tmp_path / "other.log"
    text = (tmp_path / "run.log").read_text()
    if written == "gzip":
        other.write_bytes(gzip.compress(text.encode()))
    else:
        other.write_bytes(f"\ufeff{text}".encode(written) if "be" in written else text.encode(written))
    assert run_of_file(other, ran).phases == plain.phases


def test_a_damaged_log_is_refused(tmp_path, ran):
    path = tmp_path / "cut.log"
    path.write_bytes(gzip.compress(os.urandom(10_000))[:5_000])
    with pytest.raises(BadInput, match="is cut off or damaged"):
        run_of_file(path, ran)


def test_what_is_inside_an_nvme_step_is_told_apart(tmp_path, ran):
    inside = {"optimizer_swap_in_state": 12.5, "optimizer_swap_out_state": 9.0, "optimizer_step": 39.0}
    run = read(tmp_path, log([{**STEP, **inside}] * 4), ran)
    assert run.phases[OPTIMIZER_READ] == pytest.approx(0.0125)
    assert run.step_time == pytest.approx(0.39075)


def test_mixed_ranks_are_kept_apart(tmp_path, ran):
    slow = {name: 2 * ms for name, ms in STEP.items()}
    ranks = [log([STEP] * 5), log([slow] * 5, rank=3)]
    run = read(tmp_path, [line for pair in zip(*ranks, strict=True) for line in pair], ran)
    assert run.phases[FORWARD_BACKWARD] == pytest.approx(0.3505)
    assert any("2 ranks" in remark for remark in run.remarks)
    glued = ["".join(pair) for pair in zip(*ranks, strict=True)]
    assert read(tmp_path, glued, ran).phases == run.phases


def test_a_log_of_another_accumulation_is_refused(tmp_path, ran):
    with pytest.raises(BadInput, match="a step in it has 8 micro-steps, in the plan 2"):
        read(tmp_path, log([STEP] * 5, micro_steps=8), ran)


def test_memory_is_the_most_that_was_seen():
    lines = [
        "After forward",
        "MA 1.5 GB         Max_MA 12.25 GB         CA 13.0 GB         Max_CA 13 GB ",
        "CPU Virtual Memory:  used = 90.5 GB, percent = 36.1%",
        "[2023-01-01 00:00:00,000] [INFO] [utils.py:786:see_memory_usage] MA 1.5 GB         Max_MA 3.0 GB  "
        "       CA 4 GB         Max_CA 4 GB",
        "CPU Virtual Memory:  used = 80.25 GB, percent = 32%",
    ]
    found = printed(lines)
    assert found.gpu_peak_bytes == 12.25 * GIB
    assert found.host_used_bytes == 90.5 * GIB
    assert not found.empty


def test_a_throughput_line_gives_whole_steps(tmp_path, ran):
    line = (
        "epoch=0/micro_step=20/global_step=10, RunningAvgSamplesPerSec=6.4, CurrSamplesPerSec=6.5, "
        "MemAllocated=10.5GB, MaxMemAllocated=42.0GB"
    )
    run = read(tmp_path, ["noise", line], ran)
    assert ran.sequences == 64
    assert run.phases == {WHOLE: pytest.approx(10.0)}
    assert run.gpu_peak_bytes == 42.0 * GIB
    early = line.replace("RunningAvgSamplesPerSec=6.4", "RunningAvgSamplesPerSec=-inf")
    with pytest.raises(BadInput, match=r"wall_clock|tells"):
        read(tmp_path, [early.partition(", MemAllocated")[0]], ran)


@pytest.mark.parametrize(
    "line",
    [
        "{'train_runtime': 100.0, 'train_samples_per_second': 6.4, 'train_steps_per_second': 0.1}",
        "{'train_runtime': '100', 'train_samples_per_second': '6.400', 'train_steps_per_second': '0.1'}",
        "{'train_runtime': '1e+02', 'train_samples_per_second': '64e-1', 'train_loss': '1.2'}",
    ],
)
def test_the_trainers_rates_give_whole_steps(tmp_path, ran, line):
    run = read(tmp_path, ["  0%| | 0/10", line], ran)
    assert run.phases == {WHOLE: pytest.approx(10.0)}
    assert any("bound" in remark for remark in run.remarks)


def test_a_rate_of_one_digit_is_not_taken(tmp_path, ran):
    line = "{'train_runtime': 1000.0, 'train_samples_per_second': 0.006, 'train_steps_per_second': 0.0}"
    with pytest.raises(BadInput, match="too few digits"):
        read(tmp_path, [line], ran)
    assert trainer.step_time(trainer.Rates("0.640", "0.01"), 64) == pytest.approx(100)


def test_a_trainers_state_gives_its_runtime_over_its_steps(tmp_path, ran):
    state = {
        "global_step": 50,
        "log_history": [{"loss": 1, "step": 50}, {"train_runtime": 600.0, "step": 50}],
    }
    run = read(tmp_path, [json.dumps(state)], ran, name="trainer_state.json")
    assert run.phases == {WHOLE: pytest.approx(12.0)}


@pytest.mark.parametrize(
    "text",
    ["[1, 2", "[]", "{}", '{"global_step": 0, "log_history": []}', '{"global_step": true}', "[" * 9000],
)
def test_a_state_that_is_none_is_refused(tmp_path, ran, text):
    with pytest.raises(BadInput, match=r"JSON|trainer_state"):
        read(tmp_path, [text], ran, name="state.json")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "time (ms)",
        "[Rank 0] time (ms) | fwd: | bwd: x | step: 1.0",
        "[Rank 0] time (ms) | fwd: 1.2.3 | bwd: 1 | step: 1",
        "[Rank 99999999999999] time (ms) | fwd: " + "9" * 400,
        "global_step=1, RunningAvgSamplesPerSec=0.0",
        "MA x GB Max_MA y GB",
        "'train_steps_per_second': 0",
        "\x00\xff\ud7ff" * 1000,
        "time (ms) |" * 50_000,
    ],
)
def test_what_is_no_log_is_refused_and_never_a_traceback(tmp_path, ran, text):
    with pytest.raises(BadInput) as raised:
        read(tmp_path, [text] * 5, ran)
    assert all(problem.file.endswith("run.log") for problem in raised.value.problems)


def test_bytes_and_damaged_lines_do_no_harm(tmp_path, ran):
    """Every line of a good log, damaged at random: read, or refused with the file's name."""
    draw = random.Random(7)
    good = "\n".join(log([{**STEP, "optimizer_step": 3.0}] * 6)).encode()
    for _ in range(200):
        bytes_ = bytearray(good)
        for _ in range(draw.randrange(1, 30)):
            bytes_[draw.randrange(len(bytes_))] = draw.randrange(256)
        path = tmp_path / "run.log"
        path.write_bytes(bytes_)
        try:
            run = run_of_file(path, ran)
        except BadInput as error:
            assert all(problem.file == str(path) for problem in error.problems)
        else:
            assert run.step_time > 0


def test_a_missing_file_and_a_folder_are_refused(tmp_path, ran):
    for path in (tmp_path / "none.log", tmp_path, tmp_path / "none.json"):
        with pytest.raises(BadInput, match=r"no such file|cannot be read"):
            run_of_file(path, ran)
